#!/usr/bin/env python3
"""One server of several processes that mpirun or launch_triton_server.py has started: every form of command with engines
of 2 and 4 ranks, the same answers as from one process, models unloaded and loaded, and processes killed.

Every kill, many times: kill_rounds.py.

usage: launched.py BUILD_DIR [--only NAME]
"""
import argparse
import concurrent.futures
import copy
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from skips import skip

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
MODEL = os.path.join(ROOT, "models", "quickstart")
LAUNCHER = os.path.join(ROOT, "scripts", "launch_triton_server.py")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]
QUESTION = {"text_input": "What is machine learning?", "max_tokens": 24, "bad_words": "", "stop_words": ""}
LIMIT = 60  # seconds for what takes one


def wait_for(condition, what, limit=LIMIT):
    end = time.monotonic() + limit
    while not (found := condition()):
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.02)
    return found


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def ask(port, path, body=None, timeout=LIMIT):
    """(status, text); status None: the connection was reset or refused."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
                           {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException) as error:
        return None, str(error)


def processes(mark):
    """{process id: name} of living processes that have `mark` in their command line, shells and Python excepted."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read().decode("utf-8", "replace")
            with open("/proc/%s/stat" % pid, encoding="utf-8") as f:
                stat = f.read()
        except OSError:
            continue
        name = stat[stat.index("(") + 1:stat.rindex(")")]
        if mark in words and stat[stat.rindex(")") + 2] != "Z" and name not in ("bash", "sh") and "python" not in name:
            found[int(pid)] = name
    return found


def environment_of(pid, name):
    try:
        with open("/proc/%d/environ" % pid, "rb") as f:
            values = dict(v.split(b"=", 1) for v in f.read().split(b"\0") if b"=" in v)
        return values.get(name.encode(), b"").decode()
    except OSError:
        return ""


class Group:
    """Started processes, and what they print."""

    def __init__(self, folder, command, mark, port, **environment):
        self.mark, self.port = mark, port
        self.log_path = os.path.join(folder, "group.log")
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                            env={**os.environ, **environment}, start_new_session=True)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read()

    def find_port(self):
        """The HTTP port of a server that has chosen it."""
        def found():
            return re.search(r"Started HTTPService at \S+:(\d+)", self.log())
        wait_for(lambda: found() or self.process.poll() not in (None, 0), lambda: "no port:\n" + self.log()[-4000:])
        assert found(), "it ended early:\n" + self.log()[-4000:]
        self.port = int(found()[1])

    def wait_ready(self, path="/v2/health/ready"):
        if self.port == 0:
            self.find_port()
        wait_for(lambda: ask(self.port, path)[0] == 200 or self.process.poll() not in (None, 0),
                 lambda: "not ready:\n" + self.log()[-4000:])
        assert self.process.poll() in (None, 0), "it ended early:\n" + self.log()[-4000:]
        return self

    def rank(self, number):
        """The process id of a launched process."""
        for name in ("OMPI_COMM_WORLD_RANK", "NEREID_LAUNCHED_RANK"):
            for pid, command in processes(self.mark).items():
                if command != "mpirun" and environment_of(pid, name) == str(number):
                    return pid
        raise AssertionError("no process is rank %d:\n%s" % (number, self.log()[-4000:]))

    def wait_end(self, code=0, limit=LIMIT):
        try:
            got = self.process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            raise AssertionError("it goes on:\n" + self.log()[-4000:]) from None
        assert code is None or got == code, "exit code %d instead of %d:\n%s" % (got, code, self.log()[-4000:])
        wait_for(lambda: not processes(self.mark), lambda: "left: %s\n%s" % (processes(self.mark), self.log()[-4000:]))

    def stop(self, signal_number=signal.SIGTERM, rank=0):
        os.kill(self.rank(rank), signal_number)
        self.wait_end()

    def kill_all(self):
        for pid in processes(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Bench:
    """Engines and repositories, and the answer of one process."""

    def __init__(self, build, work):
        self.bin, self.work, self.engines = os.path.join(build, "bin"), work, work
        os.environ["PATH"] = self.bin + os.pathsep + os.environ["PATH"]
        os.environ["NEREID"] = os.path.join(self.bin, "nereid")
        os.environ["NEREID_CACHE_DIR"] = os.path.join(work, "cache")
        import triton_server  # finds the server on the PATH
        for world in (2, 4):
            checkpoint = os.path.join(work, "checkpoint%d" % world)
            self.tool("convert_checkpoint", "--model_dir", MODEL, "--output_dir", checkpoint, "--dtype", "bfloat16",
                      "--tp_size", str(world))
            self.tool("trtllm-build", "--checkpoint_dir", checkpoint, "--output_dir", self.engine(world))
            triton_server.make_repository(self.repository(world), decoupled_mode="true", engine_dir=self.engine(world))

    def tool(self, *command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, "%s:\n%s" % (command, done.stdout[-3000:])

    def engine(self, world):
        return os.path.join(self.engines, "engine%d" % world)

    def repository(self, world):
        return os.path.join(self.work, "repository%s" % world)

    def start(self, command, mark, port, **environment):
        return Group(self.work, command, mark, port, **environment)

    def beside(self, work):
        """The same engines with a repository of two ranks of its own, whose processes are told apart by its path."""
        from triton_server import make_repository
        other = copy.copy(self)
        other.work = work
        os.makedirs(work, exist_ok=True)
        make_repository(other.repository(2), decoupled_mode="true", engine_dir=self.engine(2))
        return other

    def same_command(self, world, *flags, prefix=(), ranks=None, any_port=False):
        """mpirun with one command line for all ranks, as srun starts it."""
        http_port, grpc, metrics = (0, 0, 0) if any_port else free_ports(3)
        return self.start([*prefix, *MPIRUN, "-n", str(ranks or world), "tritonserver",
                           "--model-repository=" + self.repository(world), "--http-port=%d" % http_port,
                           "--grpc-port=%d" % grpc, "--metrics-port=%d" % metrics, "--disable-auto-complete-config",
                           *flags], self.repository(world), http_port)

    def orchestrator(self, prefix=()):
        """Process 0 serves a model whose two ranks are processes 1 and 2."""
        from triton_server import make_repository
        folder = self.repository("_of_participants")
        if not os.path.exists(folder):
            make_repository(folder, decoupled_mode="true", engine_dir=self.engine(2), participant_ids="1,2")
        return self.start([*prefix, *MPIRUN, "-n", "3", "tritonserver", "--model-repository=" + folder, "--http-port=0", "--grpc-port=0",
                           "--metrics-port=0", "--disable-auto-complete-config"], folder, 0, TRTLLM_ORCHESTRATOR="1",
                          TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES="0")

    def path_without_mpirun(self):
        path = os.path.join(self.work, "path")
        os.makedirs(path, exist_ok=True)
        for program in ("python3", "env"):
            link = os.path.join(path, program)
            if not os.path.exists(link):
                os.symlink(shutil.which(program), link)
        return path

    def launcher(self, world, *flags, any_port=False, **environment):
        http_port, grpc, metrics = (0, 0, 0) if any_port else free_ports(3)
        group = self.start([LAUNCHER, "--world_size=%d" % world, "--model_repo=" + self.repository(world),
                            "--http_port=%d" % http_port, "--grpc_port=%d" % grpc, "--metrics_port", str(metrics),
                            "--force", *flags], self.repository(world), http_port, **environment)
        assert group.process.wait(timeout=LIMIT) == 0, group.log()  # the servers go on
        return group


def answer(port, model="ensemble"):
    status, text = ask(port, "/v2/models/%s/generate" % model, QUESTION)
    assert status == 200, text
    return json.loads(text)["text_output"]


def check_answers(group, bench, models=("ensemble", "tensorrt_llm_bls")):
    for model in models:
        got = answer(group.port, model)
        assert got.endswith(bench.expected) or bench.expected.endswith(got), (got, bench.expected)


def one_process(bench):
    """The engine of two ranks in one process, which is asked for the text that all others must give."""
    http_port, grpc, metrics = free_ports(3)
    group = bench.start(["tritonserver", "--model-repository=" + bench.repository(2), "--http-port=%d" % http_port,
                         "--grpc-port=%d" % grpc, "--metrics-port=%d" % metrics], bench.repository(2), http_port)
    group.wait_ready()
    bench.expected = answer(http_port)
    assert len(bench.expected) > 20, bench.expected
    os.kill(group.process.pid, signal.SIGTERM)
    group.wait_end()


def launcher_with_mpirun(bench):
    for world, flags, rank in ((2, ["--oversubscribe"], 0), (4, ["--oversubscribe", "--tensorrt_llm_model_name", "tensorrt_llm"], 3)):
        group = bench.launcher(world, *flags).wait_ready()
        found = sorted(processes(group.mark).values())
        assert found == ["mpirun"] + ["tritonserver"] * world, found
        check_answers(group, bench)
        os.kill(group.rank(rank), signal.SIGTERM if rank else signal.SIGINT)
        wait_for(lambda: not processes(group.mark), lambda: "left: %s\n%s" % (processes(group.mark), group.log()[-3000:]))


def launcher_without_mpirun(bench):
    group = bench.launcher(2, PATH=bench.path_without_mpirun()).wait_ready()
    assert "2 processes are started without it" in group.log(), group.log()
    assert sorted(processes(group.mark).values()) == ["tritonserver"] * 2
    check_answers(group, bench)
    os.kill(group.rank(1), signal.SIGTERM)
    wait_for(lambda: not processes(group.mark), lambda: "left:\n" + group.log()[-3000:])


def written_out(bench):
    """The command line of the backend's guide: ports twice, a colon behind the last rank."""
    http_port, grpc, metrics = free_ports(3)
    ports = ["--grpc-port=%d" % grpc, "--http-port=%d" % http_port, "--metrics-port=%d" % metrics]
    command = list(MPIRUN)
    for rank in range(2):
        command += ["-n", "1", "tritonserver", "--model-repository=" + bench.repository(2), *ports]
        if rank > 0:
            command += ["--model-control-mode=explicit", "--load-model=tensorrt_llm"]
        command += [*ports, "--disable-auto-complete-config",
                    "--backend-config=python,shm-region-prefix-name=prefix%d_" % rank, ":"]
    group = bench.start(command, bench.repository(2), http_port).wait_ready()
    for rank in range(2):  # mpirun's default is a core for each
        assert os.sched_getaffinity(group.rank(rank)) == os.sched_getaffinity(0)
    check_answers(group, bench)
    for number in (signal.SIGTERM, signal.SIGTERM):  # as pkill reaches all
        for pid, name in processes(group.mark).items():
            if name == "tritonserver":
                os.kill(pid, number)
    group.wait_end()


def models_come_and_go(bench):
    group = bench.same_command(2, "--model-control-mode=explicit", "--load-model=*").wait_ready()
    worker = group.rank(1)
    for _ in range(3):
        check_answers(group, bench)
        for action in ("unload", "load"):
            status, text = ask(group.port, "/v2/repository/models/tensorrt_llm/" + action, {})
            assert status == 200, text
        wait_for(lambda: ask(group.port, "/v2/models/tensorrt_llm/ready")[0] == 200, group.log)
    assert group.rank(1) == worker
    check_answers(group, bench)
    group.stop(rank=1)


def other_commands(bench):
    for command in (["nereid", "serve", MODEL, "--tp", "2", "--device", "cpu", "--grpc-port", "-1", "--metrics-port", "-1", "--http-port"],
                    ["trtllm-llmapi-launch", "trtllm-serve", MODEL, "--tp_size", "2", "--pp_size", "1", "--ep_size", "1",
                     "--gpus_per_node", "2", "--device", "cpu", "--port"],
                    ["trtllm-serve", "serve", bench.engine(2), "--port"]):
        port = free_ports(1)[0]
        group = bench.start([*MPIRUN, "-n", "2", *command, str(port)], str(port), port)
        group.wait_ready("/v1/models")
        name = json.loads(ask(port, "/v1/models")[1])["data"][0]["id"]
        status, text = ask(port, "/v1/completions", {"model": name, "prompt": QUESTION["text_input"], "max_tokens": 24, "temperature": 0})
        assert status == 200, text
        got = json.loads(text)["choices"][0]["text"]
        assert got.strip() in bench.expected or bench.expected in got, (got, bench.expected)
        os.kill(group.process.pid, signal.SIGTERM)  # mpirun passes it on
        group.wait_end(code=None)


def mistakes(bench):
    group = bench.same_command(2, ranks=3)
    group.process.wait(timeout=LIMIT)
    group.wait_end(code=None)
    assert group.process.returncode != 0
    assert "Open MPI started 3 processes, but the model has 2 ranks" in group.log(), group.log()[-3000:]
    group = bench.same_command(2, "--http-port=x")
    group.wait_end(code=None)
    assert group.process.returncode != 0 and group.log().count("Got x") == 2, group.log()[-3000:]


class Clients:
    """Requests that never pause. `longest`: seconds behind `since` that one took which was under way then, or began up to `limit` s later."""

    def __init__(self, port, limit):
        self.port, self.limit, self.stopping = port, limit, False
        self.last, self.count = {}, 0
        self.since, self.longest = float("inf"), 0
        self.lock = threading.Lock()
        self.pool = concurrent.futures.ThreadPoolExecutor(3)
        self.futures = [self.pool.submit(self.run, i) for i in range(3)]

    def run(self, number):
        while not self.stopping:
            begin = time.monotonic()
            status, _ = ask(self.port, "/v2/models/ensemble/generate", dict(QUESTION, max_tokens=100))
            with self.lock:
                if begin < self.since + self.limit:
                    self.longest = max(self.longest, time.monotonic() - max(begin, self.since))
                self.last[number] = status
                self.count += 1
            if status != 200:
                time.sleep(0.01)

    def end(self):
        self.stopping = True
        for future in self.futures:
            future.result()  # TimeoutError: a client without an answer
        self.pool.shutdown()


# Outcome by process and signal: "stop": all end in order; "end": all end; "fail": the model becomes unready, its server ends when it
# is told to; "go on": nothing happens.
KILLS = {("leader", "TERM"): "stop", ("worker", "TERM"): "stop", ("mpirun", "TERM"): "end", ("shell", "TERM"): "go on",
         ("leader", "KILL"): "end", ("worker", "KILL"): "end", ("mpirun", "KILL"): "end", ("shell", "KILL"): "go on",
         ("leader", "STOP"): "end", ("worker", "STOP"): "end", ("mpirun", "STOP"): "go on", ("shell", "STOP"): "go on"}
KILLS_OF_GATE = (("worker", "TERM"), ("leader", "KILL"), ("worker", "KILL"), ("mpirun", "KILL"), ("worker", "STOP"))
# The shell waits for mpirun, whose exit code it returns.
SHELL = ["bash", "-c", '"$@"; exit $?', "bash"]


def alone(bench):
    """Processes that launch_triton_server.py starts without mpirun."""
    return bench.launcher(2, any_port=True, PATH=bench.path_without_mpirun())


# How a job starts, with the cases of its processes. The launcher is no shell that waits; without mpirun nobody ends the others.
JOBS = {"mpirun": (lambda bench: bench.same_command(2, prefix=SHELL, any_port=True), KILLS),
        "mpirun-orchestrator": (lambda bench: bench.orchestrator(SHELL), KILLS),
        "launcher": (lambda bench: bench.launcher(2, "--oversubscribe", any_port=True), {case: KILLS[case] for case in KILLS if case[0] != "shell"}),
        "launcher-alone": (alone, {**{case: KILLS[case] for case in KILLS if case[0] in ("leader", "worker")},
                                   ("worker", "KILL"): "fail", ("worker", "STOP"): "fail"})}


def kill(bench, who, name, answers_within, ends_within, job="mpirun"):
    start, outcomes = JOBS[job]
    outcome = outcomes[who, name]
    group, clients = start(bench), None
    try:
        group.wait_ready()
        clients = Clients(group.port, answers_within)
        wait_for(lambda: clients.count > 10, group.log)
        found = {"leader": group.rank(0), "worker": group.rank(1), "shell": group.process.pid}
        found.update((command, pid) for pid, command in processes(group.mark).items() if command == "mpirun")
        if outcome != "go on":
            clients.since = time.monotonic()
        os.kill(found[who], getattr(signal, "SIG" + name))
        if outcome == "go on":
            before = clients.count
            wait_for(lambda: clients.count > before + 20, group.log)
            clients.end()
            assert set(clients.last.values()) == {200}, clients.last
        elif outcome == "fail":
            wait_for(lambda: ask(group.port, "/v2/models/tensorrt_llm/ready")[0] not in (200, None), group.log, answers_within)
            wait_for(lambda: 200 not in clients.last.values(), group.log, answers_within)
        if outcome in ("go on", "fail"):
            os.kill(found["leader"], signal.SIGTERM)
            if name == "STOP" and outcome == "go on":
                os.kill(found[who], signal.SIGCONT)
        wait_for(lambda: not processes(group.mark), lambda: "orphans: %s\n%s" % (processes(group.mark), group.log()[-3000:]),
                 ends_within if outcome != "go on" else LIMIT)
        clients.end()
        assert clients.longest < answers_within, "a client had its answer after %.1f s" % clients.longest
        code = group.process.wait(timeout=LIMIT)
        assert outcome != "stop" or code == 0, "exit code %d:\n%s" % (code, group.log()[-3000:])
        return code
    except BaseException:
        print(group.log()[-5000:])
        raise
    finally:
        if clients:
            clients.stopping = True
        group.kill_all()


SCENARIOS = (one_process, launcher_with_mpirun, launcher_without_mpirun, written_out, models_come_and_go, other_commands, mistakes)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--only", default="", help="names of scenarios, or of kills such as worker-TERM")
    options = parser.parse_args()
    if not shutil.which("mpirun"):
        skip("launched", "mpirun is not installed (openmpi-bin)")
        return
    build = os.path.abspath(options.build)
    work = os.path.join(build, "e2e", "launched")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    bench = Bench(build, work)
    for scenario in SCENARIOS:
        if options.only and scenario.__name__ not in options.only and scenario is not one_process:
            continue
        start = time.monotonic()
        scenario(bench)
        print("launched %s: passed in %.1f s" % (scenario.__name__, time.monotonic() - start), flush=True)
    for who, name in KILLS_OF_GATE:
        if options.only and "%s-%s" % (who, name) not in options.only:
            continue
        start = time.monotonic()
        code = kill(bench, who, name, LIMIT, LIMIT)  # a loaded machine is given more time
        print("launched SIG%s to the %s: %s, exit code %d, %.1f s" % (name, who, KILLS[who, name], code, time.monotonic() - start), flush=True)
    print("launched: all passed")


if __name__ == "__main__":
    sys.exit(main())
