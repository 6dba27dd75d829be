"""Kills, stops or ends a process of a serving group at a random moment under load, in each process mode, and prints a table:
whether requests were all answered, how soon the model became unready, how soon everything had ended, and what was left over. Not
part of the gate: 100 rounds take hours.

usage: kill_rounds.py BUILD_DIR [ROUNDS [MODE-WHO-SIGNAL ...]]     (1, all)"""
import collections
import concurrent.futures
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time

import hosts
from hosts import PROMPTS, Group, Process, wait_for

NOTICED_WITHIN, ENDS_WITHIN, ANSWER_WITHIN = 5, 10, 30
BASE = ("--device", "cpu", "--threads", "2")
MODES = {"leader": ("--tp", "2"), "rank-processes": ("--tp", "2", "--rank-processes"), "orchestrator": ("--process-mode", "orchestrator"),
         "join-memory": ("--tp", "2"), "join-tcp": ("--tp", "2", "--join-exchange", "tcp")}
# Expected outcome by mode, process and signal. stop: all end in order. die: all end. fail: the model becomes unready, requests
# are answered, the server ends when it is told to. back: the model fails and serves again. ignore: nothing happens.
OUTCOMES = {("leader", "server", "TERM"): "stop", ("leader", "server", "KILL"): "die"}
for mode in ("rank-processes", "orchestrator"):
    failed = "fail" if mode == "rank-processes" else "back"
    OUTCOMES.update({(mode, "server", "TERM"): "stop", (mode, "server", "KILL"): "die", (mode, "rank", "TERM"): "ignore",
                     (mode, "rank", "KILL"): failed, (mode, "rank", "STOP"): failed})
for mode in ("join-memory", "join-tcp"):
    OUTCOMES.update({(mode, "server", "TERM"): "stop", (mode, "server", "KILL"): "die", (mode, "rank", "TERM"): "stop",
                     (mode, "rank", "KILL"): "fail", (mode, "rank", "STOP"): "fail"})


def children(pid):
    found = []
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/children" % (pid, task), encoding="utf-8") as file:
            found += [int(word) for word in file.read().split()]
    return found


def exists(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
            return file.read().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


class Alone(Group):
    """A server without workers that join it; its ranks are threads or children."""

    def __init__(self, folder, *flags):
        self.folder, self.workers, self.ports = folder, [], os.path.join(folder, "ports")
        if os.path.exists(self.ports):
            os.remove(self.ports)
        self.leader = Process(folder, "leader", "serve", hosts.MODEL, "--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "-1",
                              "--metrics-port", "0", "--port-file", self.ports, *flags)


class Load:
    """Requests without a pause; counts answers by what they were. `refused` are connections to a server that has ended."""

    def __init__(self, group):
        self.group, self.stopping, self.answers, self.last = group, False, collections.Counter(), {}
        self.lock = threading.Lock()
        self.pool = concurrent.futures.ThreadPoolExecutor(3)
        self.futures = [self.pool.submit(self.run, i) for i in range(3)]

    def run(self, number):
        while not self.stopping:
            begin = time.monotonic()
            try:
                answer = self.group.ask(PROMPTS[number % len(PROMPTS)], 64)
                kind = str(answer) if isinstance(answer, int) else "200"
            except (OSError, ValueError) as error:
                kind = "refused"
                if isinstance(error, socket.timeout):
                    kind = "hang"
            if time.monotonic() - begin > ANSWER_WITHIN:
                kind = "hang"
            with self.lock:
                self.answers[kind] += 1
                self.last[number] = kind
            if kind != "200":
                time.sleep(0.01)

    def end(self):
        self.stopping = True
        for future in self.futures:
            future.result()
        self.pool.shutdown()


def within(limit, condition):
    """Seconds until it holds, or None."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > limit:
            return None
        time.sleep(0.01)
    return time.monotonic() - begin


def is_ready(group):
    try:
        return group.get("/v2/models/tensorrt_llm/ready") == 200
    except OSError:
        return False


def kill_round(folder, mode, who, name, seed):
    """A fault, or None; seconds until it was noticed and until all had ended; answers."""
    group = (Group if mode.startswith("join") else Alone)(folder, *BASE, *MODES[mode])
    victims, figures, load = [], {}, None
    try:
        group.wait_ready()
        ranks = [worker.process.pid for worker in group.workers] or children(group.leader.process.pid)
        victims = [group.leader.process.pid, *ranks]
        load = Load(group)
        wait_for(lambda: load.answers["200"] > 3, group.logs)
        time.sleep(random.Random(seed).random() * 0.3)
        os.kill(group.leader.process.pid if who == "server" else ranks[0], getattr(signal, "SIG" + name))
        outcome = OUTCOMES[mode, who, name]
        if outcome in ("fail", "back"):
            figures["noticed"] = within(NOTICED_WITHIN, lambda: not is_ready(group) or load.answers["503"] > 0)
            if figures["noticed"] is None:
                return "not noticed", figures, load.answers
        if outcome in ("ignore", "back"):
            before = load.answers["200"]
            if within(60, lambda: is_ready(group) and load.answers["200"] > before + 5) is None:
                return "does not serve", figures, load.answers
            victims += children(group.leader.process.pid)
        begin = time.monotonic()
        if outcome in ("fail", "back", "ignore"):
            load.stopping = True
            group.leader.process.terminate()
            if name == "STOP" and mode.startswith("join"):
                os.kill(ranks[0], signal.SIGCONT)  # a suspended process of another host ends when it goes on
        for process in group.all():
            left = ENDS_WITHIN + (30 if outcome == "stop" else 0) - (time.monotonic() - begin)
            if within(left, lambda process=process: process.process.poll() is not None) is None:
                return "goes on", figures, load.answers
        figures["ended"] = time.monotonic() - begin
        load.end()
        if load.answers["hang"]:
            return "a request without an answer", figures, load.answers
        if within(1, lambda: not any(exists(pid) for pid in victims)) is None:
            return "left over", figures, load.answers
        codes = [process.process.returncode for process in group.all()]
        if outcome == "stop" and any(codes):
            return "exit codes %s" % codes, figures, load.answers
        return None, figures, load.answers
    finally:
        if load:
            load.stopping = True
        for pid in victims:
            if exists(pid):
                os.kill(pid, signal.SIGKILL)
        group.kill_all()


def text_of(values):
    known = sorted(value for value in values if value is not None)
    return "%.2f / %.2f" % (known[len(known) // 2], known[-1]) if known else "-"


def main():
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    only = sys.argv[3:]
    print("| mode | process | signal | must follow | rounds | faults | noticed s (median / most) | ended s | answers |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    num_faults = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("NEREID_CACHE_DIR", os.path.join(folder, "cache"))
        for (mode, who, name), outcome in OUTCOMES.items():
            if only and "%s-%s-%s" % (mode, who, name) not in only and mode not in only:
                continue
            faults, figures, answers = collections.Counter(), collections.defaultdict(list), collections.Counter()
            for number in range(rounds):
                fault, measured, seen = kill_round(folder, mode, who, name, number)
                if fault:
                    faults[fault] += 1
                answers.update(seen)
                for key, value in measured.items():
                    figures[key].append(value)
            num_faults += sum(faults.values())
            print("| %s | %s | %s | %s | %d | %s | %s | %s | %s |" % (
                mode, who, name, outcome, rounds, ", ".join("%d %s" % (n, what) for what, n in faults.items()) or 0,
                text_of(figures["noticed"]), text_of(figures["ended"]), ", ".join("%d %s" % (n, kind) for kind, n in sorted(answers.items()))),
                flush=True)
    sys.exit(1 if num_faults else 0)


main()
