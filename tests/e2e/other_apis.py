"""OpenAI's responses, Anthropic's and Ollama's APIs with their own packages: whole, streamed, tools, errors."""
import json
import os

import anthropic
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

    # A conversation goes on from a kept response as if it were sent again, and nobody else's key reads it.
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
                         (anthropic.BadRequestError, {"max_tokens": -1})):
        try:
            client.messages.create(**dict(create, **wrong))
        except error as e:
            assert e.body["type"] == "error" and e.body["error"]["message"], e.body
        else:
            raise AssertionError(f"{error.__name__} expected for {wrong}")


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
    assert [m.model for m in client.list().models] == [MODEL]
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
