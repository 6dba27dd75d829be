#!/usr/bin/env python3
"""The start of `nereid serve` under limits of its address space: the server gets ready, or ends with an error that says
why; no signal ends it.

A server that gets ready answers 32 clients at once. One that runs, and whose address space gets short while large
requests come over HTTP and gRPC, refuses or closes them, stays, and answers when there is room again.

usage: short_of_memory.py BUILD_DIR
"""
import concurrent.futures
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request

import robustness
import robustness_grpc

MIB = 1 << 20
# MiB: little more than the libraries need; enough to load, too little to serve; enough for all.
LIMITS = (380, 400, 420, 440, 600, 640, 700, 800, 4096)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def ask(port):
    """Everything that 32 clients at once are answered; raises what went wrong."""
    body = json.dumps({"model": "quickstart", "prompt": "Hello", "max_tokens": 32, "stream": True}).encode()

    def one(_):
        request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", body,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as reply:
            return reply.read()

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        return list(pool.map(one, range(32)))


def start(binary, limit, folder):
    """The exit code (0 after SIGTERM to a server that was ready) and what was printed."""
    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit * MIB, limit * MIB))

    command = [binary, "serve", "models/quickstart", "--port=0", "--metrics-port=-1"]
    path = os.path.join(folder, "log")
    with open(path, "wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, preexec_fn=limited,
                                   env=dict(os.environ, NEREID_CACHE_DIR=folder))
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            with open(path, errors="replace") as seen:
                address = re.search(r"OpenAI +http://[^:]+:(\d+)/v1", seen.read())
            if address:
                ask(address[1])
                process.terminate()
                break
            time.sleep(0.02)
        code = process.wait(timeout=120)
    with open(path, errors="replace") as seen:
        return code, seen.read()


def address_space(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmSize"))


def run_short(binary, folder):
    server = robustness.Server(binary, folder)
    pid = server.process.pid
    _, most = resource.prlimit(pid, resource.RLIMIT_AS)  # which only some may raise again
    message = b"\x0a\x0dpreprocessing\x3a" + b"\x80\x80\x80\x30" + b"x" * (96 * MIB)  # model_name, raw_input_contents
    try:
        for room in (150, 80, 40):
            limit = address_space(pid) + room * MIB
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, most))
            for _ in range(3):
                try:
                    robustness_grpc.call(server.grpc_port, "ModelInfer", message)
                except (OSError, EOFError, AssertionError):
                    pass  # the connection ended
                try:
                    server.send(robustness.post("/v1/completions", b"[" * (48 * MIB)))
                except (OSError, EOFError, AssertionError):
                    pass
            resource.prlimit(pid, resource.RLIMIT_AS, (most, most))
            assert server.process.poll() is None, f"{room} MiB of room ended the server:\n{server.log()[-3000:]}"
            assert server.get("/v2/health/live") == 200
            assert robustness_grpc.is_live(server.grpc_port)
        ask(server.port)
    finally:
        server.process.terminate()
        code = server.process.wait(120)
    assert code == 0, f"the server ended with code {code}"


def main():
    binary = os.path.abspath(os.path.join(sys.argv[1], "bin/nereid"))
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    codes = {}
    with tempfile.TemporaryDirectory() as folder:
        for limit in LIMITS:
            code, text = start(binary, limit, folder)
            codes[limit] = code
            assert code in (0, 1, 127), f"{limit} MiB: exit code {code}\n{text[-3000:]}"
            assert code == 0 or text.strip(), f"{limit} MiB: no word about the failure"
    assert 0 in codes.values(), f"no limit was large enough: {codes}"
    assert 1 in codes.values(), f"no limit was too small: {codes}"
    with tempfile.TemporaryDirectory() as folder:
        run_short(binary, folder)
    print("short_of_memory: exit codes by MiB:", codes)


if __name__ == "__main__":
    main()
