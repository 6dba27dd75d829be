"""`nereid serve --hosts N` with `nereid worker` processes that join it through 127.0.0.1: answers have the bits of one rank,
whether ranks exchange through memory or TCP, with TLS or without, one or two ranks in a process; wrong tokens, versions and
engines are refused with a line; a process that dies or hangs is noticed; one that is started again takes its place; nothing is
left over.

usage: hosts.py BUILD_DIR"""
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

NEREID = os.path.join(os.path.realpath(sys.argv[1]), "bin", "nereid")
MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "quickstart")
PROMPTS = ["What is machine learning?", "The capital of France is", "Once upon a time"]
INVARIANT = ["--device", "cpu", "--tp-invariant", "--threads", "1"]
LIMIT = 60


def wait_for(condition, what, limit=LIMIT):
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.02)


def children(pid):
    found = []
    for task in os.listdir("/proc/%d/task" % pid):
        with contextlib.suppress(FileNotFoundError), open("/proc/%d/task/%s/children" % (pid, task), encoding="utf-8") as file:
            found += [int(word) for word in file.read().split()]  # a thread may have ended
    return found


class Process:
    def __init__(self, folder, name, *arguments, prefix=(), **environment):
        self.path = os.path.join(folder, name + ".log")
        with open(self.path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([*prefix, NEREID, *arguments], stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                            env={**os.environ, **environment})

    def log(self):
        with open(self.path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def ends(self, code, limit=LIMIT):
        try:
            got = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise AssertionError("it goes on:\n" + self.log()) from None
        assert code is None or got == code, "exit code %s instead of %s:\n%s" % (got, code, self.log())


class Group:
    """A serving process and the workers of its other ranks."""

    def __init__(self, folder, *flags, hosts=2, worker_flags=(), leader_flags=(), model=MODEL, workers=None, join=0, **environment):
        self.folder, self.hosts = folder, hosts
        self.token = os.path.join(folder, "token")
        with open(self.token, "w", encoding="utf-8") as file:
            file.write("0123456789abcdef0123456789abcdef\n")
        self.ports = os.path.join(folder, "ports")
        if os.path.exists(self.ports):
            os.remove(self.ports)
        self.leader = Process(folder, "leader", "serve", model, "--http-port", "0", "--grpc-port", "-1", "--metrics-port", "0",
                              "--host", "127.0.0.1", "--port-file", self.ports, "--hosts", str(hosts), "--join-token-file", self.token,
                              "--join-address", "127.0.0.1:%d" % join, *flags, *leader_flags, **environment)
        self.join = join or self.find_port()
        self.workers = [self.worker(i, *worker_flags) for i in range(1, hosts)] if workers is None else workers

    def find_port(self):
        def found():
            return re.search(r"waiting at 127\.0\.0\.1:(\d+) for", self.leader.log())
        wait_for(lambda: found() or self.leader.process.poll() is not None, self.leader.log)
        assert found(), self.leader.log()
        return int(found()[1])

    def worker(self, number, *flags, token=None, join=None):
        return Process(self.folder, "worker%d" % number, "worker", "--join", "127.0.0.1:%d" % (join or self.join), "--token-file",
                       token or self.token, "--address", "127.0.0.1:0", "--threads", "1", *flags)

    def all(self):
        return [self.leader, *self.workers]

    def logs(self):
        return "\n".join("--- %s\n%s" % (p.path, p.log()[-4000:]) for p in self.all())

    def wait_ready(self):
        wait_for(lambda: os.path.exists(self.ports) or self.leader.process.poll() is not None, self.logs)
        assert self.leader.process.poll() is None, self.logs()
        with open(self.ports, encoding="utf-8") as file:
            ports = dict(line.strip().split("=") for line in file)
        self.http, self.metrics = ports["http"], ports["metrics"]
        return self

    def metric(self, family):
        """The sum of a family's values; None: there is none."""
        with urllib.request.urlopen("http://127.0.0.1:%s/metrics" % self.metrics, timeout=LIMIT) as page:
            found = [float(line.rsplit(" ", 1)[1]) for line in page.read().decode().splitlines() if line.startswith(family + "{")]
        return sum(found) if found else None

    def get(self, path):
        try:
            with urllib.request.urlopen("http://127.0.0.1:%s%s" % (self.http, path), timeout=LIMIT) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def ask(self, prompt, tokens=24):
        body = {"text_input": prompt, "max_tokens": tokens, "bad_words": "", "stop_words": "", "end_id": -1, "return_log_probs": True}
        request = urllib.request.Request("http://127.0.0.1:%s/v2/models/ensemble/generate" % self.http, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=LIMIT) as answer:
                reply = json.load(answer)
                return reply["text_output"], reply["output_log_probs"], reply["cum_log_probs"]
        except urllib.error.HTTPError as error:
            return error.code

    def stop(self, who=None, number=signal.SIGTERM):
        (who or self.leader).process.send_signal(number)
        for process in self.all():
            process.ends(0)

    def kill_all(self):
        for process in self.all():  # a supervisor's child ends with it
            if process.process.poll() is None:
                process.process.kill()
                process.process.wait()


def running(function):
    """Calls function(folder, groups); groups that are appended are killed at the end, with their logs when it fails."""
    groups = []
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        try:
            function(folder, groups)
        except BaseException:
            for group in groups:
                print(group.logs())
            raise
        finally:
            for group in groups:
                group.kill_all()
    print("hosts %s: passed in %.1f s" % (function.__name__, time.monotonic() - start), flush=True)


def certificates(folder):
    """A root and a certificate that it has signed, for all processes."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=root", "-days", "2")
    openssl("req", *new_key, "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=host")
    openssl("x509", "-req", "-in", "host.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "host.pem", "-days", "2")
    paths = {name: os.path.join(folder, name) for name in ("host.pem", "host.key", "ca.pem")}
    return ["--join-tls-cert", paths["host.pem"], "--join-tls-key", paths["host.key"], "--join-tls-root", paths["ca.pem"]]


EXPECTED = []


def one_rank(folder, groups):
    del groups
    ports = os.path.join(folder, "ports")
    alone = Process(folder, "alone", "serve", MODEL, "--http-port", "0", "--grpc-port", "-1", "--metrics-port", "0", "--port-file", ports,
                    *INVARIANT)
    try:
        wait_for(lambda: os.path.exists(ports) or alone.process.poll() is not None, alone.log)
        group = Group.__new__(Group)
        with open(ports, encoding="utf-8") as file:
            group.http = dict(line.strip().split("=") for line in file)["http"]
        EXPECTED.extend(group.ask(prompt) for prompt in PROMPTS)
        assert all(len(text) > 20 for text, _, _ in EXPECTED), EXPECTED
    finally:
        alone.process.terminate()
        alone.ends(0)


def check(group):
    got = [group.ask(prompt) for prompt in PROMPTS]
    assert got == EXPECTED, "%s\ninstead of\n%s\n%s" % (got, EXPECTED, group.logs())


def memory(folder, groups):
    groups.append(Group(folder, "--tp", "2", *INVARIANT).wait_ready())
    assert "exchange through the memory of this host" in groups[0].leader.log()
    check(groups[0])
    groups[0].stop()


def tcp(folder, groups):
    groups.append(Group(folder, "--tp", "2", "--join-exchange", "tcp", *INVARIANT).wait_ready())
    assert "exchange through TCP" in groups[0].leader.log()
    check(groups[0])
    groups[0].stop(groups[0].workers[0])


def four_ranks_with_tls(folder, groups):
    tls = certificates(folder)
    groups.append(Group(folder, "--tp", "2", "--pp", "2", "--join-exchange", "tcp", *INVARIANT, hosts=4, worker_flags=tls,
                        leader_flags=tls).wait_ready())
    check(groups[0])
    groups[0].stop()


def two_ranks_each(folder, groups):
    """Processes with two ranks of the model: tensor ranks in one process, and tensor ranks of both."""
    for flags in (("--tp", "2", "--pp", "2", "--join-exchange", "tcp"), ("--tp", "4", "--join-exchange", "tcp"), ("--tp", "2", "--pp", "2")):
        group = Group(folder, *flags, *INVARIANT).wait_ready()
        groups.append(group)
        check(group)
        group.stop(group.workers[0])
    group = Group(folder, "--tp", "3", *INVARIANT)
    groups.append(group)
    group.leader.ends(1)
    assert "hosts: 2 processes for 3 ranks" in group.leader.log(), group.logs()
    group.workers[0].ends(None)


def silent_peers(folder, groups):
    """More connections that say nothing than hellos are awaited: the worker joins, and takes its rank."""
    group = Group(folder, "--tp", "2", "--join-exchange", "tcp", *INVARIANT, workers=[])
    groups.append(group)
    peers = [socket.create_connection(("127.0.0.1", group.join)) for _ in range(300)]
    peers[-1].sendall(b"\x40")  # the beginning of a frame
    group.workers.append(group.worker(1))
    group.wait_ready()
    check(group)
    for peer in peers:
        peer.close()
    group.stop()


def worker_comes_back(folder, groups):
    """A killed worker's supervisor starts another one, which joins; the leader opens the model again, with a back-off."""
    group = Group(folder, "--tp", "2", "--join-exchange", "tcp", "--restart-failed", "true", *INVARIANT, worker_flags=("--restart",)).wait_ready()
    groups.append(group)
    check(group)
    for restarts in (1, 2):
        (child,) = children(group.workers[0].process.pid)
        os.kill(child, signal.SIGKILL)
        wait_for(lambda: group.metric("nereid_instance_restarts_total") == restarts and group.metric("nereid_instance_healthy") == 1, group.logs)
        wait_for(lambda: group.get("/v2/models/tensorrt_llm/ready") == 200, group.logs)
        check(group)
    group.stop()


def leader_comes_back(folder, groups):
    """A worker that is started again joins the next leader."""
    group = Group(folder, "--tp", "2", *INVARIANT, worker_flags=("--restart",)).wait_ready()
    groups.append(group)
    group.leader.process.kill()
    group.leader.ends(None)
    second = Group(folder, "--tp", "2", *INVARIANT, join=group.join, workers=[])
    second.workers, group.workers = group.workers, []
    groups.append(second)
    second.wait_ready()
    check(second)
    second.stop()


def refusals(folder, groups):
    group = Group(folder, "--tp", "2", *INVARIANT, workers=[])
    groups.append(group)
    other = os.path.join(folder, "other")
    with open(other, "w", encoding="utf-8") as file:
        file.write("fedcba9876543210fedcba9876543210")
    stranger = group.worker(1, token=other)
    stranger.ends(1)
    assert "refused: the token is another one" in stranger.log(), stranger.log()
    with socket.create_connection(("127.0.0.1", group.join)) as s:
        hello = json.dumps({"token": open(group.token, encoding="utf-8").read().strip(), "version": "0.0.1", "kind": "join", "rank": 0,
                            "port": 1}).encode()
        s.sendall(struct.pack("<I", len(hello)) + hello)
        assert b"version 0.0.1 meets version" in s.recv(4096)
    beyond = group.worker(2, "--rank", "5")
    beyond.ends(1)
    assert "rank 5 is not below the 2 processes" in beyond.log(), beyond.log()
    # The group still comes together.
    group.workers.append(group.worker(3, "--rank", "1"))
    group.wait_ready()
    check(group)
    assert group.leader.log().count("a process that wanted to join was refused") == 3, group.logs()
    group.stop()


def other_engine(folder, groups):
    """Workers with a copy of the engines, with a file that has another engine, and with none."""
    cache, copy = os.path.join(folder, "cache"), os.path.join(folder, "copy")
    groups.append(Group(folder, "--tp", "2", *INVARIANT, NEREID_CACHE_DIR=cache).wait_ready())
    groups[0].stop()
    shutil.copytree(os.path.join(cache, "engines"), copy)
    flags = ("--tp", "2", "--join-exchange", "tcp", *INVARIANT)
    groups.append(Group(folder, *flags, worker_flags=("--engine-dir", copy), NEREID_CACHE_DIR=cache).wait_ready())
    check(groups[1])
    groups[1].stop()
    names = sorted(name for name in os.listdir(copy) if name.endswith(".engine"))
    assert len(names) == 2, names
    for name, other in zip(names, reversed(names)):
        shutil.copy(os.path.join(cache, "engines", other), os.path.join(copy, name))
    empty = os.path.join(folder, "empty")
    os.mkdir(empty)
    for where, text in ((copy, "the engine's hash is"), (empty, "No such file")):
        group = Group(folder, *flags, worker_flags=("--engine-dir", where), NEREID_CACHE_DIR=cache)
        groups.append(group)
        group.leader.ends(1)
        assert "rank 1: " in group.leader.log() and text in group.leader.log(), group.logs()
        group.workers[0].ends(None)


def dies(number, exchange, within=5):
    def scenario(folder, groups):
        group = Group(folder, "--tp", "2", "--join-exchange", exchange, *INVARIANT).wait_ready()
        groups.append(group)
        check(group)
        begin = time.monotonic()
        group.workers[0].process.send_signal(number)
        wait_for(lambda: group.get("/v2/models/tensorrt_llm/ready") != 200, group.logs, within)
        noticed = time.monotonic() - begin
        assert group.ask(PROMPTS[0]) in (500, 503), group.logs()
        assert "rank 1 (process" in group.leader.log(), group.logs()
        group.leader.process.terminate()
        group.leader.ends(None)
        group.workers[0].process.send_signal(signal.SIGCONT)
        group.workers[0].ends(None)
        print("  noticed after %.2f s" % noticed)
    scenario.__name__ = "worker_gets_%s_%s" % (signal.Signals(number).name, exchange)
    return scenario


def leader_dies(folder, groups):
    group = Group(folder, "--tp", "2", *INVARIANT).wait_ready()
    groups.append(group)
    group.leader.process.kill()
    group.workers[0].ends(1, 5)
    assert "has ended" in group.workers[0].log(), group.logs()


SCENARIOS = [one_rank, memory, tcp, four_ranks_with_tls, two_ranks_each, silent_peers, worker_comes_back, leader_comes_back, refusals, other_engine, dies(signal.SIGKILL, "auto"), dies(signal.SIGKILL, "tcp"),
             dies(signal.SIGSTOP, "tcp"), leader_dies]


def main():
    only = sys.argv[2:]
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("NEREID_CACHE_DIR", cache)
        for scenario in SCENARIOS:
            if not only or scenario is one_rank or scenario.__name__ in only:
                running(scenario)
    print("hosts: all passed")


if __name__ == "__main__":
    main()
