"""OpenAI's responses, Anthropic's and Ollama's APIs with their own packages: whole, streamed, tools, errors."""
import json
import os

import anthropic
import httpx
import ollama
import openai

URL = os.environ["NEREID_URL"]
MODEL = "quickstart"
QUESTION = {"role": "user", "content": "What is the capital of France?"}


def expected():
    client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0, timeout=120)
    whole = client.chat.completions.create(model=MODEL, messages=[QUESTION], max_tokens=24, temperature=0)
    return whole.choices[0].message.content, whole.usage


def responses(text, usage):
    client = openai.OpenAI(base_url=URL + "/v1", api_key="one", max_retries=0, timeout=120)
    create = dict(model=MODEL, input=QUESTION["content"], max_output_tokens=24, temperature=0)
    whole = client.responses.create(metadata={"k": "v"}, **create)
    assert whole.output_text == text and whole.metadata == {"k": "v"} and whole.model == MODEL, whole
    assert whole.usage.input_tokens == usage.prompt_tokens and whole.usage.output_tokens == usage.completion_tokens, whole
    events = list(client.responses.create(stream=True, **create))
    assert [e.sequence_number for e in events] == list(range(len(events))), events
    assert [e.type for e in events[:4]] == ["response.created", "response.in_progress", "response.output_item.added",
                                            "response.content_part.added"], events
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == text
    last = events[-1].response
    assert events[-1].type == "response." + whole.status and last.output_text == text, last
    assert last.usage.total_tokens == whole.usage.total_tokens and last.usage.output_tokens == whole.usage.output_tokens, last
    with client.responses.stream(**create) as stream:
        stream.until_done()
        assert stream.get_final_response().output_text == text

    # A conversation goes on from a kept response as if it were sent again, and no other key can read it.
    assert client.responses.retrieve(whole.id) == whole
    again = dict(create, input="And of Spain?")
    chat = client.chat.completions.create(model=MODEL, max_tokens=24, temperature=0, messages=[
        QUESTION, {"role": "assistant", "content": text}, {"role": "user", "content": "And of Spain?"}])
    on = client.responses.create(previous_response_id=whole.id, **again)
    assert on.output_text == chat.choices[0].message.content and on.usage.input_tokens == chat.usage.prompt_tokens, on
    spelled = [QUESTION, *whole.output, {"role": "user", "content": "And of Spain?"}]
    assert client.responses.create(**dict(create, input=spelled)).output_text == on.output_text
    items = client.responses.input_items.list(on.id, order="asc").data
    assert [i.role for i in items] == ["user", "assistant", "user"], items
    assert items[1].id == whole.output[0].id and items[2].content[0].text == "And of Spain?", items
    other = client.with_options(api_key="two")
    unkept = client.responses.create(store=False, **create)
    for call in (lambda: other.responses.retrieve(whole.id), lambda: client.responses.retrieve(unkept.id),
                 lambda: other.responses.create(previous_response_id=whole.id, **again),
                 lambda: other.responses.delete(whole.id)):
        must_fail(openai.NotFoundError, call)
    client.responses.delete(whole.id)
    must_fail(openai.NotFoundError, lambda: client.responses.retrieve(whole.id))

    schema = {"type": "object", "properties": {"word": {"enum": ["yes", "no"]}}, "required": ["word"],
              "additionalProperties": False}
    tool = {"type": "function", "name": "say", "parameters": schema}
    wanted = dict(create, max_output_tokens=200, tools=[tool], tool_choice="required", parallel_tool_calls=False)
    call = client.responses.create(**wanted).output[0]
    assert call.type == "function_call" and json.loads(call.arguments)["word"] in ("yes", "no"), call
    events = list(client.responses.create(stream=True, **wanted))
    done = [e for e in events if e.type == "response.function_call_arguments.done"]
    assert [e.arguments for e in done] == [call.arguments], events
    assert "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta") == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "done"}
    client.responses.create(**dict(create, input=[QUESTION, call, result]))
    named = client.responses.create(**dict(wanted, tool_choice={"type": "function", "name": "say"})).output
    assert [o.name for o in named if o.type == "function_call"] == ["say"], named
    shaped = client.responses.create(text={"format": {"type": "json_schema", "name": "s", "schema": schema}},
                                     **dict(create, max_output_tokens=200))
    assert json.loads(shaped.output_text)["word"] in ("yes", "no"), shaped
    scored = client.responses.create(include=["message.output_text.logprobs"], top_logprobs=2, **create)
    scores = scored.output[0].content[0].logprobs
    assert "".join(s.token for s in scores).startswith(text) and len(scores[0].top_logprobs) == 2, scores
    cut = client.responses.create(**dict(create, max_output_tokens=1))
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens", cut
    counted = httpx.post(URL + "/v1/responses/input_tokens", json={"input": QUESTION["content"]}).json()
    assert counted == {"object": "response.input_tokens", "input_tokens": usage.prompt_tokens}, counted
    turns = [{"role": role, "content": "word " * 9} for _ in range(200) for role in ("user", "assistant")]
    long = dict(create, input=[*turns, QUESTION])
    must_fail(openai.BadRequestError, lambda: client.responses.create(**long))
    cut = client.responses.create(truncation="auto", **long)
    assert cut.truncation == "auto" and 1000 < cut.usage.input_tokens < 2048, cut
    both = dict(wanted, text={"format": {"type": "json_schema", "name": "s", "schema": schema}})
    assert client.responses.create(**both).output[0].type == "function_call"
    for param, wrong in (("tools[0]", {"tools": [{"type": "web_search_preview"}]}), ("background", {"background": True}),
                         ("input", {"max_output_tokens": 10**6}), ("input", {"input": "word " * 9000})):
        error = must_fail(openai.BadRequestError, lambda: client.responses.create(**dict(create, **wrong)))
        assert error.param == param, (param, error.body)
    raw = client.responses.with_raw_response.create(extra_body={"brand_new": 1}, **create)
    assert "brand_new" in raw.headers["warning"], raw.headers


def must_fail(error, call):
    try:
        call()
    except error as e:
        return e
    raise AssertionError(f"{error.__name__} expected")


def messages(text, usage):
    client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, timeout=120)
    create = dict(model=MODEL, max_tokens=24, messages=[QUESTION], extra_body={"temperature": 0})
    whole = client.messages.create(**create)
    assert [b.text for b in whole.content] == [text], whole
    used = whole.usage
    assert used.input_tokens + used.cache_read_input_tokens == usage.prompt_tokens, whole
    assert used.output_tokens == usage.completion_tokens, whole
    long = dict(create, system="Answer in one short sentence, please. " * 8)
    first, again = client.messages.create(**long).usage, client.messages.create(**long).usage
    assert again.cache_read_input_tokens > 0 and again.cache_creation_input_tokens == 0, again
    assert first.input_tokens + first.cache_read_input_tokens == again.input_tokens + again.cache_read_input_tokens
    with client.messages.stream(**long) as stream:
        assert stream.get_final_message().usage.cache_read_input_tokens == again.cache_read_input_tokens
    assert whole.stop_reason in ("end_turn", "max_tokens") and whole.model == MODEL, whole
    with client.messages.stream(**create) as stream:
        assert "".join(stream.text_stream) == text
        last = stream.get_final_message()
    assert last.stop_reason == whole.stop_reason and last.usage == whole.usage, (last, whole)

    tools = [{"name": "say", "input_schema": {"type": "object", "properties": {"word": {"enum": ["yes", "no"]}},
                                              "required": ["word"], "additionalProperties": False}}]
    wanted = dict(create, max_tokens=200, tools=tools, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    call = client.messages.create(**wanted)
    assert call.stop_reason == "tool_use" and call.content[0].input["word"] in ("yes", "no"), call
    with client.messages.stream(**wanted) as stream:
        streamed = stream.get_final_message()
    assert streamed.content[0].input == call.content[0].input and streamed.stop_reason == "tool_use", streamed
    result = {"type": "tool_result", "tool_use_id": call.content[0].id, "content": "done"}
    client.messages.create(**dict(create, system="Answer.", messages=[
        QUESTION, {"role": "assistant", "content": [b.model_dump() for b in call.content]},
        {"role": "user", "content": [result]}]))
    for error, wrong in ((anthropic.NotFoundError, {"model": "claude"}),
                         (anthropic.BadRequestError, {"messages": []}),
                         (anthropic.BadRequestError, {"messages": [dict(QUESTION, content=[])]}),
                         (anthropic.BadRequestError, {"messages": [dict(QUESTION, content=[{"type": "text", "text": ""}])]}),
                         (anthropic.BadRequestError, {"messages": [QUESTION, {"role": "assistant", "content": [
                             {"type": "thinking", "thinking": "hm", "signature": ""}]}]}),
                         (anthropic.BadRequestError, {"max_tokens": -1})):
        try:
            client.messages.create(**dict(create, **wrong))
        except error as e:
            assert e.body["type"] == "error" and e.body["error"]["message"], e.body
        else:
            raise AssertionError(f"{error.__name__} expected for {wrong}")
    # Requests of agents: counts, reminders of the system among the messages, more tokens than there are, forms, thoughts.
    assert client.messages.count_tokens(model=MODEL, messages=[QUESTION]).input_tokens == usage.prompt_tokens
    late = client.messages.create(**dict(create, messages=[
        QUESTION, {"role": "assistant", "content": text}, QUESTION, {"role": "system", "content": "Be brief."}]))
    assert late.content, late
    assert client.messages.create(**dict(create, max_tokens=32000)).stop_reason in ("end_turn", "model_context_window_exceeded")
    schema = tools[0]["input_schema"]
    form = {"type": "json_schema", "schema": schema}
    for more in ({"output_config": {"format": form, "effort": "low"}}, {"output_format": form}):
        shaped = client.messages.create(**dict(create, max_tokens=200, extra_body={"temperature": 0, **more}))
        assert json.loads(shaped.content[0].text)["word"] in ("yes", "no"), shaped
    adaptive = client.messages.create(**dict(create, extra_body={"temperature": 0, "thinking": {"type": "adaptive"}}))
    assert adaptive.content, adaptive
    raw = client.messages.with_raw_response.create(**dict(create, extra_body={"temprature": 0}))
    assert "temprature" in raw.headers["warning"], raw.headers
    for name, wrong in (("web_search", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
                        ("mcp_servers", {"mcp_servers": [{"type": "url"}]}), ("container", {"container": "c"}),
                        ("source", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
                        ("picture", {"messages": [{"role": "user", "content": [{"type": "image", "source": {
                            "type": "base64", "media_type": "image/png", "data": "QUJD"}}]}]})):
        error = must_fail(anthropic.BadRequestError, lambda: client.messages.create(
            **{**create, **wrong} if "messages" in wrong else dict(create, extra_body=wrong)))
        assert name in error.body["error"]["message"], error.body
    empty_last = dict(create, messages=[QUESTION, {"role": "assistant", "content": []}])
    assert [b.text for b in client.messages.create(**empty_last).content] == [text]


def ollama_api(text, usage):
    client = ollama.Client(host=URL, timeout=120)
    options = {"temperature": 0, "num_predict": 24}
    whole = client.chat(model=MODEL, messages=[QUESTION], options=options)
    assert whole.message.content == text and whole.done, whole
    assert whole.prompt_eval_count == usage.prompt_tokens and whole.eval_count == usage.completion_tokens, whole
    parts = list(client.chat(model=MODEL, messages=[QUESTION], options=options, stream=True))
    assert "".join(p.message.content for p in parts) == text and [p.done for p in parts].count(True) == 1, parts
    assert parts[-1].done and parts[-1].eval_count == usage.completion_tokens, parts[-1]
    assert client.generate(model=MODEL, prompt=QUESTION["content"], options=options).response == text
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]}
    shaped = client.generate(model=MODEL, prompt="A number.", format=schema, options={"temperature": 0, "num_predict": 100})
    assert shaped.response.startswith("{"), shaped
    for models in (client.list().models, client.ps().models):
        assert models[0].model == MODEL and len(models[0].digest) == 64 and "upper" in [m.model for m in models], models
    shown = client.show(MODEL + ":latest")
    assert shown.modelinfo[shown.modelinfo["general.architecture"] + ".context_length"] == 2048, shown
    assert shown.details.parameter_size and "completion" in shown.capabilities, shown
    for answer in (whole, parts[-1]):
        assert min(answer.total_duration, answer.load_duration, answer.prompt_eval_duration, answer.eval_duration) > 0, answer
    assert client.chat(model=MODEL, messages=[]).done_reason == "load"
    assert client.generate(model=MODEL, keep_alive=0).done_reason == "unload"
    no_images = [dict(QUESTION, images=[])]
    assert client.chat(model=MODEL, messages=no_images, options={**options, "num_predict": -2, "num_ctx": 8192}).done
    raw = client.generate(model=MODEL, prompt="The capital of France is", raw=True, options=options)
    assert raw.response and raw.prompt_eval_count < whole.prompt_eval_count, raw
    scored = client.generate(model=MODEL, prompt=QUESTION["content"], logprobs=True, top_logprobs=2, options=options)
    assert len(scored.logprobs) == scored.eval_count or scored.response.startswith(scored.logprobs[0].token), scored
    both = client.embed(model=MODEL, input=["one", "two"])
    assert len(both.embeddings) == 2 and abs(sum(x * x for x in both.embeddings[0]) - 1) < 1e-3, both
    assert len(client.embeddings(model=MODEL, prompt="one").embedding) == len(both.embeddings[0])
    for wrong in ({"think": "much"}, {"format": "xml"}, {"options": {"mirostat": 2}}, {"images": ["eA=="]}):
        assert must_fail(ollama.ResponseError, lambda: client._request_raw(
            "POST", "/api/generate", json={"model": MODEL, "prompt": "x", **wrong})).status_code == 400, wrong
    try:
        client.chat(model="llama9", messages=[QUESTION])
    except ollama.ResponseError as e:
        assert e.status_code == 404 and "llama9" in e.error, e
    else:
        raise AssertionError("an unknown model must be an error")


def main():
    text, usage = expected()
    responses(text, usage)
    messages(text, usage)
    ollama_api(text, usage)
    print("responses, anthropic and ollama: answers, streams, tools and errors as their clients expect")


if __name__ == "__main__":
    main()
