"""Limits and turns of API keys, by the openai package against a server of its own.  usage: key_limits.py NEREID"""
import sys
import tempfile
import threading
import time

import openai

import own_server

KEYS = """# keys of the test
* requests_per_minute=1000
many
one
slow requests_per_minute=3
short tokens_per_minute=40
narrow concurrency=1
"""


def refused(call):
    try:
        call()
    except openai.RateLimitError as error:
        return error
    raise AssertionError("it was served")


def limits(client):
    def ask(key, **more):
        return client(key).completions.create(**{"model": "quickstart", "prompt": "The sea", "max_tokens": 4, **more})

    for _ in range(3):
        ask("slow")
    error = refused(lambda: ask("slow"))
    assert 1 <= int(error.response.headers["retry-after"]) <= 20 and "3 requests a minute" in str(error), error
    ask("one")
    # A request begins while tokens are left; what it uses beyond them later ones wait for.
    ask("short", max_tokens=200, extra_body={"ignore_eos": True})
    error = refused(lambda: ask("short"))
    assert int(error.response.headers["retry-after"]) > 120 and "40 tokens a minute" in str(error), error
    stream = ask("narrow", stream=True, max_tokens=1500, extra_body={"ignore_eos": True})
    next(iter(stream))
    assert "at most 1 may at once" in str(refused(lambda: ask("narrow")))
    stream.close()
    for _ in range(600):  # until the server has seen that the client left
        try:
            return ask("narrow")
        except openai.RateLimitError:
            time.sleep(0.1)
    raise AssertionError("a request that its client left still counts")


def turns(client):
    """The only request of a key does not wait for all of another's."""
    ended, lock = [], threading.Lock()
    begun = threading.Event()

    def ask(key):
        for _ in client(key).completions.create(model="quickstart", prompt="The sea", max_tokens=300, stream=True,
                                                extra_body={"ignore_eos": True}):
            begun.set()
        with lock:
            ended.append(key)

    threads = [threading.Thread(target=ask, args=("many",)) for _ in range(12)]
    for thread in threads:
        thread.start()
    begun.wait()
    ask("one")
    for thread in threads:
        thread.join()
    assert len(ended) == 13 and ended.index("one") <= 5, ended


def main():
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as keys:
        keys.write(KEYS)
        keys.flush()
        with own_server.serving(sys.argv[1], "--api-key-file", keys.name, "--max-batch-size", "1") as url:
            def client(key):
                return openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=300)

            limits(client)
            turns(client)
    print("key limits: requests, tokens and concurrency are kept, and turns are fair")


if __name__ == "__main__":
    main()
