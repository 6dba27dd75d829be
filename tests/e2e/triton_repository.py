#!/usr/bin/env python3
"""A model repository as people make one: templates filled by fill_template.py, checked, started by
launch_triton_server.py, asked, stopped; then what the server's command line answers to mistakes.

usage: triton_repository.py BUILD_DIR
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "quickstart")
FILLED = {
    "ensemble": "triton_max_batch_size:4,logits_datatype:TYPE_FP32",
    "preprocessing": "tokenizer_dir:%(model)s,tokenizer_type:auto,triton_max_batch_size:4,"
                     "preprocessing_instance_count:1,max_queue_size:0",
    "tensorrt_llm": "triton_backend:tensorrtllm,triton_max_batch_size:4,decoupled_mode:True,engine_dir:%(model)s,"
                    "max_queue_delay_microseconds:0,batching_strategy:inflight_fused_batching,max_queue_size:0,"
                    "encoder_input_features_data_type:TYPE_FP16,logits_datatype:TYPE_FP32,exclude_input_in_output:True,"
                    "max_tokens_in_paged_kv_cache:2560,cache_dir:%(cache)s",
    "postprocessing": "tokenizer_dir:%(model)s,tokenizer_type:auto,triton_max_batch_size:4,"
                      "postprocessing_instance_count:1,max_queue_size:0",
    "tensorrt_llm_bls": "triton_max_batch_size:4,decoupled_mode:True,bls_instance_count:1,accumulate_tokens:False,"
                        "logits_datatype:TYPE_FP32",
}


class Failure(Exception):
    pass


def expect(condition, what):
    if not condition:
        raise Failure(what)


def post(port, path, body, headers=None):
    request = urllib.request.Request("http://127.0.0.1:%d%s" % (port, path), json.dumps(body).encode(), headers or {})
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def make_repository(work):
    repository = os.path.join(work, "repository")
    shutil.copytree(os.path.join(ROOT, "all_models", "inflight_batcher_llm"), repository)
    for model, values in FILLED.items():
        values = values % {"model": MODEL, "cache": os.path.join(work, "cache")}
        subprocess.run([os.path.join(ROOT, "tools", "fill_template.py"), "-i",
                        os.path.join(repository, model, "config.pbtxt"), values], check=True)
    return repository


def wait_for_lines(log, still_runs, seconds=300):
    """The port of each service that the log reports as started."""
    for _ in range(seconds * 10):
        with open(log, encoding="utf-8") as f:
            text = f.read()
        ports = dict(re.findall(r"Started (HTTPService|Metrics Service) at \S+?:(\d+)", text))
        if len(ports) == 2:
            return {name: int(port) for name, port in ports.items()}
        expect(still_runs(), "the server ended early:\n" + text[-3000:])
        time.sleep(0.1)
    raise Failure("the server does not start:\n" + text[-3000:])


def find_server(repository):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read().decode("utf-8", "replace").split("\0")
            with open("/proc/%s/comm" % pid, encoding="utf-8") as f:
                if "--model-repository=" + repository in words and f.read().strip() == "tritonserver":
                    return int(pid)
        except OSError:
            continue
    return None


def launched(nereid, work):
    repository = make_repository(work)
    checked = subprocess.run([nereid, "check", repository], stdout=subprocess.PIPE, text=True, check=False)
    expect(checked.returncode == 0 and "5 models, 0 problems" in checked.stdout, checked.stdout)
    log = os.path.join(work, "triton_log.txt")
    open(log, "w", encoding="utf-8").close()
    subprocess.run([os.path.join(ROOT, "scripts", "launch_triton_server.py"), "--world_size=1", "--model_repo=" + repository,
                    "--http_port=0", "--grpc_port", "0", "--metrics_port=0", "--log", "--log-file", log, "--force"],
                   check=True)
    deadline, pid = time.monotonic() + 60, None
    while not pid and time.monotonic() < deadline:
        pid = find_server(repository)
    expect(pid, "no process named tritonserver runs")
    try:
        ports = wait_for_lines(log, lambda: find_server(repository))
        ask_models(ports["HTTPService"])
        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % ports["Metrics Service"], timeout=30) as page:
            expect(b"nv_inference_request_success" in page.read(), "no metrics")
    finally:
        os.kill(pid, signal.SIGTERM)
    for _ in range(600):
        if not find_server(repository):
            break
        time.sleep(0.1)
    expect(not find_server(repository), "the server does not stop")
    with open(log, encoding="utf-8") as f:
        text = f.read()
    for line in ("| tensorrt_llm     | 1       | READY", "| Option", "model_control_mode", "| Backend"):
        expect(line in text, "the log lacks %r:\n%s" % (line, text[:3000]))
    return repository


def ask_models(port):
    body = {"text_input": "What is machine learning?", "max_tokens": 12, "bad_words": "", "stop_words": ""}
    texts = []
    for model in ("ensemble", "tensorrt_llm_bls"):
        status, answer = post(port, "/v2/models/%s/generate" % model, body)
        expect(status == 200, "%s: %d %s" % (model, status, answer))
        texts.append(json.loads(answer)["text_output"])
        status, answer = post(port, "/v2/models/%s/generate_stream" % model, dict(body, stream=True))
        events = [json.loads(line[5:]) for line in answer.splitlines() if line.startswith("data:")]
        expect(status == 200 and len(events) > 1, "%s streams %r" % (model, answer))
        texts.append("".join(event.get("text_output", "") for event in events))
    expect(texts[0] and len(set(texts)) == 1, "the four answers differ: %r" % texts)


def run_server(server, arguments, **options):
    return subprocess.run([server] + arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                          check=False, **options)


def oldest_set(server, work):
    repository = os.path.join(work, "gpt")
    shutil.copytree(os.path.join(ROOT, "all_models", "gpt"), repository)
    for model, values in (("preprocessing", "tokenizer_dir:" + MODEL), ("postprocessing", "tokenizer_dir:" + MODEL),
                          ("tensorrt_llm", "engine_dir:" + MODEL)):
        subprocess.run([os.path.join(ROOT, "tools", "fill_template.py"), "--in_place",
                        os.path.join(repository, model, "config.pbtxt"), values], check=True)
    log = os.path.join(work, "gpt_log.txt")
    with open(log, "w", encoding="utf-8") as errors:
        running = subprocess.Popen([server, "--model-repository", repository, "--http-port=0", "--grpc-port=0",
                                    "--metrics-port=0"], stdout=subprocess.DEVNULL, stderr=errors)
    try:
        port = wait_for_lines(log, lambda: running.poll() is None)["HTTPService"]
        status, answer = post(port, "/v2/models/ensemble/generate",
                              {"text_input": "Hello", "max_tokens": 5, "bad_words": "", "stop_words": ""})
        expect(status == 200 and json.loads(answer)["text_output"], "gpt: %d %s" % (status, answer))
    finally:
        running.terminate()
    expect(running.wait(timeout=60) == 0, "exit code %d" % running.returncode)


def mistakes(server, repository, work):
    for arguments, text in [
            (["--nonsense"], "unrecognized option '--nonsense'"),
            ([], "--model-repository must be specified"),
            (["--model-repository=" + repository, "--http-port=abc"], "Got abc"),
            (["--model-repository=/no/such/folder"], "error: creating server: Internal - failed to stat file"),
            (["--help"], "--model-repository")]:
        ended = run_server(server, arguments)
        expect(ended.returncode == 1 and text in ended.stderr, "%s: %d %s" % (arguments, ended.returncode, ended.stderr[-500:]))
    broken = os.path.join(work, "broken")
    os.makedirs(os.path.join(broken, "preprocessing", "1"))
    with open(os.path.join(broken, "preprocessing", "config.pbtxt"), "w", encoding="utf-8") as f:
        f.write('backend: "python"\nmax_batch_size: 1\n'
                'input { name: "QUERY" data_type: TYPE_STRING dims: 1 } output { name: "O" data_type: TYPE_INT32 dims: 1 }\n')
    with open(os.path.join(broken, "preprocessing", "1", "model.py"), "w", encoding="utf-8") as f:
        f.write("class TritonPythonModel:\n  names = ['tokenizer_dir', 'REQUEST_INPUT_LEN', 'STOP_WORDS_DICT']\n")
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0", "--http-address=127.0.0.1"]
    ended = run_server(server, ["--model-repository=" + broken] + ports)
    expect(ended.returncode == 1, "exit code %d" % ended.returncode)
    for text in ("failed to load all models", "UNAVAILABLE: Invalid argument", 'set backend: "preprocessing"'):
        expect(text in ended.stderr, "no %r in %s" % (text, ended.stderr))


def signals_and_restrictions(server, work):
    empty = os.path.join(work, "empty")
    os.makedirs(empty)
    log = os.path.join(work, "empty_log.txt")
    with open(log, "w", encoding="utf-8") as errors:
        running = subprocess.Popen(
            [server, "--model-repository", empty, "--model-control-mode=explicit", "--http-port=0", "--grpc-port=0",
             "--metrics-port=0", "--http-restricted-api=model-repository:admin-key=secret", "--id=mine"],
            stdout=subprocess.PIPE, stderr=errors, text=True)
    port = wait_for_lines(log, lambda: running.poll() is None)["HTTPService"]
    with urllib.request.urlopen("http://127.0.0.1:%d/v2" % port, timeout=30) as page:
        expect(json.load(page)["name"] == "mine", "the server has another name")
    expect(post(port, "/v2/repository/index", {})[0] == 403, "an index without the secret")
    expect(post(port, "/v2/repository/index", {}, {"admin-key": "wrong"})[0] == 403, "an index with a wrong secret")
    expect(post(port, "/v2/repository/index", {}, {"Admin-Key": "secret"})[0] == 200, "no index with the secret")
    busy = run_server(server, ["--model-repository", empty, "--model-control-mode=explicit", "--http-port=%d" % port,
                               "--allow-grpc=false", "--allow-metrics=false"])
    expect(busy.returncode == 1 and "already in use" in busy.stderr, "a busy port: %r" % busy)
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    expect(running.returncode == 0 and output == "Signal (2) received.\n", "%d %r" % (running.returncode, output))


def main():
    build = os.path.abspath(sys.argv[1])
    nereid = os.path.join(build, "bin", "nereid")
    server = os.path.join(build, "bin", "tritonserver")
    os.environ["NEREID"] = nereid
    os.environ.setdefault("NEREID_CACHE_DIR", os.path.join(build, "e2e", "cache"))
    with tempfile.TemporaryDirectory() as work:
        try:
            repository = launched(nereid, work)
            oldest_set(server, work)
            mistakes(server, repository, work)
            signals_and_restrictions(server, work)
        except Failure as failure:
            print("triton repository: FAILED: %s" % failure)
            return 1
    print("triton repository: all passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
