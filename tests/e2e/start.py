"""What `nereid serve` and `nereid check` say: some lines about the model and how to ask it, one cause when a start fails.

usage: start.py BUILD_DIR"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

BUILD = sys.argv[1]
BINARY = os.path.join(BUILD, "bin", "nereid")
MODEL = os.path.join(os.path.dirname(__file__), "..", "..", "models", "quickstart")


def serve(folder, *arguments):
    """Starts; returns (process, its log, its ports or None when it ended)."""
    ports, log = os.path.join(folder, "ports"), os.path.join(folder, "log")
    if os.path.exists(ports):
        os.remove(ports)
    process = subprocess.Popen([BINARY, "serve", *arguments, "--port", "0", "--grpc-port", "0", "--metrics-port", "0",
                                "--port-file", ports], stdout=open(log, "w"), stderr=subprocess.STDOUT)
    while process.poll() is None and not os.path.exists(ports):
        time.sleep(0.01)
    with open(log) as file:
        lines = file.read().splitlines()
    if process.poll() is not None:
        return process, lines, None
    with open(ports) as file:
        return process, lines, dict(line.strip().split("=") for line in file)


def check_start(folder):
    process, lines, ports = serve(folder, MODEL, "--max-model-len", "64", "--served-model-name", "tiny")
    try:
        assert ports is not None, lines
        text = "\n".join(lines)
        assert len(lines) <= 12 and "+--" not in text, text
        for part in ("model quickstart (LlamaForCausalLM) on cpu: ", " kernels", "memory ", "weights ", "KV cache ",
                     "context 64 tokens; the KV cache holds ", " full ones", f":{ports['http']}/v1", f":{ports['http']}/v2",
                     f"127.0.0.1:{ports['grpc']}", f":{ports['metrics']}/metrics", "try:  curl http://", '"model": "tiny"'):
            assert part in text, f"no {part!r} in {text}"
        with urllib.request.urlopen(f"http://127.0.0.1:{ports['http']}/v1/models") as reply:
            model, = json.load(reply)["data"]
        assert (model["id"], model["max_model_len"]) == ("tiny", 64), model
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def check_failure(folder, cause, *arguments, code=1):
    process, lines, ports = serve(folder, *arguments)
    assert ports is None and process.wait() == code, (cause, process.returncode, lines)
    last = lines[-1] if code == 1 else lines[0]
    assert last.startswith("nereid: ") and cause in last, f"no {cause!r} in {lines}"
    assert sum(cause in line for line in lines) == 1, f"{cause!r} is not there once: {lines}"
    assert not any("+--" in line for line in lines), lines


def broken_models(folder):
    """Copies of the model, each with one fault: (folder, what is said of it)."""
    def copy(name):
        path = os.path.join(folder, name)
        shutil.copytree(MODEL, path)
        return path

    path = copy("template")
    with open(os.path.join(path, "chat_template.jinja"), "w") as file:
        file.write("a\n{% if x %}\n {{ messages[ }}\n")
    yield path, "chat_template.jinja: chat template 'default': line 3, column 15: unexpected '}'"
    path = copy("weights")
    os.truncate(os.path.join(path, "model.safetensors"), 1000)
    yield path, "model.safetensors: header of 6536 bytes does not fit in a file of 1000 bytes"
    path = copy("config")
    with open(os.path.join(path, "config.json"), "w") as file:
        file.write("{")
    yield path, "config.json: "


def check(path):
    done = subprocess.run([BINARY, "check", path], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    with tempfile.TemporaryDirectory() as folder:
        check_start(folder)
        code, text = check(MODEL)
        assert code == 0 and "1 model, 0 problems" in text, text
        for path, cause in broken_models(folder):
            check_failure(folder, cause, path)
            code, text = check(path)
            assert code == 1 and cause in text and "0 problems" not in text, text
        empty = os.path.join(folder, "empty")
        os.mkdir(empty)
        check_failure(folder, "no model is there: a checkpoint's folder has config.json", empty)
        check_failure(folder, "it has models in: config, template, weights", folder)
        check_failure(folder, "parameter 'isa' is 'foo'", MODEL, "--isa", "foo")
        check_failure(folder, "--max-seq-len: 4096 is more than the 2048 that the model allows", MODEL, "--max-seq-len", "4096")
        check_failure(folder, "unknown flag '--prot'. Did you mean '--port'?", MODEL, "--prot", "1", code=109)
    print("start: all passed")


if __name__ == "__main__":
    main()
