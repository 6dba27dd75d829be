#!/usr/bin/env python3
"""Measures a running server with streams that are kept busy: each sends a request of random ids to
the model `tensorrt_llm` (generate_stream), reads all of its events, and sends the next one.

    nereid serve DIR --random-weights --device cuda:0 &
    bench/served.py --streams 64 --prompt-tokens 1024 --new-tokens 256 --vocab 128256

Prints tokens/s over the whole run, the time to the first token and the time from one event to the
next. Needs nothing but Python; the server's own cost of a request is bench/server_overhead's.
"""
import argparse
import json
import random
import socket
import threading
import time


def request(ids, new_tokens):
    body = json.dumps({"input_ids": ids, "input_lengths": len(ids), "request_output_len": new_tokens, "streaming": True})
    head = (
        "POST /v2/models/tensorrt_llm/generate_stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


class Run:
    def __init__(self, options):
        self.options, self.left, self.lock = options, options.requests, threading.Lock()
        self.first, self.between, self.tokens, self.refused = [], [], 0, []

    def send(self, draw):
        o = self.options
        ids = [draw.randrange(o.vocab) for _ in range(o.prompt_tokens)]
        begin, last, between, tokens, answer = time.perf_counter(), None, [], 0, b""
        first = 0.0
        with socket.create_connection((o.host, o.port)) as connection:
            connection.sendall(request(ids, o.new_tokens))
            while piece := connection.recv(1 << 16):
                answer = answer if len(answer) > 500 else answer + piece
                events = piece.count(b"data: ")
                if not events:
                    continue
                now = time.perf_counter()
                if last is None:
                    first = now - begin
                else:
                    between.append(now - last)
                between += [0.0] * (events - 1)
                last, tokens = now, tokens + events
        with self.lock:
            if tokens:
                self.first.append(first)
                self.between += between
                self.tokens += tokens
            else:
                self.refused.append(answer)

    def stream(self, index):
        draw = random.Random(f"{self.options.seed} {index}")
        while True:
            with self.lock:
                if self.left == 0:
                    return
                self.left -= 1
            self.send(draw)


def milliseconds(times, share):
    return 1000 * sorted(times)[min(len(times) - 1, int(share * len(times)))] if times else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--requests", type=int, default=192, help="of all streams together")
    parser.add_argument("--prompt-tokens", type=int, default=1024)
    parser.add_argument("--new-tokens", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--seed", type=int, default=time.time_ns(),
                        help="of the prompts (default: new ones, which no cache of the server holds)")
    run = Run(parser.parse_args())
    begin = time.perf_counter()
    threads = [threading.Thread(target=run.stream, args=(i,)) for i in range(run.options.streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    print(f"{len(run.first)} requests, {run.tokens} tokens in {seconds:.2f} s: {run.tokens / seconds:.0f} tokens/s")
    for name, times in ("first token", run.first), ("between tokens", run.between):
        print(name + ", ms: " + ", ".join(f"p{100 * q:g} {milliseconds(times, q):.2f}" for q in (0.5, 0.99, 0.999)))
    if run.refused:
        raise SystemExit(f"{len(run.refused)} requests were refused: {run.refused[0]!r}")


if __name__ == "__main__":
    main()
