"""Triton's OpenAI front end: starts by its script, serves both APIs on their ports, and ends well at a signal.

usage: openai_frontend.py BUILD_DIR"""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

BUILD = os.path.abspath(sys.argv[1])
os.environ["PATH"] = os.path.join(BUILD, "bin") + os.pathsep + os.environ["PATH"]
os.environ["NEREID"] = os.path.join(BUILD, "bin", "nereid")
os.environ["NEREID_CACHE_DIR"] = os.path.join(BUILD, "e2e", "cache")

from triton_server import MODEL, ROOT, WORK, make_repository  # noqa: E402

SCRIPT = os.path.join(ROOT, "python", "openai", "openai_frontend", "main.py")
REPOSITORY = os.path.join(WORK, "openai_frontend")


class Frontend:
    def __init__(self, *flags, tokenizer=MODEL):
        self.log_path = REPOSITORY + ".log"
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, SCRIPT, "--model-repository", REPOSITORY, "--host", "127.0.0.1", "--openai-port", "0",
                 *(["--tokenizer", tokenizer] if tokenizer else []), *flags], stdout=log, stderr=subprocess.STDOUT)
        started = time.time()
        while not (ready := re.search(r"Uvicorn running on http://127\.0\.0\.1:(\d+) ", self.log())):
            assert self.process.poll() is None and time.time() < started + 600, self.log()[-3000:]
            time.sleep(0.05)
        self.port = int(ready[1])
        self.started = dict(re.findall(r"Started (\S+) at \S+?:(\d+)\"?$", self.log(), re.M))

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def ask(self, method, path, body=None, port=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=120)
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json", **headers})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()

    def stop(self, number):
        """The process ends by itself, in time and without an error, and its ports with it."""
        self.process.send_signal(number)
        assert self.process.wait(60) == 0, self.log()[-3000:]
        for port in [self.port, *map(int, self.started.values())]:
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0, port


def chat(**more):
    return {"model": "ensemble", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, **more}


def serves_both():
    frontend = Frontend("--enable-kserve-frontends", "--kserve-http-port", "0", "--kserve-grpc-port", "0")
    assert frontend.ask("GET", "/health")[0] == 200
    status, text = frontend.ask("GET", "/", Accept="text/html")
    assert status == 200 and text.startswith("<!doctype html>"), text[:200]
    assert frontend.ask("GET", "/") == (404, '{"error":"Not Found"}')
    model, = json.loads(frontend.ask("GET", "/v1/models")[1])["data"]
    assert model["id"] == "ensemble", model
    status, text = frontend.ask("POST", "/v1/chat/completions", chat(ignore_eos=True))
    answer = json.loads(text)
    assert status == 200 and answer["usage"]["completion_tokens"] == 16 and answer["model"] == "ensemble", text
    status, text = frontend.ask("POST", "/v1/completions", {"model": "ensemble", "prompt": "a", "max_tokens": 3, "ignore_eos": True})
    assert status == 200 and json.loads(text)["usage"]["completion_tokens"] == 3, text
    assert "nv_inference_request_success" in frontend.ask("GET", "/metrics")[1]
    assert frontend.ask("GET", "/health/ready") == (200, "")
    for wrong, place in ((chat(max_tokens=-1), "max_tokens"), (chat(shoe_size=9), "shoe_size"), ({"messages": []}, "messages")):
        status, text = frontend.ask("POST", "/v1/chat/completions", wrong)
        fault, = json.loads(text)["detail"]
        assert status == 422 and fault["loc"] == ["body", place], text
    assert frontend.ask("GET", "/v2/models/ensemble/ready")[0] == 404  # not on this port
    kserve = int(frontend.started["KServe"])
    assert frontend.ask("GET", "/v2/models/ensemble/ready", port=kserve)[0] == 200
    body = {"text_input": "a", "max_tokens": 2, "bad_words": "", "stop_words": ""}
    assert "text_output" in frontend.ask("POST", "/v2/models/ensemble/generate", body, port=kserve)[1]
    with socket.create_connection(("127.0.0.1", int(frontend.started["GRPCInferenceService"])), timeout=60):
        pass
    return frontend


def ends_while_it_streams():
    """A stream under way at SIGTERM comes to its end."""
    frontend = serves_both()
    connection = http.client.HTTPConnection("127.0.0.1", frontend.port, timeout=120)
    connection.request("POST", "/v1/chat/completions", json.dumps(chat(stream=True, max_tokens=1500, ignore_eos=True)),
                       {"Content-Type": "application/json"})
    reply = connection.getresponse()
    first = reply.readline()
    assert first.startswith(b"data: "), first
    frontend.process.send_signal(signal.SIGTERM)
    lines = [line for line in reply.read().decode().split("\n\n") if line.strip()]
    assert lines[-1] == "data: [DONE]" and '"finish_reason":"length"' in lines[-2], lines[-3:]
    frontend.stop(signal.SIGTERM)


def ends_without_kserve():
    for number in (signal.SIGINT, signal.SIGTERM):
        frontend = Frontend()
        assert frontend.ask("GET", "/v1/models")[0] == 200 and set(frontend.started) == {"HTTPService"}, frontend.started
        frontend.stop(number)


def bls_without_a_name():
    """The published commands leave tensorrt_llm_model_name as it is."""
    make_repository(REPOSITORY, decoupled_mode="true")
    frontend = Frontend()
    for name in ("tensorrt_llm_bls", "ensemble", "tensorrt_llm"):
        status, text = frontend.ask("POST", "/v1/chat/completions", chat(model=name, max_tokens=2))
        assert status == 200, (name, text)
    frontend.stop(signal.SIGTERM)
    shutil.rmtree(os.path.join(REPOSITORY, "ensemble"))
    path = os.path.join(REPOSITORY, "tensorrt_llm_bls", "config.pbtxt")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert "${tensorrt_llm_model_name}" in text
    frontend = Frontend()
    model, = json.loads(frontend.ask("GET", "/v1/models")[1])["data"]
    assert model["id"] == "tensorrt_llm_bls", model
    frontend.stop(signal.SIGTERM)


def prompts_left_out():
    """Configurations of v0.9 to v0.13 have exclude_input_in_output as a parameter alone; answers that come in one reply
    bring the prompt or not, by that parameter."""
    answers = []
    for value in ("True", "false", None):
        for decoupled in ("false", "true"):
            values = {} if value is None else {"exclude_input_in_output": value}
            make_repository(REPOSITORY, bls=False, decoupled_mode=decoupled, **values)
            for model in ("tensorrt_llm", "ensemble"):
                path = os.path.join(REPOSITORY, model, "config.pbtxt")
                with open(path, encoding="utf-8") as file:
                    lines = file.readlines()
                with open(path, "w", encoding="utf-8") as file:
                    file.writelines(x for x in lines if "exclude_input_in_output" not in x or x.startswith("parameters"))
            frontend = Frontend()
            status, text = frontend.ask("POST", "/v1/chat/completions", chat(max_tokens=12, ignore_eos=True))
            assert status == 200, text
            answers.append(json.loads(text)["choices"][0]["message"]["content"])
            frontend.stop(signal.SIGTERM)
    assert answers[0] and len(set(answers)) == 1, answers


def rename_models(folder, names):
    for old, new in names.items():
        os.rename(os.path.join(folder, old), os.path.join(folder, new))
        path = os.path.join(folder, new, "config.pbtxt")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for was, will in names.items():
            text = re.sub(r'^(\s*(?:model_)?name: )"%s"' % was, r'\1"%s"' % will, text, flags=re.M)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def several_models():
    """Two engines in one repository, none with a usual name: each has its own tokenizer, template, limits and weights."""
    make_repository(REPOSITORY, bls=False, decoupled_mode="true")
    rename_models(REPOSITORY, {"tensorrt_llm": "big_engine", "preprocessing": "big_ids", "postprocessing": "big_text",
                               "ensemble": "big"})
    frontend = Frontend(tokenizer=None)
    assert json.loads(frontend.ask("GET", "/v1/models")[1])["data"][0]["id"] == "big"
    frontend.stop(signal.SIGTERM)
    tokenizer = REPOSITORY + ".tokenizer"
    shutil.rmtree(tokenizer, ignore_errors=True)
    shutil.copytree(MODEL, tokenizer, ignore=shutil.ignore_patterns("*.safetensors"))
    path = os.path.join(tokenizer, "tokenizer_config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config["chat_template"] = "{{ messages[0].content }}"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    small = REPOSITORY + ".small"
    make_repository(small, bls=False, decoupled_mode="true", engine_dir=MODEL + "-draft", max_seq_len=100)
    for model in ("preprocessing", "postprocessing"):
        path = os.path.join(small, model, "config.pbtxt")
        with open(path, encoding="utf-8") as file:
            text = file.read().replace('"%s"' % MODEL, '"%s"' % tokenizer)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    names = {"tensorrt_llm": "small_engine", "preprocessing": "small_ids", "postprocessing": "small_text", "ensemble": "small"}
    rename_models(small, names)
    for name in names.values():
        os.rename(os.path.join(small, name), os.path.join(REPOSITORY, name))
    frontend = Frontend(tokenizer=None)
    cards = {card["id"]: card["max_model_len"] for card in json.loads(frontend.ask("GET", "/v1/models")[1])["data"]}
    assert set(cards) == {"big", "small"} and cards["small"] == 100 < cards["big"], cards
    answers = {}
    for name in ("big", "small", "big_engine", "small_engine"):
        status, text = frontend.ask("POST", "/v1/chat/completions", chat(model=name, max_tokens=24, ignore_eos=True))
        assert status == 200, text
        answers[name] = json.loads(text)
    for name in ("big", "small"):
        assert answers[name]["model"] == answers[name + "_engine"]["model"] == name, answers
        assert answers[name]["choices"] == answers[name + "_engine"]["choices"]
    assert answers["small"]["usage"]["prompt_tokens"] < answers["big"]["usage"]["prompt_tokens"], "templates of their own"
    assert answers["small"]["choices"] != answers["big"]["choices"], "weights of their own"
    assert frontend.ask("POST", "/v1/chat/completions", chat(model="small", max_tokens=101))[0] == 400
    assert frontend.ask("POST", "/v1/chat/completions", chat(model="big", max_tokens=101, ignore_eos=True))[0] == 200
    status, text = frontend.ask("POST", "/v1/chat/completions", chat(model="other"))
    assert status == 404 and "this server has 'big', 'small'" in text, text
    ids = {name: json.loads(frontend.ask("POST", "/tokenize", {"model": name, "messages": chat()["messages"]})[1])["count"]
           for name in cards}
    assert ids == {name: answers[name]["usage"]["prompt_tokens"] for name in cards}, ids
    frontend.stop(signal.SIGTERM)


def main():
    several_models()
    bls_without_a_name()
    prompts_left_out()
    make_repository(REPOSITORY, bls=False, decoupled_mode="true")
    ends_while_it_streams()
    ends_without_kserve()
    refused = subprocess.run([sys.executable, SCRIPT, "--model-repository", REPOSITORY, "--backend", "vllm"], capture_output=True,
                             text=True)
    assert refused.returncode == 1 and "--backend" in refused.stderr, refused
    print("openai_frontend: starts, serves and stops")


if __name__ == "__main__":
    main()
