"""What serving adds to generation. For each streamed token: CPU time of every server thread other than the engine's.
For a request of one token on an open connection: latency at the client beside what the engine's model says that the
executor took, and CPU time of the other threads.

usage: token_cost.py [--build DIR] [--streams N] [--tokens N] [--requests N] [--path PATH]"""
import argparse
import json
import os
import socket
import statistics
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


def engine_time(url):
    """Requests that the engine's model has computed, and their time in ns."""
    with urllib.request.urlopen(url + "/v2/models/tensorrt_llm/stats") as reply:
        infer = json.load(reply)["model_stats"][0]["inference_stats"]["compute_infer"]
    return infer["count"], infer["ns"]


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
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--path", default="/v2/models/ensemble/generate_stream")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ports = os.path.join(folder, "ports")
        # One compute thread: the engine thread computes, so that exactly one thread is not the server's.
        server = subprocess.Popen([os.path.join(options.build, "bin", "nereid"), "serve", "models/quickstart", "--host",
                                   "127.0.0.1", "--http-port", "0", "--metrics-port", "0", "--threads", "1",
                                   "--port-file", ports], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(ports):
                assert server.poll() is None, "the server ended early"
                time.sleep(0.05)
            with open(ports) as file:
                url = "http://127.0.0.1:" + dict(line.strip().split("=") for line in file)["http"]
            run(options, server.pid, url)
        finally:
            server.terminate()
            server.wait()


def run(options, pid, url):
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

    latencies = []
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps({"text_input": "The sea", "max_tokens": 1, "end_id": -1})
    text = (f"POST {options.path.replace('_stream', '')} HTTP/1.1\r\nHost: {host}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()

    def requests():
        with socket.create_connection((host, int(port))) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(options.requests):
                begin = time.perf_counter_ns()
                connection.sendall(text)
                reply = b""
                while not reply.endswith(b"0\r\n\r\n"):
                    piece = connection.recv(65536)
                    assert piece, reply
                    reply += piece
                latencies.append(time.perf_counter_ns() - begin)
                assert reply.startswith(b"HTTP/1.1 200"), reply

    requests()
    latencies.clear()
    before = engine_time(url)
    _, others, spent = measure(pid, requests, 1)
    count, ns = (after - at for after, at in zip(engine_time(url), before))
    mean = sum(latencies) / len(latencies)
    print(f"  a request of one token: {mean / 1e3:.1f} us at the client (median {statistics.median(latencies) / 1e3:.1f}), "
          f"of which the executor {ns / 1e3 / count:.1f} us: {(mean - ns / count) / 1e3:.1f} us added; serving "
          f"{others / 1e3 / len(latencies):.1f} us of CPU; "
          f"threads: {', '.join(f'{ns / 1e3 / len(latencies):.1f}' for ns in spent[1:10])}")


if __name__ == "__main__":
    main()
