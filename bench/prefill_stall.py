#!/usr/bin/env python3
"""Measures on a running server how long the tokens of a stream wait while another client sends long prompts to the model
`tensorrt_llm`, one after the other, each answered with one token.

    nereid serve DIR --max-prefill-ms 50 &
    bench/prefill_stall.py --prompt-tokens 2000 --prompts 20 --vocab 32000

Prints the time between two tokens of the stream, alone and beside the prompts, and the prompts' tokens/s.
"""
import argparse
import random
import socket
import threading
import time

from served import milliseconds, request


class Stream(threading.Thread):
    """Decodes until it is stopped; `between` has the time of each token since the one before of its request."""

    def __init__(self, options):
        super().__init__(daemon=True)
        self.options, self.between, self.stopped, self.streams = options, [], threading.Event(), threading.Event()

    def run(self):
        draw = random.Random(self.options.seed)
        while not self.stopped.is_set():
            ids = [draw.randrange(self.options.vocab) for _ in range(8)]
            with socket.create_connection((self.options.host, self.options.port)) as connection:
                connection.sendall(request(ids, self.options.stream_tokens))
                last = None
                while not self.stopped.is_set() and (piece := connection.recv(1 << 16)):
                    if b"data: " not in piece:
                        continue
                    now = time.perf_counter()
                    if last is not None:
                        self.between.append(now - last)
                    last = now
                    self.streams.set()


def send_prompt(options, draw):
    ids = [draw.randrange(options.vocab) for _ in range(options.prompt_tokens)]
    begin, answer = time.perf_counter(), b""
    with socket.create_connection((options.host, options.port)) as connection:
        connection.sendall(request(ids, 1))
        while piece := connection.recv(1 << 16):
            answer += piece
    if b"data: " not in answer:
        raise SystemExit(f"a prompt was refused: {answer!r}")
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--prompt-tokens", type=int, default=2000)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--stream-tokens", type=int, default=1000, help="of one request of the stream")
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--seed", type=int, default=time.time_ns(),
                        help="of the prompts (default: new ones, which no cache of the server holds)")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    send_prompt(options, draw)
    stream = Stream(options)
    stream.start()
    stream.streams.wait()
    time.sleep(2)
    alone, stream.between = stream.between, []
    first = [send_prompt(options, draw) for _ in range(options.prompts)]
    beside = stream.between
    stream.stopped.set()
    for name, times in (("token alone", alone), ("token beside prompts", beside), ("first token of a prompt", first)):
        shares = ", ".join(f"p{100 * q:g} {milliseconds(times, q):.1f}" for q in (0.5, 0.99, 1))
        print(f"{name}, ms: {shares} ({len(times)})")
    print(f"prompts: {options.prompt_tokens * options.prompts / sum(first):.0f} tokens/s")


if __name__ == "__main__":
    main()
