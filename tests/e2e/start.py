"""The output of `nereid serve` and `nereid check`: some lines about the model and how to ask it, one cause when a start fails.

usage: start.py BUILD_DIR"""
import json
import os
import shutil
import signal
import socket
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


def check_infer(url):
    """Each model answers once to infer, though it is decoupled; the page at the address has the base URL."""
    def tensor(name, datatype, value):
        return {"name": name, "datatype": datatype, "shape": [1, len(value)], "data": value}
    text = [tensor("text_input", "BYTES", ["Hello"]), tensor("max_tokens", "INT32", [3])]
    ids = [tensor("input_ids", "INT32", [5, 6, 7]), tensor("input_lengths", "INT32", [3]),
           tensor("request_output_len", "INT32", [3])]
    for model, inputs, output in (("ensemble", text, "text_output"), ("tensorrt_llm_bls", text, "text_output"),
                                  ("tensorrt_llm", ids, "output_ids")):
        request = urllib.request.Request(f"{url}/v2/models/{model}/infer", json.dumps({"inputs": inputs}).encode())
        with urllib.request.urlopen(request) as reply:
            assert output in [tensor["name"] for tensor in json.load(reply)["outputs"]], model
    for path, said in (("/", f"the base URL of OpenAI clients is {url}/v1"), ("/v1/v1/models", "did you mean /v1/models?")):
        try:
            urllib.request.urlopen(url + path)
            raise AssertionError(path)
        except urllib.error.HTTPError as error:
            body = error.read().decode()
            assert error.code == 404 and said in body, body


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
        check_infer(f"http://127.0.0.1:{ports['http']}")
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


def check_ports_in_use():
    """A port that is taken ends the start before the model is loaded."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for flag in ("--http-port", "--metrics-port", "--grpc-port"):
            others = [word for other in ("--http-port", "--metrics-port", "--grpc-port") if other != flag
                      for word in (other, "0")]
            done = subprocess.run([BINARY, "serve", MODEL, flag, port, *others], capture_output=True, text=True, check=False)
            text = done.stdout + done.stderr
            assert done.returncode == 1 and f"{flag} {port}: " in text and "already in use" in text, (done.returncode, text)
            assert "KV cache" not in text, text
        done = subprocess.run([BINARY, "tritonserver", "--model-repository", os.path.dirname(MODEL), "--http-port", port,
                               "--model-control-mode", "explicit"], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and f"error: --http-port {port}: " in done.stderr, done
    any_port = ["--http-port", "0", "--grpc-port", "-1"]
    for flags, said in ((["--host", "nosuchhost.invalid", *any_port], "--host nosuchhost.invalid, --http-port 0: "),
                        (["--host", "192.0.2.1", *any_port], "--host 192.0.2.1, --http-port 0: "),
                        (["--http-port", "12345", "--grpc-port", "12345"], "--http-port and --grpc-port are both 12345")):
        done = subprocess.run([BINARY, "serve", MODEL, "--metrics-port", "-1", *flags], capture_output=True, text=True, check=False)
        text = done.stdout + done.stderr
        assert done.returncode == 1 and said in text and "KV cache" not in text, (said, text)


def check_socket_activation(folder):
    """The port that systemd opened is taken over; a client that connected before the start is answered."""
    with socket.create_server(("127.0.0.1", 0)) as opened, open(os.path.join(folder, "activated"), "w") as log:
        port = opened.getsockname()[1]

        def activated(*flags):  # LISTEN_PID is the process that the shell becomes
            return subprocess.Popen(["sh", "-c", 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"', "sh", BINARY, "serve", MODEL, "--http-port", str(port),
                                     "--metrics-port", "-1", *flags], stdout=log, stderr=subprocess.STDOUT, close_fds=False,
                                    preexec_fn=lambda: (os.dup2(opened.fileno(), 3), os.set_inheritable(3, True)))  # noqa: PLW1509, one thread
        other = activated("--host", "127.0.0.2")
        assert other.wait(60) == 1
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            process = activated("--host", "127.0.0.1")
            client.settimeout(120)
            reply = client.makefile("rb").read()
        assert reply.startswith(b"HTTP/1.1 200 ") and b'"quickstart"' in reply, reply
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with open(log.name) as file:
        assert f"the socket that systemd opened for port {port} listens on 127.0.0.1, not on 127.0.0.2" in file.read()


def check_not_a_repository(folder):
    """A model's folder in the place of a folder of models."""
    model = os.path.join(folder, "repository", "m")
    os.makedirs(os.path.join(model, "1"))
    with open(os.path.join(model, "config.pbtxt"), "w") as file:
        file.write('backend: "identity"\n')
    for path, said in ((MODEL, "is a model, not a repository of models; serve it with `nereid serve "),
                       (model, "is one model of a repository (it has config.pbtxt); give the folder that it is in")):
        done = subprocess.run([BINARY, "tritonserver", "--model-repository", path], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and said in done.stderr, done


def broken_models(folder):
    """Copies of the model, each with one fault: (folder, its error)."""
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
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        path = copy(f"lfs_{name.split('.')[0]}")
        with open(os.path.join(path, name), "w") as file:
            file.write("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 12345\n" % ("0" * 64))
        yield path, f"{name}: is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
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
        check_failure(folder, "it has models in: config, lfs_config, lfs_model, lfs_tokenizer, template, ...", folder)
        check_failure(folder, "parameter 'isa' is 'foo'", MODEL, "--isa", "foo")
        check_failure(folder, "--max-seq-len: 4096 is more than the 2048 that the model allows", MODEL, "--max-seq-len", "4096")
        check_failure(folder, "unknown flag '--prot'. Did you mean '--port'?", MODEL, "--prot", "1", code=109)
        check_failure(folder, "unknown flag '--ctx-size', which is of SGLang, llama.cpp and TGI: nereid's is --max-seq-len",
                      MODEL, "--ctx-size", "64", code=109)
        check_failure(folder, "run `nereid pull meta-llama/Llama-3.1-8B`", "meta-llama/Llama-3.1-8B")
        for name in ("https://huggingface.co/meta-llama/Llama-3.1-8B/tree/main", "hf.co/meta-llama/Llama-3.1-8B:Q4_K_M"):
            check_failure(folder, "run `nereid pull meta-llama/Llama-3.1-8B`", name)
        check_failure(folder, "there is no file or directory 'llama3:8b'", "llama3:8b")
        check_failure(folder, "Did you mean '%s'?" % os.path.join(folder, "config"), os.path.join(folder, "confg"))
        check_failure(folder, "unknown flag '--n-gpu-layers', which is of llama.cpp: nereid's is --device", MODEL,
                      "--n-gpu-layers", "99", code=109)
        check_failure(folder, "is one file of a model; give the folder that it is in", os.path.join(MODEL, "model.safetensors"))
        check_failure(folder, "--tokenizer: there is no directory 'org/name'", MODEL, "--tokenizer", "org/name")
        for flag, value, said in (("--draft-model", "org/name", "run `nereid pull org/name`"),
                                  ("--device", "gpu", "'gpu' is none of auto, cpu, cuda:N (cuda:0 is the first GPU)")):
            done = subprocess.run([BINARY, "serve", MODEL, flag, value], capture_output=True, text=True, check=False)
            assert done.returncode == 105 and f"{flag}: " in done.stderr and said in done.stderr, done
        check_ports_in_use()
        check_socket_activation(folder)
        check_not_a_repository(folder)
    print("start: all passed")


if __name__ == "__main__":
    main()
