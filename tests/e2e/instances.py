"""Several instances of a model, and orchestrator mode: answers are those of one executor, a killed process of a rank takes
only the requests of its instance with it, and is started again; two models of one repository, each with processes of
its own.

usage: instances.py BUILD_DIR, whose bin folder is on the PATH"""
import concurrent.futures
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from triton_server import MODEL, Server, copy_model, repository

NEREID = os.path.join(os.path.realpath(sys.argv[1]), "bin", "nereid")
PROMPTS = ["What is machine learning?", "The capital of France is", "Once upon a time", "A list of colours:", "Water boils at",
           "To be or not to be", "Two and two are", "In the beginning"]


def wait_for(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "%s: not within %d s" % (what, seconds)
        time.sleep(0.05)


def children(process):
    found = []
    for task in os.listdir("/proc/%d/task" % process):
        with open("/proc/%d/task/%s/children" % (process, task), encoding="utf-8") as file:
            found += [int(word) for word in file.read().split()]
    return sorted(found)


class Serve:
    """`nereid serve`, which must end well, without children left."""

    def __init__(self, folder, *flags):
        self.log, ports = os.path.join(folder, "log"), os.path.join(folder, "ports")
        with contextlib.suppress(FileNotFoundError):
            os.remove(ports)
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([NEREID, "serve", MODEL, "--http-port", "0", "--grpc-port", "-1", "--metrics-port", "0",
                                             "--port-file", ports, *flags], stdout=log, stderr=subprocess.STDOUT)
        wait_for(lambda: os.path.exists(ports) or self.process.poll() is not None, "start")
        assert self.process.poll() is None, open(self.log, encoding="utf-8").read()
        with open(ports, encoding="utf-8") as file:
            self.ports = dict(line.strip().split("=") for line in file)

    def ask(self, prompt, tokens=24):
        """The text, or the code of an error."""
        body = {"text_input": prompt, "max_tokens": tokens, "bad_words": "", "stop_words": "", "end_id": -1}
        request = urllib.request.Request("http://127.0.0.1:%s/v2/models/ensemble/generate" % self.ports["http"],
                                         json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)["text_output"]
        except urllib.error.HTTPError as error:
            return error.code

    def ask_all(self):
        with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
            return list(pool.map(self.ask, PROMPTS))

    def metric(self, family, **labels):
        with urllib.request.urlopen("http://127.0.0.1:%s/metrics" % self.ports["metrics"]) as reply:
            page = reply.read().decode()
        found = [float(value) for name, has, value in re.findall(r"^(\w+)\{(.*)\} (\S+)$", page, re.M)
                 if name == family and set(labels.items()) <= set(re.findall(r'(\w+)="([^"]*)"', has))]
        return sum(found) if found else None

    def stop(self):
        left = children(self.process.pid)
        self.process.terminate()
        assert self.process.wait(60) == 0, open(self.log, encoding="utf-8").read()
        for child in left:
            assert not os.path.exists("/proc/%d" % child), child


def kill_one(server):
    """Kills the process of an instance while requests run; the other instance serves, the killed one comes back."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        running = [pool.submit(server.ask, prompt, 400) for prompt in PROMPTS]
        wait_for(lambda: all(server.metric("nereid_instance_requests", instance=str(i)) for i in range(2)), "requests in both")
        victim = children(server.process.pid)[0]
        os.kill(victim, signal.SIGKILL)
        outcomes = [future.result() for future in running]
    failed = [outcome for outcome in outcomes if isinstance(outcome, int)]
    assert failed and set(failed) == {503} and len(failed) < len(PROMPTS), outcomes
    wait_for(lambda: server.metric("nereid_instance_restarts_total") == 1, "restart")
    wait_for(lambda: server.metric("nereid_instance_healthy") == 2, "health")
    now = children(server.process.pid)
    assert len(now) == 2 and victim not in now, (victim, now)
    return len(failed)


def instances(folder):
    one = Serve(folder)
    expected = one.ask_all()
    assert one.metric("nereid_instance_healthy") is None
    slots = one.metric("nv_trt_llm_request_metrics", request_type="max")
    one.stop()
    assert all(isinstance(text, str) for text in expected), expected

    threads = Serve(folder, "--instances", "2")
    assert threads.ask_all() == expected
    assert threads.metric("nereid_instance_healthy") == 2 and not children(threads.process.pid)
    assert threads.metric("nv_trt_llm_request_metrics", request_type="max") == 2 * slots
    threads.stop()
    print("instances: two in one process answer as one")

    processes = Serve(folder, "--instances", "2", "--process-mode", "orchestrator")
    assert len(children(processes.process.pid)) == 2
    assert processes.ask_all() == expected
    num_failed = kill_one(processes)
    assert processes.ask_all() == expected
    processes.stop()
    print("instances: two processes answer as one; kill -9 of one ended %d of %d requests with 503, and it came back" %
          (num_failed, len(PROMPTS)))


def ids_of(server, model):
    """The tokens that a tensorrt_llm model generates."""
    inputs = [("input_ids", "INT32", [1, 4], [5, 6, 7, 8]), ("input_lengths", "INT32", [1, 1], [4]),
              ("request_output_len", "INT32", [1, 1], [12])]
    body = {"inputs": [{"name": name, "datatype": kind, "shape": shape, "data": data} for name, kind, shape, data in inputs],
            "outputs": [{"name": "output_ids"}, {"name": "sequence_length"}]}
    status, reply = server.get("/v2/models/%s/infer" % model, body)
    assert status == 200, (status, reply)
    return {output["name"]: output["data"] for output in json.loads(reply)["outputs"]}["output_ids"]


def two_models():
    """TRTLLM_ORCHESTRATOR=1, as launch_triton_server.py --multi-model sets it."""
    folder = repository("orchestrated", bls=False)
    copy_model(folder, "tensorrt_llm", "tensorrt_llm_2", ("count: 1 kind", "count: 2 kind"))
    with environment(TRTLLM_ORCHESTRATOR="1"), Server(folder) as server:
        of_models = children(server.process.pid)
        assert len(of_models) == 3, of_models
        expected = ids_of(server, "tensorrt_llm")
        for _ in range(4):
            assert ids_of(server, "tensorrt_llm_2") == expected
        assert "parameters without effect" not in server.log(), server.log()

        def healthy(model):
            return server.total("nereid_instance_healthy", model=model)

        assert (healthy("tensorrt_llm"), healthy("tensorrt_llm_2")) == (1, 2)
        for process in of_models:
            os.kill(process, signal.SIGKILL)
        wait_for(lambda: server.total("nereid_instance_restarts_total") == 3, "restarts")
        wait_for(lambda: server.get("/v2/models/tensorrt_llm/ready")[0] == 200, "ready")
        assert ids_of(server, "tensorrt_llm") == expected == ids_of(server, "tensorrt_llm_2")
        left = children(server.process.pid)
    assert not any(os.path.exists("/proc/%d" % process) for process in left), left
    print("instances: two models of one repository have three processes; killed ones come back")


def environment(**variables):
    """os.environ with these, for a with statement."""
    @contextlib.contextmanager
    def changed():
        os.environ.update(variables)
        try:
            yield
        finally:
            for name in variables:
                del os.environ[name]
    return changed()


def launched():
    """Orchestrator mode without spawning: processes 1 to 3 of a job have the ranks, one of the first model, two of the other."""
    folder = repository("participants", bls=False, participant_ids="1")
    copy_model(folder, "tensorrt_llm", "tensorrt_llm_2", ("${tensor_parallel}", "2"),
               ('key: "participant_ids" value { string_value: "1"', 'key: "participant_ids" value { string_value: "2,3"'))
    job = dict(TRTLLM_ORCHESTRATOR="1", TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES="0", NEREID_LAUNCHED_SIZE="4",
               NEREID_LAUNCHED_KEY="instances-%d" % os.getpid())
    others = [subprocess.Popen(["tritonserver", "--model-repository=" + folder, "--disable-auto-complete-config"],
                               env=dict(os.environ, NEREID_LAUNCHED_RANK=str(rank), **job)) for rank in (1, 2, 3)]
    with environment(NEREID_LAUNCHED_RANK="0", **job), Server(folder) as server:
        assert not children(server.process.pid)
        expected = ids_of(server, "tensorrt_llm")
        assert ids_of(server, "tensorrt_llm_2") == expected
    for process in others:
        assert process.wait(30) == 0, process.args
    print("instances: two models on three processes of a job, which end with the server")


def main():
    with tempfile.TemporaryDirectory() as folder:
        instances(folder)
    two_models()
    launched()


if __name__ == "__main__":
    main()
    print("instances: all passed")
