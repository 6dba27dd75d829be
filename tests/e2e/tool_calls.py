"""Tool calls as models of many families write them, by the openai package: a scripted model writes each text, and the whole and
the streamed answer have the same calls. Also calls in reasoning that is not closed, calls that tool_choice requires and max_tokens
cuts, by OpenAI's API and Anthropic's, and the digits of numbers in earlier calls.  usage: tool_calls.py NEREID"""
import json
import os
import sys
import tempfile

import openai
import requests

import own_server
import scripted_model

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"a": {"type": "integer"}, "b": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}},
         {"type": "function", "function": {"name": "g"}}]
F, G = ("f", {"a": 1, "b": "2"}), ("g", {})
LONG = " and so on" * 30
CODER = "<function=f>\n<parameter=a>\n1\n%s<parameter=b>\n2\n</parameter>\n</function>\n"

# The parser's name -> texts, each with the content and the calls that are in it.
CASES = {
    "qwen3_coder": [("<tool_call>\n" + CODER % "</parameter>\n" + "</tool_call>", "", [F]),
                    ("I look.\n\n" + CODER % "</parameter>\n" + "</tool_call>", "I look.", [F]),
                    ("<tool_call>\n" + CODER % "" + "</tool_call>", "", [F]),
                    ("Some write <function=NAME> for it." + LONG, "Some write <function=NAME> for it." + LONG, [])],
    "glm45": [("<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>2</arg_value>\n"
               "</tool_call>\n<tool_call>g\n</tool_call>", "", [F, G])],
    "deepseek_v3": [("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"b\": \"```json\\n{}\\n```\"}<｜tool▁call▁end｜>"
                     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "",
                     [("f", {"b": "```json\n{}\n```"}), G]),
                    ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f{\"a\": 1, \"b\": \"2\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "", [F])],
    "mistral": [("[TOOL_CALLS]g[ARGS][TOOL_CALLS]f[ARGS]{\"a\": 1, \"b\": \"2\"}[TOOL_CALLS]g[ARGS]", "", [G, F, G])],
    "kimi_k2": [("<|tool_calls_section_begin|><|tool_call_begin|>functions.g:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
                 "<|tool_calls_section_end|>", "", [G])],
    "minimax_m2": [("<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n<parameter name=\"b\">2"
                    "</parameter>\n</invoke>\n</minimax:tool_call>", "", [F])],
    "hermes": [("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 123456789012345678901, \"b\": NaN}}</tool_call>", "",
                [("f", {"a": 123456789012345678901, "b": "NaN"})]),
               ("<tool_call>\n```json\n{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"2\"}}\n```\n</tool_call>", "", [F]),
               ("The tag <tool_call> begins a call." + LONG, "The tag <tool_call> begins a call." + LONG, [])],
    "llama3_json": [("{\"name\": \"f\", \"parameters\": {\"a\": 1, \"b\": \"2\"}}; {\"name\": \"g\", \"parameters\": {}}", "", [F, G]),
                    ("{\"answer\": 42}" + LONG, "{\"answer\": 42}" + LONG, [])],
    "pythonic": [("[f(a=1, b='2'), g()]", "", [F, G]), ("[1] First." + LONG, "[1] First." + LONG, [])],
    "olmo3": [("<function_calls>\nf(a=1, b=\"2\")\ng()\n</function_calls>", "", [F, G])],
}

HERMES = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"
KIMI = ("<|tool_calls_section_begin|><|tool_call_begin|>functions.g:3<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>")
# The parser's name -> texts of reasoning that is not closed in front of calls, each with the reasoning, the content and the calls.
REASONED = {
    "hermes": [("<think>I look.\n" + HERMES + "\n", "I look.", "", [G]),
               ("<think>I may write " + HERMES + " or not." + LONG, "I may write " + HERMES + " or not." + LONG, "", []),
               ("<think>I write " + HERMES + ".</think>\n\nFour.", "I write " + HERMES + ".", "Four.", [])],
    "kimi_k2": [("<think>I look." + KIMI, "I look.", "", [G]), ("<think>I look." + KIMI + "</think>", "I look.", "", [G]),
                ("<think>The mark <|tool_calls_section_begin|>.</think>Four.", "The mark <|tool_calls_section_begin|>.", "Four.", [])],
}
WANTED = "[{\"name\": \"f\", \"parameters\": {\"a\": 1, \"b\": \"2\"}}, {\"name\": \"g\", \"parameters\": {\"c\": \"}]\"}}]"
DIGITS = "{\"id\": 123456789012345678901, \"x\": 0.12345678901234567890}"


def strict(text):
    def refuse(word):
        raise ValueError(word)
    return json.loads(text, parse_constant=refuse)


def check(client, parser, prompt, text, content, calls):
    arguments = dict(model=client.models.list().data[0].id, messages=[{"role": "user", "content": "x"}], tools=TOOLS, temperature=0,
                     extra_body={"prompt_token_ids": prompt})
    choice = client.chat.completions.create(**arguments).choices[0]
    got = [(c.function.name, strict(c.function.arguments)) for c in choice.message.tool_calls or []]
    assert (choice.message.content or "", got) == (content, calls), (parser, text, choice)
    assert choice.finish_reason == ("tool_calls" if calls else "stop"), choice
    if parser == "kimi_k2":
        assert choice.message.tool_calls[0].id == "functions.g:3", choice
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(stream=True, **arguments)]
    streamed = [(c.function.name, strict(c.function.arguments)) for d in deltas for c in d.tool_calls or []]
    pieces = [d.content for d in deltas if d.content]
    assert ("".join(pieces), streamed) == (content, calls), (parser, text, deltas)
    # Text that is no call is not held back until the end.
    assert len(pieces) >= len(content) / 20, (parser, pieces)


def check_reasoned(client, prompt, text, reasoning, content, calls):
    arguments = dict(model=client.models.list().data[0].id, messages=[{"role": "user", "content": "x"}], tools=TOOLS, temperature=0,
                     extra_body={"prompt_token_ids": prompt})
    choice = client.chat.completions.create(**arguments).choices[0]
    got = [(c.function.name, strict(c.function.arguments)) for c in choice.message.tool_calls or []]
    thoughts = (choice.message.model_extra or {}).get("reasoning_content")
    assert (thoughts, choice.message.content or "", got) == (reasoning, content, calls), (text, choice)
    assert choice.finish_reason == ("tool_calls" if calls else "stop"), choice
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(stream=True, **arguments)]
    parts = ["".join(getattr(d, name, None) or "" for d in deltas) for name in ("reasoning_content", "content")]
    streamed = [(c.function.name, strict(c.function.arguments)) for d in deltas for c in d.tool_calls or []]
    assert (*parts, streamed) == (reasoning, content, calls), (text, deltas)


def is_object(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def check_cut(client, url, prompt):
    """Calls that are wanted, cut behind each byte: the complete ones are there, and the arguments so far of one that is not."""
    arguments = dict(model=client.models.list().data[0].id, messages=[{"role": "user", "content": "x"}], tools=TOOLS, temperature=0,
                     tool_choice="required", extra_body={"prompt_token_ids": prompt})
    tools = [{"name": t["function"]["name"], "input_schema": t["function"].get("parameters", {"type": "object"})} for t in TOOLS]
    first, second = WANTED.index("{\"a\""), WANTED.index("{\"c\"")
    for most in (*range(1, len(WANTED), 3), len(WANTED) + 1):
        choice = client.chat.completions.create(max_tokens=most, **arguments).choices[0]
        got = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
        is_cut = most < len(WANTED)
        assert choice.finish_reason == ("length" if is_cut else "tool_calls") and not choice.message.content, (most, choice)
        for (name, text), begin in zip(got, (first, second)):
            assert WANTED[begin:].startswith(text) and WANTED[:begin].rindex("\"%s\"" % name), (most, got)
        whole = [(name, json.loads(text)) for name, text in got if is_object(text)]
        wanted = json.loads(WANTED)[:sum(most > end for end in (WANTED.index("}}"), WANTED.rindex("}}")))]
        assert whole == [(call["name"], call["parameters"]) for call in wanted], (most, got)
        streamed = []
        for chunk in client.chat.completions.create(max_tokens=most, stream=True, **arguments):
            for part in chunk.choices[0].delta.tool_calls or []:
                if part.id:
                    streamed.append((part.function.name, ""))
                assert part.index == len(streamed) - 1, part
                streamed[-1] = (streamed[-1][0], streamed[-1][1] + part.function.arguments)
            reason = chunk.choices[0].finish_reason
        assert (streamed, reason) == (got, choice.finish_reason), (most, streamed, got)
        reply = requests.post(url + "/v1/messages", timeout=300, json={
            "max_tokens": most, "messages": [{"role": "user", "content": "x" * len(prompt)}], "tools": tools, "temperature": 0,
            "tool_choice": {"type": "any"}})
        assert reply.status_code == 200, reply.text
        assert [(b["name"], b["input"]) for b in reply.json()["content"]] == whole, (most, reply.text)
        assert reply.json()["stop_reason"] == ("max_tokens" if is_cut else "tool_use"), (most, reply.text)


def check_digits(url):
    """Numbers in the arguments of earlier calls, as the template shows them."""
    def shown(path, **body):
        reply = requests.post(url + path, timeout=300, json=None, data=json.dumps(body).replace("\"DIGITS\"", DIGITS),
                              headers={"Content-Type": "application/json"})
        assert reply.status_code == 200, reply.text
        return reply.json()

    for arguments in ("DIGITS", DIGITS):
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        ids = shown("/tokenize", messages=[{"role": "assistant", "content": "", "tool_calls": [call]}])["tokens"]
        assert shown("/detokenize", tokens=ids)["prompt"] == DIGITS, (arguments, ids)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for parser, cases in REASONED.items():
            model = os.path.join(folder, parser)
            prompts = scripted_model.write(model, {i: case[0] for i, case in enumerate(cases)})
            with own_server.serving(sys.argv[1], "--tool-call-parser", parser, "--reasoning-parser", "qwen3", model=model) as url:
                client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=300)
                for i, case in enumerate(cases):
                    check_reasoned(client, prompts[i], *case)
        model = os.path.join(folder, "wanted")
        prompts = scripted_model.write(model, {"wanted": WANTED})
        with own_server.serving(sys.argv[1], "--reasoning-parser", "none", model=model) as url:
            client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=300)
            check_cut(client, url, prompts["wanted"])
        model = os.path.join(folder, "digits")
        scripted_model.write(model, {"none": "none"}, "{{ messages[0].tool_calls[0].function.arguments | tojson }}")
        with own_server.serving(sys.argv[1], model=model) as url:
            check_digits(url)
    for parser, cases in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "scripted")
            prompts = scripted_model.write(model, {i: case[0] for i, case in enumerate(cases)})
            with own_server.serving(sys.argv[1], "--tool-call-parser", parser, "--reasoning-parser", "none", model=model) as url:
                client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=300)
                for i, case in enumerate(cases):
                    check(client, parser, prompts[i], *case)
    print("tool calls: %d texts of %d formats, whole and streamed" % (sum(map(len, CASES.values())), len(CASES)))


if __name__ == "__main__":
    main()
