"""Limits and turns of API keys, by the openai package against servers of its own, on every route of the table in
docs/security.md.  usage: key_limits.py NEREID"""
import http.client
import json
import os
import re
import shutil
import sys
import tempfile
import threading
import time

import openai

import own_server

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))

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
    assert "its limit is 1 at once" in str(refused(lambda: ask("narrow")))
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


def table():
    """(method, path, api, who, what it takes, errors) of each route."""
    with open(os.path.join(ROOT, "docs", "security.md"), encoding="utf-8") as page:
        rows = re.findall(r"^\| `([A-Z]+) (/\S*)` \| (\S+) \| (\S+) \| (.*?) ?\| (\S+) \|$", page.read(), re.M)
    assert len(rows) > 50, len(rows)
    values = {"{m}": "tensorrt_llm", "{v:digits}": "1", "{id*}": "quickstart", "{id}": "resp_x", "{repo}": "x", "{r}": "x"}
    for method, pattern, *rest in rows:
        yield method, re.sub(r"{.*?}", lambda match: values[match[0]], pattern), *rest


BODIES = {"score": {"text_1": "a", "text_2": "b"}, "rerank": {"query": "a", "documents": ["b"]}, "tokenize": {"prompt": "a"},
          "detokenize": {"tokens": [5]}, "completions": {"prompt": "a", "max_tokens": 1}}


def every_route(nereid):
    """Restrictions, keys and limits hold on each of them, in the shape of errors that its clients read."""
    routes = list(table())

    def shape_of(body):
        parsed = json.loads(body)
        if isinstance(parsed["error"], str):
            return {"KServe", "Ollama"}
        return {"Anthropic"} if parsed.get("type") == "error" else {"OpenAI"}

    def asking(url):
        address = url.removeprefix("http://")

        def ask(method, path, **headers):
            connection = http.client.HTTPConnection(address, timeout=60)
            body = json.dumps({"model": "quickstart", **BODIES.get(path.split("/")[-1], {})}) if method == "POST" else None
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            reply = connection.getresponse()
            text = reply.read()
            connection.close()
            return reply.status, text, reply.headers
        return ask

    apis = ",".join(sorted({api for _, _, api, *_ in routes}))
    with own_server.serving(nereid, "--ollama", "--http-restricted-api", apis + ":x-secret=abc") as url:
        ask = asking(url)
        for method, path, _, _, _, errors in routes:
            status, text, _ = ask(method, path)
            assert status == 403 and errors in shape_of(text), (method, path, status, text)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as keys:
        for i in range(len(routes)):
            keys.write("r%d requests_per_minute=1 admin\n" % i)
        keys.write("plain\n")
        keys.flush()
        with own_server.serving(nereid, "--ollama", "--api-key-file", keys.name) as url:
            ask = asking(url)
            for i, (method, path, _, who, takes, errors) in enumerate(routes):
                status, text, _ = ask(method, path)
                assert (status == 401) == (who != "anybody"), (method, path, status)
                assert status != 401 or errors in shape_of(text), (method, path, text)
                status, text, _ = ask(method, path, Authorization="Bearer plain")
                assert (status == 403) == (who == "administrators"), (method, path, status, text)
                assert ask(method, path, x_api_key="r%d" % i)[0] not in (401, 429), (method, path)
                status, text, headers = ask(method, path, x_api_key="r%d" % i)
                assert (status == 429) == bool(takes), (method, path, takes, status)
                assert status != 429 or (errors in shape_of(text) and headers["Retry-After"]), (method, path, text)


def repository_of_two(folder):
    """Two language models; `slow` computes one sequence at a time."""
    from triton_server import make_repository
    for prefix, batch in (("slow", 1), ("quick", 32)):
        source = folder + "." + prefix
        make_repository(source, bls=False, decoupled_mode="true", max_batch_size=batch)
        names = {"tensorrt_llm": prefix + "_engine", "preprocessing": prefix + "_ids", "postprocessing": prefix + "_text",
                 "ensemble": prefix}
        for old, new in names.items():
            path = os.path.join(source, old, "config.pbtxt")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            for name, other in names.items():
                text = re.sub(r'^(\s*(?:model_)?name: )"%s"' % name, r'\1"%s"' % other, text, flags=re.M)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            shutil.move(os.path.join(source, old), os.path.join(folder, new))


def models():
    """A busy model does not delay requests to another."""
    from triton_server import Server
    with tempfile.TemporaryDirectory() as folder:
        repository_of_two(folder + "/models")
        with Server(folder + "/models", "--http-address=127.0.0.1", "--api-key=k") as server:
            client = openai.OpenAI(base_url="http://%s/v1" % server.http, api_key="k", max_retries=0, timeout=300)
            begun, ended = threading.Event(), []

            def ask(model, tokens):
                for _ in client.completions.create(model=model, prompt="The sea", max_tokens=tokens, stream=True,
                                                   extra_body={"ignore_eos": True}):
                    begun.set()
                ended.append(model)

            ask("quick", 1)
            begun.clear()
            threads = [threading.Thread(target=ask, args=("slow", 1800)) for _ in range(3)]
            for thread in threads:
                thread.start()
            begun.wait()
            ask("quick", 1)
            # The first two are these; of three long ones in a row none can have ended.
            assert ended == ["quick", "quick"], ended
            for thread in threads:
                thread.join()


def main():
    os.environ["PATH"] = os.path.dirname(os.path.abspath(sys.argv[1])) + os.pathsep + os.environ["PATH"]
    every_route(sys.argv[1])
    models()
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as keys:
        keys.write(KEYS)
        keys.flush()
        with own_server.serving(sys.argv[1], "--api-key-file", keys.name, "--max-batch-size", "1") as url:
            def client(key):
                return openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=300)

            limits(client)
            turns(client)
    print("key limits: kept on every route; turns are fair, and each model has its own")


if __name__ == "__main__":
    main()
