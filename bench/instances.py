#!/usr/bin/env python3
"""Throughput of two instances of a model, each on half of the cores, beside one on all of them, as threads and as processes
(orchestrator mode): `nereid bench` of each in turn, round by round, so that other load of the machine meets all of them.

    bench/instances.py build/release models/quickstart --batch 1,8,32 --rounds 5

Prints medians over the rounds of output tokens/s, with the least and the most, and how many times one instance's that is. Other
flags of `nereid bench` follow `--`:  ... -- --random-weights --weights int8
"""
import argparse
import os
import statistics
import subprocess

KINDS = {"one on all cores": (), "two on halves, threads": ("--instances", "2"),
         "two on halves, processes": ("--instances", "2", "--process-mode", "orchestrator")}


def measure(nereid, options, flags):
    """{batch: output tokens/s}"""
    command = [nereid, "bench", options.model, "--device", "cpu", "--threads", str(options.threads), "--batch", options.batch,
               "--prompt-tokens", str(options.prompt_tokens), "--new-tokens", str(options.new_tokens), "--repeats", str(options.repeats),
               *flags, *options.flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {int(row[0]): float(row[5]) for row in rows if len(row) == 8 and row[0].isdigit()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("model")
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of all instances together")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("flags", nargs="*")
    options = parser.parse_intermixed_args()
    nereid = os.path.join(options.build, "bin", "nereid")
    found = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind, flags in KINDS.items():
            found[kind].append(measure(nereid, options, flags))
    print("%s, %d threads, load %.1f" % (options.model, options.threads, os.getloadavg()[0]))
    print("| batch | instances | output tokens/s (least, most) | times one |\n|---|---|---|---|")
    for batch in (int(word) for word in options.batch.split(",")):
        one = statistics.median(run[batch] for run in found["one on all cores"])
        for kind, runs in found.items():
            values = [run[batch] for run in runs]
            middle = statistics.median(values)
            print("| %d | %s | %.1f (%.1f, %.1f) | %.2f |" % (batch, kind, middle, min(values), max(values), middle / one))


if __name__ == "__main__":
    main()
