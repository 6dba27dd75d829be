"""Code shared by the clients with the openai package."""
import os

import openai

client = openai.OpenAI(base_url=os.environ["NEREID_URL"] + "/v1", api_key="none", max_retries=0, timeout=120)
MODEL = "quickstart"
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]


def expect(error, text, call, **arguments):
    try:
        call(**arguments)
    except error as e:
        assert text in str(e), (text, str(e))
        return e
    raise AssertionError(f"{error.__name__} expected for {arguments}")
