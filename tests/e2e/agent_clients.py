"""Agent frameworks as their users install them: litellm, langchain-openai and instructor, plain, streamed, with tools and
with structured answers, against the server at NEREID_URL."""
import asyncio
import logging
import os
from typing import Literal

# No calls home for prices, and no usage reports.
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LANGCHAIN_TRACING_V2="false")

import instructor  # noqa: E402
import litellm  # noqa: E402
import openai  # noqa: E402
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage  # noqa: E402
from langchain_openai import ChatOpenAI, OpenAIEmbeddings  # noqa: E402
from pydantic import BaseModel  # noqa: E402

logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)  # it complains of parts that were not installed
litellm.suppress_debug_info = True
URL = os.environ["NEREID_URL"] + "/v1"
MODEL = "quickstart"
QUESTION = {"role": "user", "content": "What is the capital of France?"}
TOOL = {"type": "function", "function": {
    "name": "weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["city"],
                   "additionalProperties": False}}}


class City(BaseModel):
    name: Literal["Paris", "Rome"]
    is_capital: bool


def expected():
    client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)
    whole = client.chat.completions.create(model=MODEL, messages=[QUESTION], max_tokens=24, temperature=0)
    return whole.choices[0].message.content, whole.usage


def by_litellm(text, usage):
    common = dict(model="openai/" + MODEL, api_base=URL, api_key="none", messages=[QUESTION], max_tokens=24, temperature=0)
    whole = litellm.completion(**common)
    assert whole.choices[0].message.content == text, whole
    assert whole.usage.prompt_tokens == usage.prompt_tokens and whole.usage.completion_tokens == usage.completion_tokens, whole
    chunks = list(litellm.completion(stream=True, stream_options={"include_usage": True}, **common))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text, chunks
    assert litellm.stream_chunk_builder(chunks).choices[0].message.content == text
    assert asyncio.run(litellm.acompletion(**common)).choices[0].message.content == text
    forced = litellm.completion(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "weather"}}, **common)
    call = forced.choices[0].message.tool_calls[0].function
    assert call.name == "weather" and call.arguments.replace(" ", "") in ('{"city":"Paris"}', '{"city":"Rome"}'), forced
    found = litellm.embedding(model="openai/" + MODEL, api_base=URL, api_key="none", input=["one", "two"])
    assert [d["index"] for d in found.data] == [0, 1] and len(found.data[0]["embedding"]) == len(found.data[1]["embedding"])
    try:
        litellm.completion(**dict(common, model="openai/other"))
        raise AssertionError("another model was served")
    except litellm.NotFoundError:
        pass


def by_langchain(text, usage):
    chat = ChatOpenAI(model=MODEL, base_url=URL, api_key="none", max_tokens=24, temperature=0, max_retries=0)
    whole = chat.invoke([HumanMessage(QUESTION["content"])])
    assert whole.content == text and whole.usage_metadata["output_tokens"] == usage.completion_tokens, whole
    assert "".join(part.content for part in chat.stream([QUESTION])) == text
    assert [a.content for a in chat.batch([[QUESTION], [QUESTION]])] == [text, text]
    assert asyncio.run(chat.ainvoke([QUESTION])).content == text
    for method in ("json_schema", "function_calling"):
        longer = ChatOpenAI(model=MODEL, base_url=URL, api_key="none", max_tokens=64, temperature=0, max_retries=0)
        assert isinstance(longer.with_structured_output(City, method=method).invoke([QUESTION]), City), method
    call, = chat.bind_tools([TOOL], tool_choice="weather").invoke([QUESTION]).tool_calls
    assert call["name"] == "weather" and call["args"]["city"] in ("Paris", "Rome"), call
    after = chat.invoke([HumanMessage("Weather?"), AIMessage("", tool_calls=[call]),
                         ToolMessage("sunny", tool_call_id=call["id"])])
    assert isinstance(after.content, str), after
    # Its own tokeniser is not this model's: texts are sent as they are.
    embeddings = OpenAIEmbeddings(model=MODEL, base_url=URL, api_key="none", check_embedding_ctx_length=False)
    assert len(embeddings.embed_query("one")) == len(embeddings.embed_documents(["one", "two"])[1])


def by_instructor():
    client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0, timeout=120)
    # Mode.JSON asks for any JSON object: a model of this size does not read the schema in its prompt.
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        city = instructor.from_openai(client, mode=mode).chat.completions.create(
            model=MODEL, messages=[QUESTION], response_model=City, max_retries=0, max_tokens=64, temperature=0)
        assert isinstance(city, City), (mode, city)


def main():
    text, usage = expected()
    by_litellm(text, usage)
    by_langchain(text, usage)
    by_instructor()
    print("agents: litellm, langchain-openai and instructor get what the openai package gets")


if __name__ == "__main__":
    main()
