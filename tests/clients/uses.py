"""Typical uses of a client package: a chat, a stream, tools, a structured answer, embeddings; against the server at
NEREID_URL.  usage: uses.py PACKAGE, or uses.py --extra PACKAGE for what has to be installed beside it."""
import asyncio
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from typing import Literal

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", OPENAI_AGENTS_DISABLE_TRACING="1", HAYSTACK_TELEMETRY_ENABLED="False")
URL = os.environ.get("NEREID_URL", "")
MODEL = "quickstart"
QUESTION = "What is the capital of France?"
USER = [{"role": "user", "content": QUESTION}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["city"],
          "additionalProperties": False}
FUNCTION = {"name": "weather", "description": "Weather of a city", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
EXTRA = {"outlines": "openai", "guidance": "openai", "dspy": "numpy", "aider-chat": "setuptools", "pydantic-ai-slim": "openai",
         "llama-index-llms-openai-like": "llama-index-embeddings-openai-like"}


def city_model():
    from pydantic import BaseModel

    class City(BaseModel):
        city: Literal["Paris", "Rome"]
    return City


def weather(city: Literal["Paris", "Rome"]) -> str:
    """Weather of a city"""
    return f"{city} is sunny"


def is_text(value):
    value = value if isinstance(value, str) else "".join(value)
    assert "Paris" in value, value


def is_city(value):
    value = json.loads(value) if isinstance(value, str) else value
    value = value if isinstance(value, dict) else value.model_dump()
    assert value["city"] in ("Paris", "Rome"), value


def is_call(name, arguments):
    assert name == "weather", name
    is_city(arguments)


def is_vector(value):
    assert len(value) > 1 and abs(sum(x * x for x in value) - 1) < 1e-3, value


def use_openai():
    import openai
    client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
    create = client.chat.completions.create
    common = dict(model=MODEL, messages=USER, max_tokens=60, temperature=0)
    forced = dict(common, tools=[TOOL], tool_choice="required", parallel_tool_calls=False)
    answer = dict(model=MODEL, input=QUESTION, max_output_tokens=60, temperature=0)

    def call():
        call = create(**forced).choices[0].message.tool_calls[0].function
        is_call(call.name, call.arguments)

    def streamed_call():
        with client.chat.completions.stream(**forced) as s:
            call = s.get_final_completion().choices[0].message.tool_calls[0].function
        is_call(call.name, call.arguments)

    def result():
        message = create(**forced).choices[0].message
        told = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
        assert create(**dict(common, messages=[*USER, message, told])).choices[0].message.content

    def streamed_response():
        with client.responses.stream(**answer) as s:
            return is_text(s.get_final_response().output_text)

    def response_call():
        call = client.responses.create(tools=[{"type": "function", **FUNCTION}], tool_choice="required", **answer).output[-1]
        is_call(call.name, call.arguments)
    yield "chat", lambda: is_text(create(**common).choices[0].message.content)
    yield "stream", lambda: is_text(c.choices[0].delta.content or "" for c in create(stream=True, **common) if c.choices)
    yield "tools", call
    yield "streamed tools", streamed_call
    yield "result of a tool", result
    yield "structured", lambda: is_city(
        client.chat.completions.parse(response_format=city_model(), **common).choices[0].message.parsed)
    yield "embeddings", lambda: is_vector(client.embeddings.create(model=MODEL, input="hi").data[0].embedding)
    yield "completion", lambda: client.completions.create(model=MODEL, prompt="Paris is", max_tokens=9).choices[0].text
    yield "models", lambda: client.models.retrieve(client.models.list().data[0].id)
    yield "response", lambda: is_text(client.responses.create(**answer).output_text)
    yield "streamed response", streamed_response
    yield "response's tools", response_call
    yield "structured response", lambda: is_city(client.responses.parse(text_format=city_model(), **answer).output_parsed)
    yield "count", lambda: client.responses.input_tokens.count(model=MODEL, input=QUESTION).input_tokens


def use_anthropic():
    import anthropic
    client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
    common = dict(model=MODEL, messages=USER, max_tokens=60)
    forced = dict(common, tools=[{"name": "weather", "input_schema": SCHEMA}], tool_choice={"type": "any", "disable_parallel_tool_use": True})

    def stream(**request):
        with client.messages.stream(**request) as s:
            return s.get_final_message().content[0]

    def call(block):
        is_call(block.name, block.input)
        return block

    def result():
        block = call(client.messages.create(**forced).content[0])
        told = {"type": "tool_result", "tool_use_id": block.id, "content": "sunny"}
        messages = [*USER, {"role": "assistant", "content": [block]}, {"role": "user", "content": [told]}]
        assert client.messages.create(**dict(common, messages=messages)).content
    yield "chat", lambda: is_text(client.messages.create(**common).content[0].text)
    yield "stream", lambda: is_text(stream(**dict(common, max_tokens=32000)).text)
    yield "tools", lambda: call(client.messages.create(**forced).content[0])
    yield "streamed tools", lambda: call(stream(**forced))
    yield "result of a tool", result
    yield "structured", lambda: is_city(client.messages.parse(output_format=city_model(), **common).parsed_output)
    yield "models", lambda: client.models.list().data[0].id
    yield "count", lambda: client.messages.count_tokens(model=MODEL, messages=USER).input_tokens


def use_ollama():
    import ollama
    client = ollama.Client(host=URL)
    common = dict(model=MODEL, options={"num_predict": 60, "temperature": 0})

    def result():
        call = {"function": {"name": "weather", "arguments": {"city": "Paris"}}}
        messages = [*USER, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_name": "weather", "content": "sunny"}]
        assert client.chat(messages=messages, tools=[weather], **common).message.content
    yield "chat", lambda: is_text(client.chat(messages=USER, **common).message.content)
    yield "stream", lambda: is_text(p.message.content for p in client.chat(stream=True, messages=USER, **common))
    yield "tools", lambda: client.chat(tools=[weather], messages=USER, **common).message
    yield "result of a tool", result
    yield "structured", lambda: is_city(client.chat(format=SCHEMA, messages=USER, **common).message.content)
    yield "embeddings", lambda: is_vector(client.embed(model=MODEL, input="hi").embeddings[0])
    yield "generate", lambda: is_text(client.generate(prompt=QUESTION, **common).response)
    yield "models", lambda: (client.list().models[0].model, client.ps(), client.show(MODEL).modelinfo)


def use_litellm():
    import litellm
    for prefix, base in (("openai/", URL + "/v1"), ("hosted_vllm/", URL + "/v1"), ("anthropic/", URL), ("ollama_chat/", URL)):
        common = dict(model=prefix + MODEL, api_base=base, api_key="none", messages=USER, max_tokens=60, temperature=0)

        def call(c=common):
            choice = {} if c["model"].startswith("ollama") else {"tool_choice": "required", "parallel_tool_calls": False}
            message = litellm.completion(tools=[TOOL], **choice, **c).choices[0].message
            for call in message.tool_calls or [] if not choice else message.tool_calls:
                is_call(call.function.name, call.function.arguments)
        yield prefix + " chat", lambda c=common: is_text(litellm.completion(**c).choices[0].message.content)
        yield prefix + " stream", lambda c=common: is_text(
            x.choices[0].delta.content or "" for x in litellm.completion(stream=True, **c))
        yield prefix + " tools", call
        yield prefix + " structured", lambda c=common: is_city(
            litellm.completion(response_format=city_model(), **c).choices[0].message.content)
    for prefix, base in (("openai/", URL + "/v1"), ("ollama/", URL)):
        yield prefix + " embeddings", lambda p=prefix, b=base: is_vector(
            litellm.embedding(model=p + MODEL, api_base=b, api_key="none", input=["hi"]).data[0]["embedding"])


def of_langchain(chat, choice):
    from langchain_core.messages import HumanMessage, ToolMessage
    question = [HumanMessage(QUESTION)]

    def call():
        answer = chat.bind_tools([TOOL], **choice).invoke(question)
        for call in answer.tool_calls:
            is_call(call["name"], call["args"])
        assert answer.tool_calls or not choice
        told = [ToolMessage("sunny", tool_call_id=call["id"]) for call in answer.tool_calls]
        assert not told or chat.bind_tools([TOOL]).invoke([*question, answer, *told])
    yield "chat", lambda: is_text(chat.invoke(question).text)
    yield "stream", lambda: is_text(x.text for x in chat.stream(question))
    yield "tools", call
    yield "structured", lambda: is_city(chat.with_structured_output(city_model(), method="json_schema").invoke(question))


def use_langchain_openai():
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings
    common = dict(model=MODEL, base_url=URL + "/v1", api_key="none", max_retries=0)
    yield from of_langchain(ChatOpenAI(max_tokens=60, temperature=0, **common), {"tool_choice": "required"})
    for use, run in of_langchain(ChatOpenAI(max_tokens=60, temperature=0, use_responses_api=True, **common), {"tool_choice": "required"}):
        yield "responses " + use, run
    yield "embeddings", lambda: is_vector(OpenAIEmbeddings(check_embedding_ctx_length=False, **common).embed_query("hi"))


def use_langchain_anthropic():
    from langchain_anthropic import ChatAnthropic
    chat = ChatAnthropic(model=MODEL, base_url=URL, api_key="none", max_tokens=60, temperature=0, max_retries=0)
    return of_langchain(chat, {"tool_choice": "any"})


def use_langchain_ollama():
    from langchain_ollama import ChatOllama, OllamaEmbeddings
    yield from of_langchain(ChatOllama(model=MODEL, base_url=URL, num_predict=60, temperature=0, validate_model_on_init=True), {})
    yield "embeddings", lambda: is_vector(OllamaEmbeddings(model=MODEL, base_url=URL).embed_query("hi"))


def use_instructor():
    import instructor
    import openai
    client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
    for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
        common = dict(model=MODEL, messages=USER, response_model=city_model(), max_tokens=60, max_retries=0)
        yield mode.value, lambda m=mode, c=common: is_city(instructor.from_openai(client, mode=m).chat.completions.create(**c))
        yield "streamed " + mode.value, lambda m=mode, c=common: is_city(
            [*instructor.from_openai(client, mode=m).chat.completions.create_partial(**c)][-1])


def use_pydantic_ai_slim():
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider
    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=URL + "/v1", api_key="none"))
    few = {"max_tokens": 60, "temperature": 0, "parallel_tool_calls": False}

    async def stream():
        async with Agent(model).run_stream(QUESTION, model_settings=few) as s:
            return is_text([x async for x in s.stream_text()][-1])
    yield "chat", lambda: is_text(Agent(model).run_sync(QUESTION, model_settings=few).output)
    yield "stream", lambda: asyncio.run(stream())
    yield "tools", lambda: is_city(Agent(model, output_type=city_model()).run_sync(QUESTION, model_settings=few).output)
    yield "structured", lambda: is_city(
        Agent(model, output_type=NativeOutput(city_model())).run_sync(QUESTION, model_settings=few).output)


def use_openai_agents():
    import openai
    from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
    for name, kind in (("chats", OpenAIChatCompletionsModel), ("responses", OpenAIResponsesModel)):
        def agent(k=kind, choice=None, **more):
            client = openai.AsyncOpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
            few = ModelSettings(max_tokens=60, temperature=0, tool_choice=choice, parallel_tool_calls=False if choice else None)
            return Agent(name="a", model=k(model=MODEL, openai_client=client), model_settings=few, **more)

        def call(make=agent):
            run = Runner.run_sync(make(choice="required", tools=[function_tool(weather)]), QUESTION, max_turns=3)
            assert any(x.type == "tool_call_output_item" for x in run.new_items), run.new_items

        async def stream(make=agent):
            run = Runner.run_streamed(make(), QUESTION)
            assert [x async for x in run.stream_events()]
            is_text(run.final_output)
        yield f"{name} chat", lambda make=agent: is_text(Runner.run_sync(make(), QUESTION).final_output)
        yield f"{name} stream", lambda s=stream: asyncio.run(s())
        yield f"{name} tools", call
        yield f"{name} structured", lambda make=agent: is_city(Runner.run_sync(make(output_type=city_model()), QUESTION).final_output)


def of_llama_index(llm, choice):
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    question = [ChatMessage(role="user", content=QUESTION)]

    def call():
        tools = [FunctionTool.from_defaults(weather)]
        answer = llm.chat_with_tools(tools, chat_history=question, **choice)
        calls = llm.get_tool_calls_from_response(answer, error_on_no_tool_call=bool(choice))
        assert all(call.tool_name == "weather" for call in calls), calls
    yield "chat", lambda: is_text(llm.chat(question).message.content)
    yield "stream", lambda: is_text(x.delta or "" for x in llm.stream_chat(question))
    yield "tools", call
    yield "structured", lambda: is_city(llm.as_structured_llm(city_model()).chat(question).raw)


def use_llama_index_llms_openai_like():
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike
    llm = OpenAILike(model=MODEL, api_base=URL + "/v1", api_key="none", is_chat_model=True, is_function_calling_model=True,
                     max_tokens=60, temperature=0, max_retries=0)
    yield from of_llama_index(llm, {"tool_required": True})
    embedding = OpenAILikeEmbedding(model_name=MODEL, api_base=URL + "/v1", api_key="none")
    yield "embeddings", lambda: is_vector(embedding.get_text_embedding("hi"))


def use_llama_index_llms_ollama():
    from llama_index.llms.ollama import Ollama
    return of_llama_index(Ollama(model=MODEL, base_url=URL, temperature=0, additional_kwargs={"num_predict": 60}), {})


def use_haystack_ai():
    from haystack.components.embedders import OpenAITextEmbedder
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.tools import Tool
    from haystack.utils import Secret
    question = [ChatMessage.from_user(QUESTION)]
    common = dict(api_key=Secret.from_token("none"), model=MODEL, api_base_url=URL + "/v1", max_retries=0)

    def generator(**more):
        return OpenAIChatGenerator(generation_kwargs={"max_tokens": 60, "temperature": 0, **more}, **common)

    def call():
        tool = Tool(name="weather", description="Weather of a city", parameters=SCHEMA, function=weather)
        call = generator(tool_choice="required").run(question, tools=[tool])["replies"][0].tool_calls[0]
        is_call(call.tool_name, call.arguments)
    yield "chat", lambda: is_text(generator().run(question)["replies"][0].text)
    yield "stream", lambda: is_text(generator().run(question, streaming_callback=lambda c: None)["replies"][0].text)
    yield "tools", call
    yield "structured", lambda: is_city(generator(response_format=city_model()).run(question)["replies"][0].text)
    yield "embeddings", lambda: is_vector(OpenAITextEmbedder(**common).run("hi")["embedding"])


def use_outlines():
    import openai
    import outlines
    model = outlines.from_openai(openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0), MODEL)
    few = {"max_tokens": 60, "temperature": 0}
    yield "chat", lambda: is_text(model(QUESTION, **few))
    yield "stream", lambda: is_text(x for x in model.stream(QUESTION, **few))
    yield "structured", lambda: is_city(model(QUESTION, city_model(), **few))


def use_guidance():
    import guidance
    model = guidance.models.OpenAI(MODEL, base_url=URL + "/v1", api_key="none", echo=False)

    def ask(form):
        with guidance.user():
            asked = model + QUESTION
        with guidance.assistant():
            return (asked + form)["answer"]
    yield "chat", lambda: is_text(ask(guidance.gen("answer", max_tokens=60)))
    yield "structured", lambda: is_city(ask(guidance.json("answer", schema=city_model(), max_tokens=60)))


def use_dspy():
    import dspy

    class Model(dspy.LM):
        # dspy asks litellm's catalogue, which has no such model, and else sends no response_format.
        supported_params = frozenset({"response_format"})
        supports_response_schema = True
    lm = Model("openai/" + MODEL, api_base=URL + "/v1", api_key="none", max_tokens=60, temperature=0, cache=False)
    embedder = dspy.Embedder("openai/" + MODEL, api_base=URL + "/v1", api_key="none", caching=False)
    yield "chat", lambda: is_text(lm(QUESTION)[0])
    yield "embeddings", lambda: is_vector(embedder("hi"))

    def structured():
        ask = dspy.Predict(dspy.Signature({"question": (str, dspy.InputField()), "answer": (city_model(), dspy.OutputField())}))
        with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
            is_city(ask(question=QUESTION).answer)
    yield "structured", structured


def use_aider_chat():
    def run(model, **env):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [os.path.join(os.path.dirname(sys.executable), "aider"), "--model", model, "--no-git", "--yes-always", "--no-check-update",
                 "--no-show-model-warnings", "--analytics-disable", "--edit-format", "ask", "--message", QUESTION], cwd=folder,
                env={**os.environ, **env}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and "Tokens:" in done.stdout, done.stdout[-300:]
        is_text(done.stdout)
    yield "openai/", lambda: run("openai/" + MODEL, OPENAI_API_BASE=URL + "/v1", OPENAI_API_KEY="none")
    yield "ollama_chat/", lambda: run("ollama_chat/" + MODEL, OLLAMA_API_BASE=URL)


def use_llm():
    import llm
    from llm.default_plugins.openai_models import Chat
    model = Chat(MODEL, api_base=URL + "/v1", supports_schema=True, supports_tools=True)
    model.key = "none"
    few = {"max_tokens": 60, "temperature": 0}
    yield "chat", lambda: is_text(model.prompt(QUESTION, stream=False, **few).text())
    yield "stream", lambda: is_text(x for x in model.prompt(QUESTION, stream=True, **few))
    yield "tools", lambda: model.prompt(QUESTION, tools=[llm.Tool.function(weather)], stream=False, **few).text()
    yield "structured", lambda: is_city(model.prompt(QUESTION, schema=SCHEMA, stream=False, **few).text())


def main():
    package = sys.argv[-1]
    if sys.argv[1] == "--extra":
        return print(EXTRA.get(package, ""))
    version = importlib.metadata.version(package)
    good, failed = [], []
    try:
        for use, run in globals()["use_" + package.replace("-", "_")]():
            try:
                run()
                good.append(use)
            except Exception as e:
                failed.append(f"{use}: " + " ".join(f"{type(e).__name__}: {e}".split()).replace("|", "/")[:300])
    except Exception as e:
        failed.append(" ".join(f"{type(e).__name__}: {e}".split())[:300])
    print(f"| {package} | {version} | {', '.join(good)} | {'good' if not failed else 'FAILED: ' + '; '.join(failed)} |", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
