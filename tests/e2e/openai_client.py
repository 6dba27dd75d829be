"""Completions and chat with the openai package: whole, streamed, options, errors as its exception types."""
import array
import base64
import io
import json
import os
import struct
import zipfile

import openai
import requests

from openai_base import MESSAGES, MODEL, client, expect
from openai_log_probs import log_probs, prompt_log_probs


def loaded_tokenizer():
    """The text model reports the tokenizer that it has loaded; OpenAI's API compares."""
    config = requests.get(os.environ["NEREID_URL"] + "/v2/models/preprocessing/config", timeout=60).json()
    shown = config["parameters"]["tokenizer_hash"]["string_value"]
    assert len(shown) == 16 and int(shown, 16), shown


def counts(usage):
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def cached():
    """A prompt that was computed before is cached but for its last token, in every kind of answer."""
    prompt = "The usage of a prompt of some length says how much of it was computed before, " * 3
    arguments = dict(model=MODEL, prompt=prompt, max_tokens=4, temperature=0)
    first = client.completions.create(**arguments).usage
    known = first.prompt_tokens - 1
    assert first.prompt_tokens_details.cached_tokens < known, first
    again = [client.completions.create(**arguments).usage,
             client.completions.create(n=2, **dict(arguments, temperature=1)).usage]
    again += [chunk.usage for chunk in client.completions.create(
        stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}, **arguments)]
    assert len(again) > 3 and all(u.prompt_tokens_details.cached_tokens == known for u in again), (known, again)
    twice = client.completions.create(**dict(arguments, prompt=[prompt, prompt])).usage
    assert twice.prompt_tokens_details.cached_tokens == 2 * known, twice
    chat = dict(model=MODEL, messages=[{"role": "user", "content": prompt}], max_tokens=4, temperature=0)
    client.chat.completions.create(**chat)
    usage = client.chat.completions.create(**chat).usage
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1, usage
    other = client.chat.completions.create(extra_body={"cache_salt": "of another user"}, **chat).usage
    assert other.prompt_tokens_details.cached_tokens == 0, other


def completions():
    whole = client.completions.create(model=MODEL, prompt="Machine learning is", max_tokens=32, temperature=0)
    choice = whole.choices[0]
    assert choice.text and choice.finish_reason in ("stop", "length"), whole
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole.usage.completion_tokens <= 32, whole.usage

    pieces, usage, reason = [], None, None
    for chunk in client.completions.create(model=MODEL, prompt="Machine learning is", max_tokens=32, temperature=0,
                                           stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for c in chunk.choices:
            pieces.append(c.text)
            reason = c.finish_reason or reason
    assert "".join(pieces) == choice.text, (pieces, choice.text)
    assert counts(usage) == counts(whole.usage) and reason == choice.finish_reason, (usage, reason)

    batch = client.completions.create(model=MODEL, prompt=["Machine learning is", "Paris is"], max_tokens=32,
                                      temperature=0)
    assert [c.index for c in batch.choices] == [0, 1]
    assert batch.choices[0].text == choice.text, batch
    assert batch.usage.completion_tokens > whole.usage.completion_tokens

    echo = client.completions.create(model=MODEL, prompt="Machine learning is", max_tokens=32, temperature=0,
                                     echo=True)
    assert echo.choices[0].text == "Machine learning is" + choice.text
    return choice.text


def stops(text):
    cut = text[len(text) // 2:][:3]
    stopped = client.completions.create(model=MODEL, prompt="Machine learning is", max_tokens=32, temperature=0,
                                        stop=[cut, "\x00never"])
    assert stopped.choices[0].text == text[:text.index(cut)], (text, cut, stopped)
    assert stopped.choices[0].finish_reason == "stop"
    forced = client.completions.create(model=MODEL, prompt="Hi", max_tokens=40, temperature=0,
                                       extra_body={"ignore_eos": True})
    assert forced.usage.completion_tokens == 40 and forced.choices[0].finish_reason == "length", forced
    least = client.completions.create(model=MODEL, prompt="Hi", max_tokens=40, temperature=0,
                                      extra_body={"min_tokens": 30})
    assert least.usage.completion_tokens >= 30, least


def sampling():
    def draw(seed):
        return client.completions.create(model=MODEL, prompt="Once", max_tokens=24, temperature=1.5, top_p=0.9,
                                         seed=seed, extra_body={"top_k": 100}).choices[0].text
    assert draw(1) == draw(1), "the same seed must give the same text"
    assert len({draw(seed) for seed in range(5)}) > 1, "seeds must matter"


def sequences():
    """n choices draw with seeds of their own; whole and streamed agree, and so does each alone."""
    arguments = dict(model=MODEL, prompt="Once", max_tokens=24, temperature=1.5, seed=11)
    several = client.completions.create(n=3, **arguments)
    texts = [c.text for c in several.choices]
    assert [c.index for c in several.choices] == [0, 1, 2] and len(set(texts)) > 1, several
    alone = [client.completions.create(**dict(arguments, seed=11 + i)) for i in range(3)]
    assert [a.choices[0].text for a in alone] == texts, (texts, alone)
    assert several.usage.completion_tokens == sum(a.usage.completion_tokens for a in alone), several.usage
    assert several.usage.prompt_tokens == alone[0].usage.prompt_tokens, several.usage
    streamed, reasons = ["", "", ""], {}
    for chunk in client.completions.create(n=3, stream=True, **arguments):
        for c in chunk.choices:
            streamed[c.index] += c.text
            if c.finish_reason:
                reasons[c.index] = c.finish_reason
    assert streamed == texts and len(reasons) == 3, (streamed, texts)
    best = client.completions.create(n=1, best_of=3, logprobs=0, **arguments)
    assert best.choices[0].text in texts, (best, texts)
    chats = client.chat.completions.create(model=MODEL, messages=MESSAGES, n=2, max_tokens=16, seed=3)
    assert [c.index for c in chats.choices] == [0, 1] and all(c.message.content for c in chats.choices), chats


def beams():
    found = client.completions.create(model=MODEL, prompt="Once upon", max_tokens=12, temperature=0, n=3,
                                      extra_body={"use_beam_search": True}, logprobs=0)
    texts = [c.text for c in found.choices]
    assert len(set(texts)) == 3 and [c.index for c in found.choices] == [0, 1, 2], found
    means = [sum(c.logprobs.token_logprobs) / len(c.logprobs.token_logprobs) for c in found.choices]
    assert means[0] >= max(means) - 0.2, means
    wider = client.completions.create(model=MODEL, prompt="Once upon", max_tokens=12, temperature=0, n=1, best_of=3,
                                      extra_body={"use_beam_search": True})
    assert [c.text for c in wider.choices] == texts[:1], (wider, texts)
    expect(openai.BadRequestError, "use_beam_search", client.completions.create, model=MODEL, prompt="x", n=2,
           stream=True, extra_body={"use_beam_search": True})


def penalties():
    plain = dict(model=MODEL, prompt="Hi", max_tokens=40, temperature=0, extra_body={"ignore_eos": True})
    usual = client.completions.create(logprobs=0, **plain).choices[0]
    assert client.completions.create(frequency_penalty=0.0, presence_penalty=0.0, **plain).choices[0].text == usual.text

    def distinct(**more):
        scored = client.completions.create(logprobs=0, **dict(plain, **more)).choices[0]
        return len(set(scored.logprobs.tokens))
    assert distinct(frequency_penalty=2.0) > len(set(usual.logprobs.tokens)), "a penalty must make tokens differ"
    assert distinct(extra_body={"ignore_eos": True, "repetition_penalty": 1.9}) > len(set(usual.logprobs.tokens))
    first = client.completions.create(logprobs=1, **dict(plain, max_tokens=1)).choices[0]
    ids = requests.post(os.environ["NEREID_URL"] + "/v2/models/preprocessing/generate",
                        json={"QUERY": first.text, "REQUEST_OUTPUT_LEN": 1}, timeout=60).json()["INPUT_ID"]
    banned = ids if isinstance(ids, int) else ids[-1]
    other = client.completions.create(logit_bias={str(banned): -100}, **dict(plain, max_tokens=1)).choices[0]
    assert other.text != first.text, (first, other)
    without = client.completions.create(**dict(plain, extra_body={"ignore_eos": True, "bad_words": [" the", "the"]}))
    assert "the " not in without.choices[0].text, without


def torch_saved(rows, width):
    """The file that torch.save writes for a bf16 tensor [rows, width] with these bytes."""
    def text(word):
        return b"X" + struct.pack("<I", len(word)) + word

    def numbers(*values):
        return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"
    count = len(rows) // 2
    pickle = (b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((" + text(b"storage") + b"ctorch\nBFloat16Storage\n" + text(b"0") +
              text(b"cpu") + b"J" + struct.pack("<i", count) + b"tQK\0" + numbers(count // width, width) + numbers(width, 1) +
              b"\x89ccollections\nOrderedDict\n)RtR.")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in (("data.pkl", pickle), ("byteorder", b"little"), ("data/0", rows), ("version", b"3\n")):
            archive.writestr("archive/" + name, data)
    return base64.b64encode(file.getvalue()).decode()


def prompt_embeds():
    """The model's own embeddings of a prompt are as good as its tokens."""
    with open("models/quickstart/model.safetensors", "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        table = json.loads(file.read(size))["model.embed_tokens.weight"]
        begin, width = 8 + size + table["data_offsets"][0], table["shape"][1]

        def row(token):
            file.seek(begin + 2 * width * token)
            return file.read(2 * width)
        plain = dict(model=MODEL, max_tokens=24, temperature=0, logprobs=1)
        ids = client.completions.create(prompt="Machine learning is", extra_body={"return_token_ids": True}, **plain)
        embeds = torch_saved(b"".join(map(row, ids.choices[0].prompt_token_ids)), width)
    got = client.completions.create(prompt=None, extra_body={"prompt_embeds": embeds}, **plain)
    assert got.choices[0].text == ids.choices[0].text, (got, ids)
    assert got.choices[0].logprobs.token_logprobs == ids.choices[0].logprobs.token_logprobs
    assert counts(got.usage) == counts(ids.usage), (got.usage, ids.usage)
    both = client.completions.create(prompt="Paris is", extra_body={"prompt_embeds": [embeds]}, **plain)
    assert [c.text for c in both.choices] == [got.choices[0].text, client.completions.create(prompt="Paris is", **plain).choices[0].text]
    for text, tensor in (("prompt_embeds", "AAAA"), ("255 is not 256", torch_saved(bytes(510), 255)),
                         ("not finite", torch_saved(b"\x80\x7f" * 256, 256))):
        expect(openai.BadRequestError, text, client.completions.create, prompt=None, extra_body={"prompt_embeds": tensor}, **plain)


def chat():
    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=32, temperature=0)
    answer = whole.choices[0].message
    assert answer.role == "assistant" and answer.content, whole
    pieces, roles, reason = [], [], None
    for chunk in client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=32, temperature=0,
                                                stream=True):
        for c in chunk.choices:
            if c.delta.role:
                roles.append(c.delta.role)
            pieces.append(c.delta.content or "")
            reason = c.finish_reason or reason
    assert roles == ["assistant"] and reason == whole.choices[0].finish_reason
    assert "".join(pieces) == answer.content, (pieces, answer.content)
    parts = [{"role": "user", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]}]
    same = client.chat.completions.create(model=MODEL, messages=parts, max_completion_tokens=32, temperature=0)
    assert same.choices[0].message.content == answer.content
    tools = [{"type": "function", "function": {"name": "lookup", "description": "finds facts",
                                               "parameters": {"type": "object", "properties": {}}}}]
    with_tools = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=tools, max_tokens=16)
    assert with_tools.usage.prompt_tokens > whole.usage.prompt_tokens, "tools must reach the template"


def wanted_calls():
    """Calls that must come: their arguments follow the tools' schemas, whole and streamed."""
    def tool(name, properties):
        schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
        return {"type": "function", "function": {"name": name, "parameters": schema}}

    tools = [tool("add", {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"$ref": "#/$defs/digit"}}),
             tool("say", {"word": {"enum": ["yes", "no"]}})]
    tools[0]["function"]["parameters"]["$defs"] = {"digit": {"type": "integer", "minimum": 0, "maximum": 9}}

    def right(name, text):
        given = json.loads(text)
        if name == "say":
            return set(given) == {"word"} and given["word"] in ("yes", "no")
        return name == "add" and set(given) == {"a", "b"} and 0 <= given["a"] <= 99 and 0 <= given["b"] <= 9

    common = dict(model=MODEL, messages=MESSAGES, tools=tools, max_tokens=200, parallel_tool_calls=False, temperature=0)
    for choice in ("required", {"type": "function", "function": {"name": "add"}}):
        whole = client.chat.completions.create(tool_choice=choice, **common).choices[0]
        assert len(whole.message.tool_calls) == 1 and not whole.message.content, whole
        call = whole.message.tool_calls[0].function
        assert right(call.name, call.arguments), call
        assert whole.finish_reason == ("tool_calls" if choice == "required" else "stop"), whole
        name, text, ids, reason = None, "", set(), None
        for chunk in client.chat.completions.create(tool_choice=choice, stream=True, **common):
            for c in chunk.choices:
                assert not c.delta.content, c
                for part in c.delta.tool_calls or []:
                    name = part.function.name or name
                    text += part.function.arguments or ""
                    ids |= {part.id} - {None}
                reason = c.finish_reason or reason
        assert (name, text, reason) == (call.name, call.arguments, whole.finish_reason), (name, text, call)
        assert len(ids) == 1, ids


def tokens():
    url = os.environ["NEREID_URL"]

    def post(path, status=200, **body):
        reply = requests.post(url + path, json=body, timeout=60)
        assert reply.status_code == status, (path, reply.status_code, reply.text)
        return reply.json()

    text = "Machine learning is"
    got = post("/tokenize", prompt=text, return_token_strs=True)
    assert got["count"] == len(got["tokens"]) == len(got["token_strs"]) and got["max_model_len"] == 2048, got
    assert text in post("/detokenize", tokens=got["tokens"])["prompt"]
    assert post("/tokenize", content=text)["tokens"] == post("/tokenize", prompt=text, add_special_tokens=False)["tokens"]
    chat = post("/tokenize", messages=MESSAGES)
    usage = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1).usage
    assert chat["count"] == usage.prompt_tokens, (chat, usage)
    assert chat["count"] == requests.post(url + "/v1/chat/completions", timeout=60, json={
        "messages": MESSAGES, "max_tokens": 1}).json()["usage"]["prompt_tokens"]
    assert post("/detokenize", 400, tokens=[10**9])["param"] == "tokens"
    assert post("/tokenize", 400, add_special_tokens=True)["param"] == "prompt"
    assert requests.get(url + "/tokenizer_info", timeout=60).json()["chat_template"]
    health = requests.get(url + "/health_generate", timeout=60)
    assert health.status_code == 200 and health.text == "Generation health check OK", health.text


def closed_schema():
    """Unread fields are named; the others have their effect."""
    raw = client.chat.completions.with_raw_response
    reply = raw.create(model=MODEL, messages=MESSAGES, max_tokens=2, extra_body={"tempreature": 1, "request_id": "mine-1"})
    assert reply.headers["Warning"] == '299 - "unknown fields: tempreature"', reply.headers
    assert reply.parse().id == "chatcmpl-mine-1"
    assert "Warning" not in raw.create(model=MODEL, messages=MESSAGES, max_tokens=2).headers

    whole = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=16, temperature=0)
    answer = whole.choices[0].message.content
    half = answer[:len(answer) // 2].rstrip()
    on = client.chat.completions.create(model=MODEL, messages=MESSAGES + [{"role": "assistant", "content": half}],
                                        max_tokens=16, temperature=0, extra_body={"continue_final_message": True})
    assert on.usage.prompt_tokens > whole.usage.prompt_tokens, on
    short = client.completions.create(model=MODEL, prompt="one two three four five six", max_tokens=1,
                                      extra_body={"truncate_prompt_tokens": 3})
    assert short.usage.prompt_tokens == 3, short
    limit = client.models.retrieve(MODEL).max_model_len
    long = client.completions.create(model=MODEL, prompt="one two three " * limit, max_tokens=5,
                                     extra_body={"truncate_prompt_tokens": -1})
    assert long.usage.prompt_tokens == limit - 5, long
    client.completions.create(model=MODEL, prompt="x", max_tokens=2, stop=[str(i) for i in range(16)], temperature=5)
    named = raw.create(model=MODEL, messages=MESSAGES, max_tokens=2, extra_headers={"X-Request-Id": "mine-2"})
    assert named.parse().id == "chatcmpl-mine-2"


def returned_ids():
    """Ids of prompts and outputs, as many as usage counts, in streams the same."""
    chat = dict(model=MODEL, messages=MESSAGES, max_tokens=24, temperature=0, extra_body={"return_token_ids": True})
    whole = client.chat.completions.create(**chat)
    ids = whole.choices[0].model_extra["token_ids"]
    prompt = whole.model_extra["prompt_token_ids"]
    assert len(ids) == whole.usage.completion_tokens and len(prompt) == whole.usage.prompt_tokens, whole
    chunks = list(client.chat.completions.create(stream=True, **chat))
    assert [i for c in chunks for choice in c.choices for i in choice.model_extra.get("token_ids") or []] == ids
    assert [c.model_extra["prompt_token_ids"] for c in chunks if "prompt_token_ids" in c.model_extra] == [prompt]

    several = dict(model=MODEL, prompt=["The capital", "One two"], n=2, max_tokens=6, seed=3,
                   extra_body={"return_token_ids": True})
    whole = client.completions.create(**several)
    lists = [c.model_extra["token_ids"] for c in whole.choices]
    assert sum(map(len, lists)) == whole.usage.completion_tokens, whole
    assert sum(len(c.model_extra["prompt_token_ids"]) for c in whole.choices[::2]) == whole.usage.prompt_tokens, whole
    chunks = list(client.completions.create(stream=True, **several))
    for index, expected in enumerate(lists):
        streamed = [i for c in chunks for choice in c.choices if choice.index == index
                    for i in choice.model_extra["token_ids"]]
        assert streamed == expected, (index, streamed, expected)


def adapters():
    def say(model):
        answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=32, temperature=0)
        assert answer.model == model, answer
        return answer.choices[0].message.content

    plain, upper = say(MODEL), say("upper")
    assert upper == upper.upper() and plain != plain.upper(), (plain, upper)
    assert say(MODEL) == plain, "nothing computed for the adapter is reused without it"
    assert client.models.retrieve("upper").model_dump()["parent"] == MODEL
    loaded_adapters(upper)


def loaded_adapters(upper):
    """Adapters that requests load and unload, as vLLM has them; one that is unloaded ends what it has begun."""
    def post(route, **body):
        return requests.post(f"{os.environ['NEREID_URL']}/v1/{route}_lora_adapter", json=body, timeout=60)

    def say(model, **more):
        return client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=24, temperature=0, **more)

    assert post("load", lora_name="loud", lora_path="thanks").text == "Success: LoRA adapter 'loud' added successfully."
    thanks = say("loud").choices[0].message.content
    assert thanks != upper, thanks
    assert post("load", lora_name="loud", lora_path="upper").status_code == 400, "the name is taken"
    stream = say("loud", stream=True)
    begin = next(stream).choices[0].delta.content or ""
    again = post("load", lora_name="loud", lora_path=os.path.abspath("tests/adapters/upper"), load_inplace=True)
    assert again.status_code == 200, again.text
    assert "loud" in [m.id for m in client.models.list()]
    assert say("loud").choices[0].message.content == upper
    assert post("unload", lora_name="loud").text == "Success: LoRA adapter 'loud' removed successfully."
    rest = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert begin + rest == thanks, (begin + rest, thanks)
    expect(openai.NotFoundError, "loud", say, model="loud")
    for status, answer in ((404, post("unload", lora_name="loud")), (400, post("unload", lora_name="upper")),
                           (404, post("load", lora_name="x", lora_path="nowhere")),
                           (400, post("load", lora_name="x", lora_path="/etc")),
                           (404, post("load", lora_name="x", lora_path="."))):
        assert answer.status_code == status, (status, answer.text)
    expect(openai.NotFoundError, "'x' does not exist", say, model="x")


def embeddings():
    """Every input of a batch as it is alone; base64 (what the package asks for) and numbers are the same."""
    texts = ["What is the capital of France?", "Paris is the capital of France.", "x", "A long text. " * 40] * 20
    batch = client.embeddings.create(model=MODEL, input=texts)
    assert [d.index for d in batch.data] == list(range(80)), batch.usage
    alone = [client.embeddings.create(model=MODEL, input=text, encoding_format="float") for text in texts[:4]]
    for i, d in enumerate(batch.data):
        assert d.embedding == array.array("f", alone[i % 4].data[0].embedding).tolist(), i
    assert batch.usage.prompt_tokens == 20 * sum(a.usage.prompt_tokens for a in alone), batch.usage
    first = batch.data[0].embedding
    assert len(first) == 256 and abs(sum(v * v for v in first) - 1) < 1e-5, len(first)
    assert sum(a * b for a, b in zip(first, batch.data[1].embedding)) > sum(
        a * b for a, b in zip(first, batch.data[2].embedding)), "texts that share words are nearer"
    cut = client.embeddings.create(model=MODEL, input=texts[0], dimensions=8).data[0].embedding
    norm = sum(v * v for v in first[:8]) ** 0.5
    assert len(cut) == 8 and all(abs(a - b / norm) < 1e-5 for a, b in zip(cut, first)), cut
    ids = requests.post(os.environ["NEREID_URL"] + "/tokenize", json={"prompt": texts[0]}, timeout=60).json()["tokens"]
    by_ids = client.embeddings.create(model=MODEL, input=[ids, ids])
    assert [d.embedding for d in by_ids.data] == [first, first]
    adapted = client.embeddings.create(model="upper", input=texts[0])
    assert adapted.model == "upper" and adapted.data[0].embedding != first
    expect(openai.BadRequestError, "'dimensions': 257", client.embeddings.create, model=MODEL, input="x", dimensions=257)
    expect(openai.BadRequestError, "input", client.embeddings.create, model=MODEL, input=[])
    expect(openai.BadRequestError, "2049 given", client.embeddings.create, model=MODEL, input=["x"] * 2049)
    expect(openai.BadRequestError, "maximum context length", client.embeddings.create, model=MODEL,
           input=["x", "long " * 4000])
    expect(openai.NotFoundError, "nobody", client.embeddings.create, model="nobody", input="x")


def fields():
    """Fields of vLLM and TensorRT-LLM beyond OpenAI's."""
    allowed = client.completions.create(model=MODEL, prompt="Once", max_tokens=8, extra_body={
        "allowed_token_ids": [300, 301], "return_token_ids": True, "ignore_eos": True}).choices[0]
    assert len(allowed.model_extra["token_ids"]) == 8 and set(allowed.model_extra["token_ids"]) <= {300, 301}, allowed
    text = client.completions.create(model=MODEL, prompt="Once", max_tokens=8, temperature=0, extra_body={
        "return_token_ids": True}).choices[0]
    bare = client.completions.create(model=MODEL, prompt="Once", max_tokens=8, temperature=0, extra_body={
        "detokenize": False}).choices[0]
    assert bare.text == "" and bare.model_extra["token_ids"] == text.model_extra["token_ids"], (bare, text)
    shouted = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1, extra_body={
        "chat_template": "{{ messages[0].content | upper }}{{ eos_token }}", "return_token_ids": True})
    plain = requests.post(os.environ["NEREID_URL"] + "/detokenize", timeout=60, json={
        "tokens": shouted.model_extra["prompt_token_ids"]}).json()["prompt"]
    assert plain.startswith(MESSAGES[0]["content"].upper()) and len(plain) > len(MESSAGES[0]["content"]), plain
    expect(openai.BadRequestError, "chat template: line 1", client.chat.completions.create, model=MODEL,
           messages=MESSAGES, extra_body={"chat_template": "{% if %}"})
    expect(openai.BadRequestError, "'suffix'", client.completions.create, model=MODEL, prompt="a", suffix="b")


def errors():
    create, chat_create = client.completions.create, client.chat.completions.create
    e = expect(openai.BadRequestError, "max_tokens", create, model=MODEL, prompt="x", max_tokens=-1)
    assert e.param == "max_tokens" and e.status_code == 400
    expect(openai.BadRequestError, "temperature", create, model=MODEL, prompt="x", temperature=101)
    expect(openai.BadRequestError, "'n'", create, model=MODEL, prompt="x", n=0)
    expect(openai.BadRequestError, "best_of", create, model=MODEL, prompt="x", n=2, best_of=1)
    expect(openai.BadRequestError, "logprobs", create, model=MODEL, prompt="x", logprobs=30)
    expect(openai.BadRequestError, "logit_bias", create, model=MODEL, prompt="x", logit_bias={"99999999": 1})
    unnamed = {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": 7, "arguments": "{}"}}]}
    expect(openai.BadRequestError, "chat template: line", chat_create, model=MODEL, messages=[MESSAGES[0], unnamed])
    expect(openai.BadRequestError, "2048 tokens", create, model=MODEL, prompt=[5] * 3000)
    expect(openai.BadRequestError, "prompt", create, model=MODEL, prompt="")
    expect(openai.BadRequestError, "tool_choice", chat_create, model=MODEL, messages=MESSAGES, tool_choice="required")
    expect(openai.BadRequestError, "none of the tools", chat_create, model=MODEL, messages=MESSAGES,
           tools=[{"type": "function", "function": {"name": "f"}}],
           tool_choice={"type": "function", "function": {"name": "g"}})
    expect(openai.BadRequestError, "content", chat_create, model=MODEL,
           messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])
    expect(openai.NotFoundError, "gpt-4", create, model="gpt-4", prompt="x")


def main():
    assert [m.id for m in client.models.list()] == [MODEL, "upper"]
    assert client.models.retrieve(MODEL).id == MODEL
    loaded_tokenizer()
    cached()
    text = completions()
    stops(text)
    sampling()
    sequences()
    log_probs()
    prompt_log_probs()
    beams()
    penalties()
    prompt_embeds()
    chat()
    wanted_calls()
    tokens()
    closed_schema()
    returned_ids()
    adapters()
    embeddings()
    fields()
    errors()
    print("openai: completions, chat, embeddings, streams and errors as the client expects")


if __name__ == "__main__":
    main()
