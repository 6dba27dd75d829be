"""What serving adds to generation. For each streamed token: CPU time of every server thread other than the engine's.
For a request of one token on an open connection: what request_cost.cc says, of a server that computes on all cores as
it does by default, and of one with one compute thread, while whose step the other CPUs sleep.

usage: token_cost.py [--build DIR] [--streams N] [--tokens N] [--path PATH]"""
import argparse
import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
import urllib.request


def thread_times(pid):
    """ns on a CPU by thread."""
    out = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{tid}/schedstat") as file:
            out[tid] = int(file.read().split()[0])
    return out


def stream(url, path, tokens, counts):
    body = {"text_input": "The sea", "max_tokens": tokens, "stream": True, "end_id": -1}
    request = urllib.request.Request(url + path, json.dumps(body).encode())
    count = 0
    with urllib.request.urlopen(request) as reply:
        for line in reply:
            count += line.startswith(b"data:")
    counts.append(count)


def measure(pid, work, num_compute):
    """ns of the busiest `num_compute` threads and of the others while `work` runs."""
    before = thread_times(pid)
    work()
    after = thread_times(pid)
    spent = sorted((after[tid] - before.get(tid, 0) for tid in after), reverse=True)
    return sum(spent[:num_compute]), sum(spent[num_compute:]), spent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--path", default="/v2/models/ensemble/generate_stream")
    options = parser.parse_args()
    # One compute thread: the engine thread computes, so that exactly one thread is not the server's.
    with serving(options, 1) as (pid, port):
        tokens(options, pid, f"http://127.0.0.1:{port}")
    for threads in (0, 1):
        with serving(options, threads) as (_, port):
            print("all cores compute:" if threads == 0 else "one thread computes:", flush=True)
            subprocess.run([os.path.join(options.build, "bin", "request_cost"), "--port", port, "--path",
                            options.path.replace("_stream", ""), "--threads", str(threads)], check=True)


@contextlib.contextmanager
def serving(options, threads):
    """(pid, HTTP port) of a server with so many compute threads; 0: one for each core."""
    with tempfile.TemporaryDirectory() as folder:
        ports = os.path.join(folder, "ports")
        server = subprocess.Popen([os.path.join(options.build, "bin", "nereid"), "serve", "models/quickstart", "--host",
                                   "127.0.0.1", "--http-port", "0", "--metrics-port", "0", "--threads", str(threads),
                                   "--port-file", ports], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(ports):
                assert server.poll() is None, "the server ended early"
                time.sleep(0.05)
            with open(ports) as file:
                yield server.pid, dict(line.strip().split("=") for line in file)["http"]
        finally:
            server.terminate()
            server.wait()


def tokens(options, pid, url):
    counts = []

    def streams():
        threads = [threading.Thread(target=stream, args=(url, options.path, options.tokens, counts))
                   for _ in range(options.streams)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    streams()
    counts.clear()
    compute, others, spent = measure(pid, streams, 1)
    pieces = sum(counts)
    print(f"{options.path}: {options.streams} streams, {pieces} pieces of text")
    print(f"  engine {compute / 1e3 / pieces:.1f} us, serving {others / 1e3 / pieces:.1f} us of CPU for each piece; "
          f"threads: {', '.join(f'{ns / 1e3 / pieces:.1f}' for ns in spent[1:10])}")


if __name__ == "__main__":
    main()
