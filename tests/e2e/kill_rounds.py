"""Kills, stops or ends a process of a serving group at a random moment under load, in each process mode, and prints a table:
whether requests were all answered, how soon the model became unready, how soon everything had ended, exit codes, and what was left
over. Rounds run side by side, on free ports, in folders of their own. Not part of the gate: 100 rounds take hours on few cores.

usage: kill_rounds.py BUILD_DIR [--rounds N] [--jobs N] [--seed N] [MODE | MODE-WHO-SIGNAL ...]
       (1 round; a job for each four cores; seed 0; all cases)"""
import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time

import hosts
from hosts import PROMPTS, Group, Process, children, wait_for

NOTICED_WITHIN, ENDS_WITHIN, ANSWER_WITHIN = 5, 10, 30
BASE = ("--device", "cpu", "--threads", "2")
MODES = {"leader": ("--tp", "2"), "rank-processes": ("--tp", "2", "--rank-processes"), "orchestrator": ("--process-mode", "orchestrator"),
         "join-memory": ("--tp", "2"), "join-tcp": ("--tp", "2", "--join-exchange", "tcp"),
         "join-restart": ("--tp", "2", "--join-exchange", "tcp", "--restart-failed", "true")}
# Expected outcome by mode, process and signal, under load. stop: all end in order. die: all end. fail: the model becomes unready, requests
# are answered, the server ends when it is told to. back: the model fails and serves again. ignore: nothing happens.
OUTCOMES = {("leader", "server", "TERM"): "stop", ("leader", "server", "KILL"): "die"}
for mode in ("rank-processes", "orchestrator"):
    failed = "fail" if mode == "rank-processes" else "back"
    OUTCOMES.update({(mode, "server", "TERM"): "stop", (mode, "server", "KILL"): "die", (mode, "rank", "TERM"): "ignore",
                     (mode, "rank", "KILL"): failed, (mode, "rank", "STOP"): failed})
for mode in ("join-memory", "join-tcp"):
    OUTCOMES.update({(mode, "server", "TERM"): "stop", (mode, "server", "KILL"): "die", (mode, "rank", "TERM"): "stop",
                     (mode, "rank", "KILL"): "fail", (mode, "rank", "STOP"): "fail"})
OUTCOMES.update({("join-restart", "server", "TERM"): "stop", ("join-restart", "rank", "TERM"): "stop", ("join-restart", "rank", "KILL"): "back"})
# At a random moment of the start, of the load of the model or of what follows. end: all end, at the latest when the server is told to.
STARTING = "starting-"
for mode in MODES:
    OUTCOMES.update({(mode, STARTING + who, "KILL"): "end" for who in ("server", "rank") if mode != "leader" or who == "server"})
# Processes that mpirun has started (launched.py). go on: nothing happens.
LAUNCHED = "mpirun"


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


def start_group(folder, mode):
    restarts = {"worker_flags": ("--restart",)} if mode == "join-restart" else {}
    return (Group if mode.startswith("join") else Alone)(folder, *BASE, *MODES[mode], **restarts)


def kill_starting(folder, mode, who, seed):
    """As kill_round(), at a moment before the group is ready, or little later."""
    group, victims, figures = start_group(folder, mode), [], {"codes": []}
    server = group.leader.process
    try:
        draw = random.Random(seed)
        time.sleep(draw.random() * 2)
        if who == STARTING + "rank":  # processes that the server starts may come later, and not at all when it is slow
            within(NOTICED_WITHIN, lambda: group.workers or server.poll() is not None or children(server.pid))
        ranks = [worker.process.pid for worker in group.workers] or (children(server.pid) if server.poll() is None else [])
        victims = [server.pid, *ranks]
        victim = server.pid if who == STARTING + "server" or not ranks else draw.choice(ranks)
        os.kill(victim, signal.SIGKILL)
        within(NOTICED_WITHIN / 2, lambda: server.poll() is not None)
        begin = time.monotonic()
        if server.poll() is None:
            victims += children(server.pid)
            server.terminate()
        if victim == server.pid:  # workers that it has not met wait for another one
            for worker in group.workers:
                worker.process.terminate()
        for process in group.all():
            if within(2 * ENDS_WITHIN + 30, lambda process=process: process.process.poll() is not None) is None:
                return "goes on", figures, collections.Counter()
        figures.update(ended=time.monotonic() - begin, codes=[process.process.returncode for process in group.all()])
        left = within(1, lambda: not any(exists(pid) for pid in victims)) is None
        return "left over" if left else None, figures, collections.Counter()
    finally:
        for pid in victims:
            if exists(pid):
                os.kill(pid, signal.SIGKILL)
        group.kill_all()


def kill_round(folder, mode, who, name, seed):
    """A fault, or None; seconds until it was noticed and until all had ended; answers."""
    group = start_group(folder, mode)
    victims, figures, load = [], {"codes": []}, None
    try:
        group.wait_ready()
        ranks = [worker.process.pid for worker in group.workers] or children(group.leader.process.pid)
        if mode == "join-restart":
            ranks = [child for rank in ranks for child in children(rank)]
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
            if name == "STOP" and mode.startswith("join") and exists(ranks[0]):
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
        codes = figures["codes"] = [process.process.returncode for process in group.all()]
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


def one_round(task):
    """(case, fault, figures, answers) of a round in a folder of its own."""
    (mode, who, name), number, seed, work, bench = task
    seed = "%d %s %s %s %d" % (seed, mode, who, name, number)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        try:
            if who.startswith(STARTING):
                return (mode, who, name), *kill_starting(folder, mode, who, seed)
            if mode != LAUNCHED:
                return (mode, who, name), *kill_round(folder, mode, who, name, seed)
            import launched
            begin = time.monotonic()
            code = launched.kill(bench.beside(folder), who, name, NOTICED_WITHIN, ENDS_WITHIN)
            return (mode, who, name), None, {"codes": [code], "ended": time.monotonic() - begin}, collections.Counter()
        except (AssertionError, TimeoutError, OSError) as error:
            print("round %s: %s" % (seed, str(error)[-3000:]), file=sys.stderr, flush=True)
            return (mode, who, name), "%s" % type(error).__name__, {"codes": []}, collections.Counter()


def text_of(values):
    known = sorted(value for value in values if value is not None)
    return "%.2f / %.2f" % (known[len(known) // 2], known[-1]) if known else "-"


def counts(counter):
    return ", ".join("%d %s" % (n, what) for what, n in sorted(counter.items(), key=str)) or "-"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=max(len(os.sched_getaffinity(0)) // 4, 1))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("only", nargs="*")
    options = parser.parse_intermixed_args()
    cases = {**OUTCOMES}
    bench = None
    with tempfile.TemporaryDirectory() as work:
        os.environ.setdefault("NEREID_CACHE_DIR", os.path.join(work, "cache"))
        if shutil.which("mpirun"):
            import launched
            cases.update({(LAUNCHED, *case): outcome for case, outcome in launched.KILLS.items()})
        else:
            print("SKIP the cases of mpirun: it is not installed (openmpi-bin)", file=sys.stderr)
        cases = {case: outcome for case, outcome in cases.items()
                 if not options.only or "-".join(case) in options.only or case[0] in options.only}
        if any(mode == LAUNCHED for mode, _, _ in cases):
            bench = launched.Bench(os.path.abspath(options.build), os.path.join(work, "bench"))
        # Rounds of all cases in turn: jobs that run side by side are of several modes.
        tasks = [(case, number, options.seed, work, bench) for number in range(options.rounds) for case in cases]
        faults, answers, codes = ({case: collections.Counter() for case in cases} for _ in range(3))
        figures = {case: collections.defaultdict(list) for case in cases}
        begin = time.monotonic()
        with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
            for case, fault, measured, seen in pool.map(one_round, tasks):
                if fault:
                    faults[case][fault] += 1
                answers[case].update(seen)
                codes[case][str(measured.pop("codes"))] += 1
                for key, value in measured.items():
                    figures[case][key].append(value)
    print("| mode | process | signal | must follow | rounds | faults | noticed s (median / most) | ended s | exit codes | answers |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case, outcome in cases.items():
        print("| %s | %s | %s | %s | %d | %s | %s | %s | %s | %s |" % (
            *case, outcome, options.rounds, counts(faults[case]), text_of(figures[case]["noticed"]), text_of(figures[case]["ended"]),
            counts(codes[case]), counts(answers[case])))
    num_faults = sum(sum(found.values()) for found in faults.values())
    print("%d rounds of %d cases, %d at once, in %.0f s: %d faults" % (options.rounds, len(cases), options.jobs, time.monotonic() - begin, num_faults))
    sys.exit(1 if num_faults else 0)


if __name__ == "__main__":
    main()
