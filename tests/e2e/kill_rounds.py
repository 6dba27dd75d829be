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

NOTICED_WITHIN, ENDS_WITHIN, ANSWER_WITHIN = 5, 10, 5
SHELL = ("bash", "-c", '"$@"; exit $?', "bash")
BASE = ("--device", "cpu", "--threads", "2")
MODES = {"leader": ("--tp", "2"), "rank-processes": ("--tp", "2", "--rank-processes"), "orchestrator": ("--process-mode", "orchestrator"),
         "join-memory": ("--tp", "2"), "join-tcp": ("--tp", "2", "--join-exchange", "tcp"),
         "join-restart": ("--tp", "2", "--join-exchange", "tcp", "--restart-failed", "true")}
# Expected outcome by mode, process and signal, under load. stop: all end in order. die: all end. fail: the model becomes unready, requests
# are answered, the server ends when it is told to. back: the model fails and serves again. ignore: nothing happens. hold: nothing happens
# until the process goes on, for nobody else can act. lose: as hold, but its workers end, and the model fails.
OUTCOMES = {("leader", "server", "TERM"): "stop", ("leader", "server", "KILL"): "die", ("leader", "server", "STOP"): "hold"}
for mode in ("leader", "rank-processes", "orchestrator"):  # "shell": waits for the server
    OUTCOMES.update({(mode, "shell", name): "ignore" for name in ("TERM", "KILL", "STOP")})
for mode in ("rank-processes", "orchestrator"):
    failed = "fail" if mode == "rank-processes" else "back"
    OUTCOMES.update({(mode, "server", "TERM"): "stop", (mode, "server", "KILL"): "die", (mode, "server", "STOP"): "die", (mode, "rank", "TERM"): "ignore",
                     (mode, "rank", "KILL"): failed, (mode, "rank", "STOP"): failed})
for mode in ("join-memory", "join-tcp"):
    OUTCOMES.update({(mode, "server", "TERM"): "stop", (mode, "server", "KILL"): "die", (mode, "server", "STOP"): "lose",
                     (mode, "rank", "TERM"): "stop", (mode, "rank", "KILL"): "fail", (mode, "rank", "STOP"): "fail"})
OUTCOMES.update({("join-restart", "server", "TERM"): "stop", ("join-restart", "server", "KILL"): "die", ("join-restart", "rank", "TERM"): "stop",
                 ("join-restart", "rank", "KILL"): "back", ("join-restart", "rank", "STOP"): "back"})
# At a random moment of the start, of the load of the model or of what follows. end: all end, at the latest when the server is told to.
STARTING = "starting-"
for mode in MODES:
    OUTCOMES.update({(mode, STARTING + who, "KILL"): "end" for who in ("server", "rank") if mode != "leader" or who == "server"})
# Cases of processes that mpirun or launch_triton_server.py has started: JOBS of launched.py.


def exists(pid):
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8") as file:
            return file.read().rsplit(") ", 1)[1][0] != "Z"
    except OSError:
        return False


class Alone(Group):
    """A server without workers that join it; its ranks are threads or children."""

    def __init__(self, folder, *flags, prefix=()):
        self.folder, self.workers, self.ports = folder, [], os.path.join(folder, "ports")
        if os.path.exists(self.ports):
            os.remove(self.ports)
        self.leader = Process(folder, "leader", "serve", hosts.MODEL, "--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "-1",
                              "--metrics-port", "0", "--port-file", self.ports, *flags, prefix=prefix)


class Load:
    """Requests without a pause; counts answers by what they were. `refused` are connections to a server that has ended. `longest`:
    seconds behind `since` that one took which was under way then, or began soon after."""

    def __init__(self, group):
        self.group, self.stopping, self.answers = group, False, collections.Counter()
        self.since, self.longest = float("inf"), 0
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
            with self.lock:
                self.answers[kind] += 1
                if begin < self.since + ANSWER_WITHIN:
                    self.longest = max(self.longest, time.monotonic() - max(begin, self.since))
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


def start_group(folder, mode, **options):
    if mode == "join-restart":
        options["worker_flags"] = ("--restart",)
    return (Group if mode.startswith("join") else Alone)(folder, *BASE, *MODES[mode], **options)


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
    """A fault, or None; seconds until it was noticed, until all had ended and until every client had its answer; answers."""
    group = start_group(folder, mode, **({"prefix": SHELL} if who == "shell" else {}))
    victims, figures, load = [], {"codes": []}, None
    try:
        group.wait_ready()
        first = group.leader.process.pid
        server = children(first)[0] if who == "shell" else first
        ranks = [worker.process.pid for worker in group.workers] or children(server)
        if mode == "join-restart":
            ranks = [child for rank in ranks for child in children(rank)]
        victims = [first, server, *ranks]
        load = Load(group)
        wait_for(lambda: load.answers["200"] > 3, group.logs)
        time.sleep(random.Random(seed).random() * 0.3)
        victim = {"server": server, "shell": first, "rank": ranks[0] if ranks else None}[who]
        load.since = time.monotonic()
        os.kill(victim, getattr(signal, "SIG" + name))
        outcome = OUTCOMES[mode, who, name]
        fault = after_kill(group, mode, name, outcome, server, victim, victims, load, figures)
        if fault:
            return fault, figures, load.answers
        begin = time.monotonic()
        if outcome not in ("die", "stop"):
            load.stopping = True
            os.kill(server, signal.SIGTERM)
            if name == "STOP" and exists(victim):  # a suspended process of another host ends when it goes on
                os.kill(victim, signal.SIGCONT)
        elif outcome == "die" and mode == "join-restart":  # its workers wait for another server
            load.stopping = True
            for worker in group.workers:
                worker.process.terminate()
        for process in group.all():
            left = ENDS_WITHIN + (30 if outcome == "stop" else 0) - (time.monotonic() - begin)
            if within(left, lambda process=process: process.process.poll() is not None) is None:
                return "goes on", figures, load.answers
        if within(ENDS_WITHIN if who == "shell" else 1, lambda: not any(exists(pid) for pid in victims)) is None:
            return "left over", figures, load.answers
        figures["ended"] = time.monotonic() - begin
        load.end()
        figures["answered"] = load.longest
        if load.answers["hang"] or (outcome in ("die", "fail", "back") and load.longest > ANSWER_WITHIN):
            return "a request without an answer", figures, load.answers
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


def after_kill(group, mode, name, outcome, server, victim, victims, load, figures):
    """What must follow at once; a fault, or None. `victims` gets processes that are started meanwhile."""
    if outcome == "hold":
        time.sleep(NOTICED_WITHIN)
        os.kill(victim, signal.SIGCONT)
    if outcome == "lose":
        figures["noticed"] = within(NOTICED_WITHIN, lambda: all(worker.process.poll() is not None for worker in group.workers))
        if figures["noticed"] is None:
            return "workers go on"
        os.kill(victim, signal.SIGCONT)
    if outcome in ("fail", "back", "lose"):
        noticed = within(NOTICED_WITHIN, lambda: not is_ready(group) or load.answers["503"] > 0)
        if noticed is None:
            return "not noticed"
        figures.setdefault("noticed", noticed)
    if outcome == "back" and name == "STOP" and mode == "join-restart":
        os.kill(victim, signal.SIGCONT)  # its supervisor starts another one when it ends
    if outcome in ("ignore", "back", "hold"):
        before = load.answers["200"]
        if within(60, lambda: is_ready(group) and load.answers["200"] > before + 5) is None:
            return "does not serve"
        victims += children(server)
    return None


def one_round(task):
    """(case, fault, figures, answers) of a round in a folder of its own."""
    (mode, who, name), number, seed, work, bench = task
    seed = "%d %s %s %s %d" % (seed, mode, who, name, number)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        try:
            if who.startswith(STARTING):
                return (mode, who, name), *kill_starting(folder, mode, who, seed)
            if mode in MODES:
                return (mode, who, name), *kill_round(folder, mode, who, name, seed)
            import launched
            begin = time.monotonic()
            code = launched.kill(bench.beside(folder), who, name, NOTICED_WITHIN, ENDS_WITHIN, mode)
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
            cases.update({(job, *case): outcome for job, (_, kills) in launched.JOBS.items() for case, outcome in kills.items()})
        else:
            print("SKIP the cases of mpirun: it is not installed (openmpi-bin)", file=sys.stderr)
        cases = {case: outcome for case, outcome in cases.items()
                 if not options.only or "-".join(case) in options.only or case[0] in options.only}
        if any(mode not in MODES for mode, _, _ in cases):
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
    print("| mode | process | signal | must follow | rounds | faults | noticed s (median / most) | ended s | last answer s | exit codes | answers |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for case, outcome in cases.items():
        print("| %s | %s | %s | %s | %d | %s | %s | %s | %s | %s | %s |" % (
            *case, outcome, options.rounds, counts(faults[case]), text_of(figures[case]["noticed"]), text_of(figures[case]["ended"]),
            text_of(figures[case]["answered"]), counts(codes[case]), counts(answers[case])))
    num_faults = sum(sum(found.values()) for found in faults.values())
    print("%d rounds of %d cases, %d at once, in %.0f s: %d faults" % (options.rounds, len(cases), options.jobs, time.monotonic() - begin, num_faults))
    sys.exit(1 if num_faults else 0)


if __name__ == "__main__":
    main()
