"""Reasoning in front of answers that are held to a form, by the openai package against a server of its own.
usage: reasoning.py NEREID"""
import json
import re
import sys

import openai

import own_server

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["n"],
          "additionalProperties": False}
CALL = {"type": "function", "function": {"name": "count", "parameters": SCHEMA}}


def ask(client, budget, **more):
    extra = {} if budget is None else {"thinking_token_budget": budget}
    return client.chat.completions.create(model="quickstart", messages=[{"role": "user", "content": "How many?"}],
                                          max_tokens=120, temperature=0, extra_body=extra, **more)


def check(client):
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    for budget in (0, 1, 9):
        answer = ask(client, budget, response_format=form)
        message, usage = answer.choices[0].message, answer.usage
        assert set(json.loads(message.content)) == {"n"}, message
        reasoning = message.model_extra["reasoning_content"] or ""
        assert (reasoning == "") == (budget == 0) and "</think>" not in reasoning, message
        counted = usage.completion_tokens_details.reasoning_tokens
        assert counted <= budget + 1, usage  # spelled again without its neighbours
        parts = [chunk.choices[0].delta for chunk in ask(client, budget, response_format=form, stream=True)]
        assert "".join(part.content or "" for part in parts) == message.content
        assert "".join((part.model_extra or {}).get("reasoning_content", "") for part in parts) == reasoning
    answer = ask(client, 5)
    assert answer.choices[0].message.model_extra["reasoning_content"], answer
    call = ask(client, 5, tools=[CALL], tool_choice="required").choices[0]
    assert call.finish_reason == "tool_calls" and call.message.model_extra["reasoning_content"], call
    assert set(json.loads(call.message.tool_calls[0].function.arguments)) == {"n"}, call
    held = client.chat.completions.create(
        model="quickstart", messages=[{"role": "user", "content": "How many?"}], max_tokens=120, temperature=0,
        extra_body={"thinking_token_budget": 3, "guided_regex": "(one|two) of [a-f]{2,4}"})
    assert re.fullmatch("(one|two) of [a-f]{2,4}", held.choices[0].message.content), held
    for budget in (-1, 1.5, "many"):
        try:
            ask(client, budget)
        except openai.BadRequestError as error:
            assert error.param == "thinking_token_budget", error
        else:
            raise AssertionError("taken: %r" % budget)


def check_harmony(client):
    """The form holds the message of the final channel."""
    template = "{{ messages[0].content }}<|start|>assistant<|channel|>analysis<|message|>"
    arguments = dict(model="quickstart", messages=[{"role": "user", "content": "How many?"}], max_tokens=120, temperature=0,
                     extra_body={"thinking_token_budget": 5, "chat_template": template})
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    message = client.chat.completions.create(response_format=form, **arguments).choices[0].message
    assert set(json.loads(message.content)) == {"n"}, message
    assert message.model_extra["reasoning_content"] and "<|" not in message.model_extra["reasoning_content"], message
    call = client.chat.completions.create(tools=[CALL], tool_choice="required", **arguments).choices[0]
    assert call.finish_reason == "tool_calls" and call.message.model_extra["reasoning_content"], call
    assert set(json.loads(call.message.tool_calls[0].function.arguments)) == {"n"}, call


def main():
    with own_server.serving(sys.argv[1], "--reasoning-parser", "deepseek_r1") as url:
        check(openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=300))
    with own_server.serving(sys.argv[1], "--reasoning-parser", "gpt_oss", "--trust-request-chat-template") as url:
        check_harmony(openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=300))
    print("reasoning: closed at its limit, and what follows it is of the form that was asked for")


if __name__ == "__main__":
    main()
