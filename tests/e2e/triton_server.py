"""A model repository filled from all_models/ with fill_template, a tritonserver on it, and the clients of this project,
for the scenarios. The server is the one on the PATH; what the scenarios write goes into its build folder."""
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
MODEL = os.path.join(ROOT, "models", "quickstart")
WORK = os.path.join(os.path.dirname(os.path.dirname(shutil.which("tritonserver"))), "e2e", "triton")
CLIENTS = os.path.join(ROOT, "inflight_batcher_llm", "client")
TOOLS = os.path.join(ROOT, "tools", "inflight_batcher_llm")
PROMPT = "What is machine learning?"


def fill(path, values):
    text = ",".join("%s:%s" % (key, str(value).replace(",", "\\,")) for key, value in values.items())
    subprocess.run(["fill_template", "-i", path, text], check=True)


def make_repository(folder, bls=True, **changes):
    """As the backend's README does it; `changes` are more placeholders of tensorrt_llm."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join(ROOT, "all_models", "inflight_batcher_llm"), folder)
    if not bls:
        shutil.rmtree(os.path.join(folder, "tensorrt_llm_bls"))
    decoupled = changes.get("decoupled_mode", "false")
    batch = {"triton_max_batch_size": 8}
    logits = {"logits_datatype": "TYPE_FP32"}
    models = {
        "preprocessing": {**batch, "tokenizer_dir": MODEL, "preprocessing_instance_count": 1},
        "postprocessing": {**batch, "tokenizer_dir": MODEL, "postprocessing_instance_count": 1},
        "tensorrt_llm": {**batch, **logits, "triton_backend": "tensorrtllm", "decoupled_mode": decoupled,
                         "engine_dir": MODEL, "batching_strategy": "inflight_fused_batching",
                         "max_queue_delay_microseconds": 0, "max_queue_size": 0,
                         "encoder_input_features_data_type": "TYPE_FP16", **changes},
        "ensemble": {**batch, **logits},
        "tensorrt_llm_bls": {**batch, **logits, "decoupled_mode": decoupled, "bls_instance_count": 8,
                             "accumulate_tokens": "false"},
    }
    for model, values in models.items():
        if bls or model != "tensorrt_llm_bls":
            fill(os.path.join(folder, model, "config.pbtxt"), values)


class Server:
    """tritonserver on free ports; stopped, and checked for a clean end, on exit."""

    def __init__(self, repository, *flags, log_path=None):
        self.log_path = log_path or repository + ".log"
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["tritonserver", "--model-repository=" + repository, "--http-port=0", "--grpc-port=0",
                 "--metrics-port=0", "--disable-auto-complete-config", *flags],
                stdout=log, stderr=subprocess.STDOUT)
        self.http = self.grpc = self.metrics_address = None

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_ready(self):
        for _ in range(600):
            if self.process.poll() is not None:
                raise AssertionError("the server ended with %d:\n%s" % (self.process.returncode, self.log()[-3000:]))
            found = {name: re.search(r"Started %s at (\S*?):(\d+)\"?\n" % name, self.log())
                     for name in ("GRPCInferenceService", "HTTPService", "Metrics Service")}
            if all(found.values()):
                break
            time.sleep(0.1)
        self.grpc, self.http, self.metrics_address = (
            "%s:%s" % (match[1].replace("0.0.0.0", "127.0.0.1"), match[2]) for match in found.values())
        assert self.get("/v2/health/ready")[0] == 200
        return self

    def get(self, path, body=None, address=None):
        """(status, text)"""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request("http://%s%s" % (address or self.http, path), data)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def generate(self, model, text="What is machine learning?", tokens=16, **more):
        status, reply = self.get("/v2/models/%s/generate" % model, {"text_input": text, "max_tokens": tokens, **more})
        assert status == 200, reply
        return json.loads(reply)

    def metrics(self):
        """{(family, frozen labels): value}"""
        out = {}
        for line in self.get("/metrics", address=self.metrics_address)[1].splitlines():
            match = re.fullmatch(r'(\w+)(?:\{(.*)\})? (\S+)', line)
            if match and not line.startswith("#"):
                out[match[1], frozenset(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))] = match[3]
        return out

    def total(self, family, **labels):
        """The sum of a family's values whose labels contain these: failures are counted by reason."""
        wanted = set(labels.items())
        found = [int(value) for (name, has), value in self.metrics().items() if name == family and wanted <= has]
        assert found, (family, labels)
        return sum(found)

    def metric(self, family, **labels):
        """The one value of that family whose labels contain these."""
        wanted = set(labels.items())
        found = [value for (name, has), value in self.metrics().items() if name == family and wanted <= has]
        assert len(found) == 1, (family, labels, found)
        return found[0]

    def stop(self):
        self.process.send_signal(2)  # SIGINT
        code = self.process.wait(timeout=60)
        assert code == 0, "the server ended with %d:\n%s" % (code, self.log()[-3000:])

    def __enter__(self):
        return self.wait_ready()

    def __exit__(self, kind, value, trace):
        if self.process.poll() is None and kind is not None:
            self.process.kill()
            self.process.wait()
            print(self.log()[-3000:])
        elif kind is None:
            self.stop()


def repository(name, **how):
    path = os.path.join(WORK, name)
    make_repository(path, **how)
    return path


def copy_model(folder, source, target, *changes):
    """Another model in the repository `folder`; `changes` are (old, new) in its configuration."""
    shutil.copytree(os.path.join(folder, source), os.path.join(folder, target))
    path = os.path.join(folder, target, "config.pbtxt")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for old, new in [('name: "%s"' % source, 'name: "%s"' % target), *changes]:
        assert old in text, (old, path)
        text = text.replace(old, new)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def client(folder, name, *words, status=0, cwd=None):
    result = subprocess.run([sys.executable, os.path.join(folder, name), *words], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=240, cwd=cwd)
    assert result.returncode == status, "%s %s: status %d\n%s" % (name, words, result.returncode, result.stdout)
    return result.stdout


def tokenize(server, text):
    body = {"inputs": [{"name": "QUERY", "datatype": "BYTES", "shape": [1, 1], "data": [text]},
                       {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": [1, 1], "data": [1]}],
            "outputs": [{"name": "REQUEST_INPUT_LEN"}]}
    reply = json.loads(server.get("/v2/models/preprocessing/infer", body)[1])
    return reply["outputs"][0]["data"][0]
