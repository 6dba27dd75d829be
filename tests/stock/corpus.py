#!/usr/bin/env python3
"""Replays the recorded corpus against our server with the stock Python backend running its model.py models; what the log
says at the start and the metrics page at the end are compared too, when all of the corpus ran.

usage: corpus.py BUILD_DIR [--only TEXT] [--show N] [--dump FILE]
"""
import argparse
import json
import os
import sys
import urllib.request

import compare
import deliberate
import figures
import startup
import stock
import wire

OPTIONS = ["--model-control-mode=explicit", "--load-model=*", "--cache-config=local,size=1048576",
           "--http-header-forward-pattern=x-fwd-.*", "--grpc-header-forward-pattern=x-fwd-.*"]


TRIES = 3


def replay(name, send, args, table, server):
    cases = [c for c in wire.load_cases(os.path.join(stock.HERE, name)) if args.only in c["name"]]
    unlisted = listed = 0
    for case in cases:
        if not server.alive():
            raise ConnectionError("the server ended in front of the case '%s'" % case["name"])
        answer, answers = wire.run_case(send, case)
        for part, got_answer in [(case, answer)] + list(zip(case.get("with", []), answers)):
            want, got = compare.form(part, part), compare.form(part, got_answer)
            differing = compare.differences(want, got)
            if not differing:
                continue
            left = table.unexplained(part, want, got, differing)
            if not left:
                listed += 1
                continue
            unlisted += 1
            if args.dump:
                args.dump.write(json.dumps([case["name"], differing, left, want, got]) + "\n")
            if unlisted <= args.show:
                print("DIFFERS %s: %s" % (name, case["name"]))
                for k in left:
                    print("  %s\n    expected %s\n    got      %s" % (
                        k, json.dumps(want.get(k))[:700], json.dumps(got.get(k))[:700]))
    print("%s: %d cases, %d listed differences, %d unlisted" % (name, len(cases), listed, unlisted))
    return unlisted


def recorded(name):
    with open(os.path.join(stock.HERE, name), encoding="utf-8") as f:
        return f.read()


def whole_run(server, table):
    """Problems of a run of all cases: start-up lines, metrics, and rules that nothing needs any more."""
    with open(server.log, encoding="utf-8", errors="replace") as f:
        problems = startup.compare(recorded("corpus_startup.log"), f.read())
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % server.metrics) as page:
        problems += figures.compare(recorded("corpus_metrics.txt"), page.read().decode())
    return problems + ["a rule without a case: %s" % rule for rule in table.unused(deliberate.GENERATED)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--dump", type=argparse.FileType("w"))
    parser.add_argument("--protocols", default=stock.PROTOCOLS)
    args = parser.parse_args()
    for attempt in range(1, TRIES + 1):
        server, result = run(args)
        if not ended_by_python_backend(server):
            return result
        print("corpus: the stock Python backend ended the process, run %d of %d" % (attempt, TRIES))
    return 1


def run(args):
    """The server, ended, and 1 if something differs, else 0."""
    parts = stock.Parts(args.build)
    table = deliberate.Table()
    unlisted = 0
    server = stock.our_server(parts, stock.repository_copy(parts), parts.our_backends(), OPTIONS, "corpus")
    try:
        with server:
            if "http" in args.protocols:
                unlisted += replay("corpus_http.jsonl", wire.Http(server.http), args, table, server)
            if "grpc" in args.protocols:
                unlisted += replay("corpus_grpc.jsonl", wire.Grpc(server.grpc), args, table, server)
            is_whole = not args.only and args.protocols == stock.PROTOCOLS
            problems = whole_run(server, table) if is_whole else []
            code = server.stop()
    except Exception:
        if ended_by_python_backend(server):
            return server, 1
        raise
    if code != 0:
        print("the server ended with code %d\n%s" % (code, server.tail()))
    print("\n".join(problems + ["start-up lines, metrics and rules: %d problems" % len(problems)]))
    return server, 1 if unlisted or code or problems else 0


def ended_by_python_backend(server):
    """On a machine under heavy load that backend waits too long for a lock that its stub holds, and throws in a
    destructor, which ends whatever server has loaded it."""
    with open(server.log, encoding="utf-8", errors="replace") as f:
        return "terminate called after throwing an instance of 'boost::interprocess::lock_exception'" in f.read()


if __name__ == "__main__":
    sys.exit(main())
