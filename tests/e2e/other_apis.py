"""Anthropic's and Ollama's APIs with their own packages: whole, streamed, tools, errors."""
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


def messages(text, usage):
    client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, timeout=120)
    create = dict(model=MODEL, max_tokens=24, messages=[QUESTION], extra_body={"temperature": 0})
    whole = client.messages.create(**create)
    assert [b.text for b in whole.content] == [text], whole
    assert whole.usage.input_tokens == usage.prompt_tokens and whole.usage.output_tokens == usage.completion_tokens, whole
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
    messages(text, usage)
    ollama_api(text, usage)
    print("anthropic and ollama: answers, streams, tools and errors as their clients expect")


if __name__ == "__main__":
    main()
