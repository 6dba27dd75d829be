"""Hostile and broken clients against `nereid serve models/quickstart`: every request gets the right status, the server
stays up, and afterwards connections, KV blocks and memory are back where they were.

usage: robustness.py NEREID_BINARY [--idle N] [--full]     --idle: idle connections on each port, 10,000 by default (1,000
with NEREID_E2E_SLOW=1); needs that many descriptors. --full: more rounds"""
import argparse
import concurrent.futures
import json
import os
import re
import resource
import socket
import struct
import subprocess
import tempfile
import threading
import time
import urllib.request

import robustness_grpc

SLOW = os.environ.get("NEREID_E2E_SLOW") == "1"
MIB = 1 << 20
GENERATE = "/v2/models/ensemble/generate"
INFER = "/v2/models/preprocessing/infer"
PROMPT = json.dumps({"text_input": "The sea", "max_tokens": 4}).encode()


class Server:
    """nereid serve on free ports, with more flags if there are."""

    def __init__(self, binary, folder, *flags):
        ports = os.path.join(folder, "ports")
        self.log_path = os.path.join(folder, "log")
        self.process = subprocess.Popen(
            [binary, "serve", "models/quickstart", "--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--metrics-port",
             "0", "--port-file", ports, *flags], stdout=open(self.log_path, "w"), stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 300
        while not os.path.exists(ports):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.02)
        with open(ports) as file:
            numbers = dict(line.strip().split("=") for line in file)
        self.port, self.grpc_port, self.metrics_port = (int(numbers[name]) for name in ("http", "grpc", "metrics"))
        while self.get("/v2/health/ready") != 200:
            time.sleep(0.05)

    def log(self):
        with open(self.log_path) as file:
            return file.read()

    def connect(self, timeout=60):
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def get(self, path):
        return status_of(self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()))

    def send(self, request, timeout=60):
        """The server's answer to raw bytes, until it closes or falls silent after a complete answer."""
        with self.connect(timeout) as s:
            try:
                s.sendall(request)
            except OSError:
                pass  # it may answer and close before it has read everything
            return read_answer(s)

    def touch_cache(self):
        """Has it write once to its weights and to all 32,768 tokens of its KV cache, whose pages are no client's memory."""
        def one(i):
            ids = [5 + (7 * i + j * (i + 1)) % 4000 for j in range(2040)]
            answer = self.send(post("/v1/completions", json.dumps({"prompt": ids, "max_tokens": 1}).encode(), "Connection: close"), 300)
            assert status_of(answer) == 200, answer

        with concurrent.futures.ThreadPoolExecutor(17) as clients:
            list(clients.map(one, range(17)))

    def metrics(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as reply:
            text = reply.read().decode()
        out = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                out[series] = float(value) if value != "Nan" else None
        return out

    def wait_for(self, series, count):
        """Returns when it is as large: the server's threads may be behind a client, who sees connections at once."""
        deadline = time.monotonic() + 60
        while (now := self.metrics()[series]) < count:
            assert time.monotonic() < deadline, f"{series}: {now} of {count}"
            time.sleep(0.02)

    def used_blocks(self):
        return sum(value for series, value in self.metrics().items()
                   if series.startswith("nv_trt_llm_kv_cache_block_metrics") and '"used"' in series)

    def rss(self):
        return self.metrics()["process_resident_memory_bytes"]

    def threads_and_descriptors(self):
        return tuple(len(os.listdir(f"/proc/{self.process.pid}/{what}")) for what in ("task", "fd"))


def read_answer(s):
    """Bytes of one answer (all of it when its length is known, else until the end of the stream)."""
    data = b""
    while True:
        head, separator, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head) if separator else None
        if separator and head.startswith(b"HTTP/1.1 100"):
            data = body
            continue
        if length and len(body) >= int(length[1]):
            return data
        if separator and b"chunked" in head.lower() and body.endswith(b"0\r\n\r\n"):
            return data
        try:
            piece = s.recv(65536)
        except OSError:
            return data
        if not piece:
            return data
        data += piece


def status_of(answer):
    """Status code; 0: closed without an answer."""
    found = re.match(rb"HTTP/1\.[01] (\d{3})", answer)
    return int(found[1]) if found else 0


def post(path, body, *headers, length=None):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", *headers]
    if length is not False:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def expect(server, name, request, allowed, contains=""):
    answer = server.send(request)
    status = status_of(answer)
    assert status in allowed, f"{name}: status {status}, expected {allowed}: {answer[:300]!r}"
    assert contains.encode() in answer, f"{name}: no {contains!r} in {answer[:500]!r}"


def infer_json(**changes):
    body = {"inputs": [{"name": "QUERY", "datatype": "BYTES", "shape": [1, 1], "data": ["The sea"]},
                       {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": [1, 1], "data": [4]}]}
    body.update(changes)
    return body


def binary_infer(declared, data, shape=(1, 1)):
    """An infer body with REQUEST_OUTPUT_LEN as binary data: `declared` bytes by the JSON, `data` really there."""
    body = infer_json()
    body["inputs"][1] = {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": list(shape),
                         "parameters": {"binary_data_size": declared}}
    text = json.dumps(body).encode()
    return post(INFER, text + data, f"Inference-Header-Content-Length: {len(text)}")


def check_tensors(server):
    four = struct.pack("<i", 4)
    expect(server, "binary tensor", binary_infer(4, four), {200})
    expect(server, "truncated binary tensor", binary_infer(4, four[:3]), {400})
    expect(server, "no binary tensor", binary_infer(4, b""), {400})
    expect(server, "bytes left over", binary_infer(4, four + b"xx"), {400})
    expect(server, "shape larger than data", binary_infer(4, four, (1, 2)), {400})
    expect(server, "shape smaller than data", binary_infer(8, four * 2), {400})
    for size in (-1, 2**63, 2**64, 1.5, "4", None):
        expect(server, f"binary_data_size {size!r}", binary_infer(size, four), {400})
    for shape in ([-1, 1], [2**62, 4], [1] * 1000, [], ["1", 1], [1.5], "1", None):
        body = infer_json()
        body["inputs"][1]["shape"] = shape
        expect(server, f"shape {str(shape)[:40]}", post(INFER, json.dumps(body).encode()), {400})
    for data in ([], [1, 2], ["x"], [1.5], [2**40], [[1], [2]], {}, None):
        body = infer_json()
        body["inputs"][1]["data"] = data
        expect(server, f"data {data!r}", post(INFER, json.dumps(body).encode()), {400})
    for length in ("-1", "999999", "abc", "1e3", ""):
        request = post(INFER, json.dumps(infer_json()).encode(), f"Inference-Header-Content-Length: {length}")
        expect(server, f"header length {length!r}", request, {400})
    # A BYTES element whose length prefix points beyond the tensor.
    body = infer_json()
    body["inputs"][0] = {"name": "QUERY", "datatype": "BYTES", "shape": [1, 1],
                         "parameters": {"binary_data_size": 8}}
    text = json.dumps(body).encode()
    data = struct.pack("<I", 0xffffffff) + b"abcd"
    request = post(INFER, text + data, f"Inference-Header-Content-Length: {len(text)}")
    expect(server, "BYTES prefix beyond the tensor", request, {400})


def check_names(server):
    body = infer_json()
    body["inputs"].append(dict(body["inputs"][1]))
    expect(server, "an input twice", post(INFER, json.dumps(body).encode()), {400}, "REQUEST_OUTPUT_LEN")
    twice = json.dumps(infer_json())[:-1] + ', "inputs": []}'
    expect(server, "a JSON member twice", post(INFER, twice.encode()), {400}, "inputs")
    twice = b'{"model": "x", "prompt": "a", "prompt": "b"}'
    expect(server, "a JSON member twice in completions", post("/v1/completions", twice), {400}, "prompt")
    for path in ("/v2/models/../../../etc/passwd", "/v2/models/%2e%2e%2f%2e%2e%2fetc/config", "/v2/models/../config",
                 "/v2/models/ensemble/versions/..%2f1", "/v2/models/ensemble/versions/99999999999999999999",
                 "/v2/models/ensemble/versions/-1", "/v2/models/a%2Fb/config", "/v2/models/%00/config",
                 "/v2/models/ensemble%00/config", "/v2/models/" + "a" * 8000 + "/config", "//v2/models/ensemble",
                 "/v2/models/ens\x7femble/config", "/v2/models/%zz/config", "/v2/models//config"):
        expect(server, path[:60], f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin-1"), {400, 404})
    for name in ("..", "../ensemble", "%2e%2e", "a%2f..%2fb", "%2Fetc"):
        expect(server, f"load {name}", post(f"/v2/repository/models/{name}/load", b"{}"), {400, 404, 503})
    expect(server, "a NUL in the target", b"GET /v2/he\0alth HTTP/1.1\r\nHost: localhost\r\n\r\n", {400})
    expect(server, "a NUL in a header", b"GET /v2 HTTP/1.1\r\nHost: localhost\r\nA: b\0c\r\n\r\n", {400})


def check_framing(server):
    chunked = f"POST {GENERATE} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    single = b"".join(b"1\r\n" + PROMPT[i:i + 1] + b"\r\n" for i in range(len(PROMPT))) + b"0\r\n\r\n"
    expect(server, "chunks of one byte", chunked + single, {200}, "text_output")
    for name, body in (("no number", b"zz\r\nab\r\n0\r\n\r\n"), ("negative", b"-1\r\nab\r\n0\r\n\r\n"),
                       ("overflow", b"fffffffffffffffff\r\nab\r\n0\r\n\r\n"), ("no line end", b"2\r\nabc\r\n0\r\n\r\n")):
        expect(server, "chunk: " + name, chunked + body, {400, 413})
    expect(server, "a chunk beyond the limit", chunked + b"7fffffff\r\n", {413})
    many = b"1\r\n \r\n" * 70000 + b"0\r\n\r\n"
    expect(server, "70,000 chunks", chunked + many, {400, 413})
    for length, allowed in (("99999999999999999999999", {400}), ("9999999999999999", {413}), ("-5", {400}),
                            ("5x", {400}), ("", {400})):
        expect(server, f"length {length!r}", post(GENERATE, b"", length=length), allowed)
    expect(server, "two lengths", post(GENERATE, PROMPT, "Content-Length: 3"), {400})
    both = post(GENERATE, single, "Transfer-Encoding: chunked")
    expect(server, "a length and chunks", both, {400})
    expect(server, "an unknown coding", post(GENERATE, PROMPT, "Transfer-Encoding: gzip", length=False), {400, 501})
    headers = [f"X-{i}: {i}" for i in range(10000)]
    expect(server, "10,000 headers", post(GENERATE, PROMPT, *headers), {431})
    expect(server, "a long header", post(GENERATE, PROMPT, "X: " + "a" * MIB), {431})
    expect(server, "a long target", b"GET /" + b"a" * MIB + b" HTTP/1.1\r\n\r\n", {400, 414, 431})
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                    b"GET /v2\r\n\r\n", b"GET\r\n\r\n", b"\0" * 1000, b"GET /v2 HTTP/9.9\r\n\r\n",
                    b"GET  /v2 HTTP/1.1\r\n\r\n", b"GET /v2 HTTP/1.1\r\n: x\r\n\r\n", b"GET /v2 HTTP/1.1\r\nA\r\n\r\n"):
        expect(server, f"garbage {garbage[:20]!r}", garbage, {0, 400, 505})


def check_continue(server):
    with server.connect() as s:
        s.sendall(post(GENERATE, b"", "Expect: 100-continue", length=len(PROMPT)))
        assert s.recv(100).startswith(b"HTTP/1.1 100 "), "no 100 Continue"
        s.sendall(PROMPT)
        assert status_of(read_answer(s)) == 200
    with server.connect() as s:
        s.sendall(post(GENERATE, b"", "Expect: 100-continue", length=1 << 40))
        assert status_of(s.recv(1000)) == 413, "a body beyond the limit must not be asked for"


def check_pipelining(server):
    one = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect() as s:
        s.sendall(one * 50 + post(GENERATE, PROMPT) + one * 49 + one[:-2] + b"Connection: close\r\n\r\n")
        data = b""
        while piece := s.recv(65536):
            data += piece
    assert data.count(b"HTTP/1.1 200") == 101, data[:2000]
    # In odd pieces.
    request = post(GENERATE, PROMPT) * 2 + post(GENERATE, PROMPT, "Connection: close")
    with server.connect() as s:
        for i in range(0, len(request), 7):
            s.sendall(request[i:i + 7])
        data = b""
        while piece := s.recv(65536):
            data += piece
    assert data.count(b"HTTP/1.1 200") == data.count(b'"text_output"') == 3, data[:2000]


def check_large_bodies(server, rounds):
    for _ in range(rounds):
        text = b'{"text_input": "' + b"a " * (32 * MIB - 100) + b'"}'
        expect(server, "a prompt of 64 MiB", post(GENERATE, text), {400})
        expect(server, "an array of 64 MiB", post(INFER, b"[" * (64 * MIB)), {400})
    expect(server, "a body beyond the limit", post(GENERATE, b"x" * 1000, length=64 * MIB + 1), {413})


def check_slow_clients(server):
    """Slowloris: headers that never end. The server gives each up after its header timeout, and meanwhile works."""
    sockets = [server.connect() for _ in range(100)]
    for s in sockets:
        s.sendall(b"GET /v2/health/live HTTP/1.1\r\nX: ")
    begin = time.monotonic()
    answered = 0
    for s in sockets:
        while time.monotonic() - begin < 60:
            try:
                s.settimeout(0.2)
                answer = s.recv(1000)
                assert status_of(answer) in (0, 408), answer
                answered += 1
                break
            except TimeoutError:
                try:
                    for other in sockets:
                        other.send(b"a")
                except OSError:
                    pass
                assert server.get("/v2/health/live") == 200
        s.close()
    seconds = time.monotonic() - begin
    assert answered == len(sockets) and seconds < 50, f"{answered} of {len(sockets)} given up after {seconds:.0f} s"


def check_leaving_clients(server, count):
    stream = post("/v2/models/ensemble/generate_stream",
                  json.dumps({"text_input": "The sea", "max_tokens": 1000, "stream": True}).encode())
    for i in range(count):
        with server.connect() as s:
            s.sendall(stream)
            if i % 2 == 0:
                s.recv(200)
    # And some that never read.
    silent = [server.connect() for _ in range(4)]
    for s in silent:
        s.sendall(stream)
    server.wait_for("nereid_http_requests_active", len(silent))
    assert server.get("/v2/health/live") == 200
    for s in silent:
        s.close()


def allow_descriptors(idle):
    """Lets this process and the server, which inherits it, have so many connections."""
    needed = idle + 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, needed))  # root may
        except (OSError, ValueError):
            raise SystemExit(f"robustness: {idle} idle connections need {needed} file descriptors and the hard limit is {hard}: "
                             "raise it (`ulimit -Hn`) or ask for fewer by --idle") from None
    elif soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def check_idle_connections(server, count):
    before = server.rss()
    sockets = [server.connect() for _ in range(count)]
    for s in sockets[::10]:  # some have been used
        s.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status_of(read_answer(s)) == 200
    assert server.get("/v2/health/live") == 200
    assert status_of(server.send(post(GENERATE, PROMPT))) == 200
    server.wait_for("nereid_http_connections", count)
    used = (server.rss() - before) / count
    print(f"   {count} idle connections: {used / 1024:.1f} KiB each")
    assert SLOW or used < 16 * 1024, f"{used} bytes of memory for an idle connection"
    for s in sockets:
        s.close()


def settled(server, baseline, counts):
    """Waits for connections, blocks, threads and descriptors to go; then memory may exceed the baseline by little."""
    deadline = time.monotonic() + 120
    while True:
        m = server.metrics()
        left = tuple(m[f"nereid_{what}"] for what in ("http_connections", "http_requests_active", "grpc_connections"))
        left += (server.used_blocks(), *(max(now - was, 0) for now, was in zip(server.threads_and_descriptors(), counts)))
        if not any(left):
            break
        assert time.monotonic() < deadline, f"connections, requests, gRPC connections, KV blocks, threads, descriptors left: {left}"
        time.sleep(0.2)
    grown = (server.rss() - baseline) / MIB
    print(f"   memory: {baseline / MIB:.0f} MiB before, {grown:+.0f} MiB after")
    assert SLOW or grown < 48, f"{grown:.0f} MiB more than before"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--idle", type=int, default=1000 if SLOW else 10000)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    allow_descriptors(options.idle)
    with tempfile.TemporaryDirectory() as folder:
        # A small KV cache: memory grows while it is used for the first time.
        server = Server(options.binary, folder, "--kv-cache-tokens", "8192")
        try:
            run(server, options.full, options.idle)
        except BaseException:
            print(server.log()[-3000:])
            raise
        finally:
            server.process.terminate()
            code = server.process.wait(60)
        assert code == 0, f"the server ended with code {code}"
    print("robustness: all passed")


def run(server, full, idle):
    for _ in range(20):
        assert status_of(server.send(post(GENERATE, PROMPT))) == 200
    check_large_bodies(server, 1)  # memory that the allocator keeps of it, and of connections, belongs to the baseline
    sizes, counts = [server.rss()], server.threads_and_descriptors()
    for check in (check_idle_connections, *[robustness_grpc.check_idle] * 3):
        check(server, idle)
        sizes.append(server.rss())
    baseline, failures = max(sizes), []  # it gives memory back at times of its own

    def slow(check):
        try:
            check(server)
        except BaseException as e:  # reported by the main thread
            failures.append(e)

    background = [threading.Thread(target=slow, args=(check,)) for check in (check_slow_clients, robustness_grpc.check_slow)]
    for thread in background:
        thread.start()
    for check, *arguments in ((check_tensors,), (check_names,), (check_framing,), (check_continue,), (check_pipelining,),
                              (check_leaving_clients, 10000 if full else 400), (check_large_bodies, 10 if full else 2),
                              (check_idle_connections, idle), (robustness_grpc.check_idle, idle)):
        begin = time.monotonic()
        check(server, *arguments)
        assert server.process.poll() is None, "the server is gone"
        print(f"   {check.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    for thread in background:
        thread.join()
    if failures:
        raise failures[0]
    settled(server, baseline, counts)


if __name__ == "__main__":
    main()
