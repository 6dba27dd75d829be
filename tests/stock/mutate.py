#!/usr/bin/env python3
"""Sends damaged requests to our server over HTTP and gRPC; it must answer or close, live on, and end well.

The requests of the recorded corpus are damaged on the wire: bits, cuts, repetitions, pieces of other requests, numbers.
Loads and unloads are turned to one model, which comes and goes meanwhile; settings of the log change too.
The models are the corpus's with the identity-like backend of the tests, so any build can run it, a sanitizer's above all.

usage: mutate.py BUILD_DIR [--count N] [--seed N]
    quick form   mutate.py build/asan --count 4000
    long form    mutate.py build/asan --count 100000
"""
import argparse
import asyncio
import base64
import os
import random
import re
import shutil
import sys
import time

import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2

import stock
import wire

PARALLEL = 32
QUIET_S = 0.25  # a request cut short gets no answer for good reason
FINDING = re.compile(r"ERROR: \w+Sanitizer|runtime error:|WARNING: ThreadSanitizer|CHECK failed|terminate called")
SCRATCH = "scratch"  # the model that loads and unloads are about
SERVICE = "/inference.GRPCInferenceService/"


def test_repository(parts):
    """The corpus's repository with the tests' backend instead of Python."""
    target = stock.repository_copy(parts, "repository_mutate")
    for model in os.listdir(target):
        path = os.path.join(target, model, "config.pbtxt")
        if not os.path.exists(path):
            shutil.rmtree(os.path.join(target, model))
            continue
        with open(path, encoding="utf-8") as f:
            text = f.read()
        if 'backend: "python"' in text and 'name: "OUT"' not in text:  # the one that the tests' backend makes
            text += '\noutput { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }\n'
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace('backend: "python"', 'backend: "nereid_test"'))
    shutil.rmtree(os.path.join(target, "warm"))  # its warm-up is made for its model.py
    return target


class Mutator:
    def __init__(self, seed, pool):
        self.random = random.Random(seed)
        self.pool = pool

    def mutate(self, data):
        data = bytearray(data)
        for _ in range(self.random.choice([1, 1, 1, 2, 4])):
            at = self.random.randrange(len(data) + 1)
            action = self.random.randrange(7)
            if action == 0 and data:
                data[at % len(data)] ^= 1 << self.random.randrange(8)
            elif action == 1:
                del data[at:at + self.random.randint(1, 24)]
            elif action == 2:
                data[at:at] = data[at:at + self.random.randint(1, 64)]
            elif action == 3:
                other = self.random.choice(self.pool)
                begin = self.random.randrange(len(other) + 1)
                data[at:at + 8] = other[begin:begin + self.random.randint(1, 64)]
            elif action == 4:
                data[at:at] = self.random.choice([b"\x00", b"\xff", b"{", b"[", b'"', b"\\u0000", b"-1", b"1e999", b"\r\n"])
            elif action == 5:
                self.change_number(data)
            else:
                data[at:] = b"" if self.random.random() < 0.3 else data[at:]
        return bytes(data)

    def change_number(self, data):
        found = list(re.finditer(rb"\d+", data))
        if not found:
            return
        span = self.random.choice(found).span()
        data[slice(*span)] = self.random.choice(
            [b"0", b"-1", b"4294967296", b"18446744073709551615", b"9223372036854775808", b"99999999999999999999", b"2"])


def http_pool():
    """(head, body) of the recorded requests."""
    pool = []
    for case in wire.load_cases(os.path.join(stock.HERE, "corpus_http.jsonl")):
        if "raw" not in case:
            path = re.sub(r"(/repository/models/).+(/\w+)$", r"\1%s\2" % SCRATCH, case["path"])
            head, body = wire.http_bytes(dict(case, path=path)).split(b"\r\n\r\n", 1)
            pool.append((head, body))
    return pool


def http_request(mutator, head, body):
    if mutator.random.random() < 0.6 and body:  # only the body: the length stays true
        body = mutator.mutate(body)
        head = re.sub(rb"(?i)\r\ncontent-length: *\d+", b"\r\nContent-Length: %d" % len(body), head)
        return head + b"\r\n\r\n" + body
    return mutator.mutate(head + b"\r\n\r\n" + body)


async def send_http(port, data):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        first = await asyncio.wait_for(reader.read(65536), QUIET_S)
        return bool(first)
    except (asyncio.TimeoutError, ConnectionError):
        return False
    finally:
        writer.close()


async def run_http(server, count, seed):
    pool = http_pool()
    mutator = Mutator(seed, [b for _, b in pool if b])
    answered, left = 0, iter(range(count))

    async def worker():
        nonlocal answered
        for _ in left:
            said = await send_http(server.http, http_request(mutator, *mutator.random.choice(pool)))
            answered += said

    await asyncio.gather(*(worker() for _ in range(PARALLEL)))
    return answered


def grpc_pool():
    """(method, serialized request, is a stream)."""
    pool = []
    for case in wire.load_cases(os.path.join(stock.HERE, "corpus_grpc.jsonl")):
        if "request_b64" in case:
            continue
        is_stream = case["rpc"] == "ModelStreamInfer"
        kind = service_pb2.ModelInferRequest if is_stream else getattr(service_pb2, case["rpc"] + "Request")
        for request in case["requests"] if is_stream else [case.get("request", {})]:
            if case["rpc"].startswith("RepositoryModel"):
                request = dict(request, model_name=SCRATCH)
            if "wait_ms" not in request:
                data = json_format.ParseDict(request, kind()).SerializeToString()
                pool.append((case["rpc"], data, is_stream))
    return pool


async def run_grpc(server, count, seed):
    pool = grpc_pool()
    mutator = Mutator(seed, [data for _, data, _ in pool if data])
    answered, left = 0, iter(range(count))

    async def one(channel):
        rpc, data, is_stream = mutator.random.choice(pool)
        data = mutator.mutate(data)
        if is_stream:
            call = channel.stream_stream(SERVICE + rpc)(iter([data, mutator.mutate(data)]), timeout=2)
            async for _ in call:
                pass
        else:
            await channel.unary_unary(SERVICE + rpc)(data, timeout=2)

    async def worker():
        nonlocal answered
        async with grpc.aio.insecure_channel("127.0.0.1:%d" % server.grpc) as channel:
            for _ in left:
                try:
                    await one(channel)
                    answered += 1
                except grpc.RpcError as e:
                    answered += e.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

    await asyncio.gather(*(worker() for _ in range(PARALLEL)))
    return answered


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--count", type=int, default=4000, help="in all, HTTP and gRPC in equal parts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--protocols", default=stock.PROTOCOLS)
    args = parser.parse_args()
    parts = stock.Parts(args.build)
    protocols = args.protocols.split(",")
    server = stock.our_server(parts, test_repository(parts), os.path.join(parts.build, "test_backends"),
                              ["--model-control-mode=explicit", "--load-model=*"], "mutate")
    results = []
    with server:
        for name, run in (("http", run_http), ("grpc", run_grpc)):
            if name not in protocols:
                continue
            began = time.time()
            count = args.count // len(protocols)
            answered = asyncio.run(run(server, count, args.seed))
            results.append("%s %d sent, %d answered in %.0f s" % (name, count, answered, time.time() - began))
            if not server.alive() or not server.live() or answered < count // 4:
                print("mutations: the server ended or is silent after %s\n%s" % (results[-1], server.tail(8000)))
                return 1
        code = server.stop(120)
    with open(server.log, encoding="utf-8", errors="replace") as f:
        finding = FINDING.search(f.read())
    print("mutations: %s; exit code %d, %s" % ("; ".join(results), code, "a finding" if finding else "no finding"))
    if finding or code:
        print(server.tail(8000))
    return 1 if finding or code else 0


if __name__ == "__main__":
    sys.exit(main())
