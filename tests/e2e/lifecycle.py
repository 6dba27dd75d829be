"""Start time and memory of the server, overload answers, SIGTERM that lets a running stream finish, a model without text.
usage: lifecycle.py NEREID_BINARY"""
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import requests

SLOW = os.environ.get("NEREID_E2E_SLOW") == "1"
MAX_READY_SECONDS = 120 if SLOW else 5
DRAINED_TOKENS = 400 if SLOW else 1500  # of the stream that is under way at SIGTERM: well within the server's 30 s
MAX_RSS_MIB = 200


class Server:
    """nereid serve on free ports; killed at exit if it is still there."""

    def __init__(self, binary, *flags, model="models/quickstart", env=None):
        self.folder = tempfile.TemporaryDirectory()
        ports = os.path.join(self.folder.name, "ports")
        self.log = open(os.path.join(self.folder.name, "log"), "w+")
        start = time.monotonic()
        self.process = subprocess.Popen(
            [binary, "serve", model, "--host", "127.0.0.1", "--http-port", "0", "--metrics-port", "0",
             "--port-file", ports, *flags], stdout=self.log, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        while not os.path.exists(ports):
            assert self.process.poll() is None, self.log_text()
            assert time.monotonic() - start < 300, self.log_text()
            time.sleep(0.01)
        with open(ports) as file:
            numbers = dict(line.strip().split("=") for line in file)
        self.url, self.metrics_url = (f"http://127.0.0.1:{numbers[name]}" for name in ("http", "metrics"))
        self.metrics_url += "/metrics"
        assert requests.get(self.url + "/v2/health/ready", timeout=60).status_code == 200
        self.ready_seconds = time.monotonic() - start

    def log_text(self):
        self.log.seek(0)
        return self.log.read()

    def wait_for_requests(self, replies):
        """Returns when the server has all requests of these futures that it has not answered."""
        deadline = time.monotonic() + 60
        while True:
            page = requests.get(self.metrics_url, timeout=60).text
            active = int(re.search(r"^nereid_http_requests_active (\d+)$", page, re.M)[1])
            if active + sum(reply.done() for reply in replies) >= len(replies):
                return
            assert time.monotonic() < deadline, f"{active} requests of {len(replies)}"

    def device_is_healthy(self):
        lines = [line for line in requests.get(self.metrics_url, timeout=60).text.splitlines()
                 if line.startswith("nereid_device_healthy{")]
        assert len(lines) == 1, lines
        return float(lines[0].split()[-1]) == 1

    def peak_rss_mib(self):
        with open(f"/proc/{self.process.pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["VmHWM"].split()[0]) / 1024

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.folder.cleanup()


def stream_tokens(url, num_tokens, on_first=None):
    """Number of events of one long stream; asserts that it ends properly."""
    body = {"prompt": "Once upon a time", "max_tokens": num_tokens, "ignore_eos": True, "temperature": 0,
            "stream": True, "stream_options": {"include_usage": True}}
    usage, done = None, False
    with requests.post(url + "/v1/completions", json=body, stream=True, timeout=600) as reply:
        assert reply.status_code == 200, reply.text
        for line in reply.iter_lines(chunk_size=1):
            if line == b"data: [DONE]":
                done = True
            elif line:
                usage = json.loads(line[6:]).get("usage") or usage
                if on_first:
                    on_first()
                    on_first = None
    assert done, "the stream was cut"
    return usage["completion_tokens"]


def figures(binary):
    with Server(binary) as server:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: stream_tokens(server.url, 64), range(16)))
        rss = server.peak_rss_mib()
        print(f"lifecycle: ready in {server.ready_seconds:.2f} s with a cached engine; peak RSS {rss:.0f} MiB")
        assert server.ready_seconds < MAX_READY_SECONDS, server.log_text()
        assert SLOW or rss < MAX_RSS_MIB, f"{rss} MiB"


def drain(binary):
    with Server(binary) as server:
        begun = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(stream_tokens, server.url, DRAINED_TOKENS, begun.set)
            assert begun.wait(120), server.log_text()
            server.process.send_signal(signal.SIGTERM)
            refused, deadline = False, time.monotonic() + 60
            while not refused and not running.done():
                try:
                    requests.get(server.url + "/v2/health/ready", timeout=5)
                    assert time.monotonic() < deadline, "new connections are accepted after SIGTERM"
                except requests.ConnectionError:
                    refused = True
            was_running = not running.done()
            assert running.result(timeout=600) == DRAINED_TOKENS
        code = server.process.wait(timeout=60)
        assert code == 0, f"exit code {code}: {server.log_text()}"
        print(f"lifecycle: SIGTERM {'in mid-stream' if was_running else 'near the end'}: stream complete, exit code 0")


def cut(binary, signals, *flags):
    """Requests that a stop cuts end with an error that clients understand."""
    long = {"prompt": "Once", "max_tokens": 1900, "ignore_eos": True, "temperature": 0}
    with Server(binary, "--max-batch-size", "2", *flags) as server:
        begun = threading.Semaphore(0)

        def stream(_):
            body = dict(long, stream=True)
            with requests.post(server.url + "/v1/completions", json=body, stream=True, timeout=600) as reply:
                lines = []
                for line in reply.iter_lines(chunk_size=1):  # raises when it is cut
                    lines.append(line)
                    if len(lines) == 1:
                        begun.release()
                return lines

        def ask(_):
            begun.release()
            return requests.post(server.url + "/v1/completions", json=long, timeout=600).status_code

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            streams = [pool.submit(stream, i) for i in range(2)]
            waiting = [pool.submit(ask, i) for i in range(8)]
            for _ in range(10):
                assert begun.acquire(timeout=120), server.log_text()
            server.wait_for_requests(streams + waiting)
            begin = time.monotonic()
            for number in signals:
                server.process.send_signal(number)
                time.sleep(0.05)
            code = server.process.wait(timeout=120)
            seconds = time.monotonic() - begin
            statuses = [reply.result() for reply in waiting]
            streams = [reply.result() for reply in streams]
        assert all(lines[-2:] == [b"data: [DONE]", b""] for lines in streams), streams
        assert set(statuses) <= {200, 503}, statuses
        ended = sum(b"Server exiting" in lines[-4] for lines in streams)
        print(f"lifecycle: {len(signals)} signals, {' '.join(flags)}: {ended} of 2 streams ended with an error event, "
              f"{statuses.count(503)} of 8 requests with 503, exit code {code} after {seconds:.2f} s")
        assert code == 0, server.log_text()


def overload(binary):
    with Server(binary, "--max-batch-size", "1", "--max-queue-size", "1") as server:
        def ask(_):
            return requests.post(server.url + "/v1/completions", timeout=600,
                                 json={"prompt": "Hello", "max_tokens": 400, "ignore_eos": True, "temperature": 0})
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            replies = list(pool.map(ask, range(16)))
        refused = [r for r in replies if r.status_code != 200]
        assert refused and len(refused) < len(replies), [r.status_code for r in replies]
        for r in refused:
            assert r.status_code == 503 and r.headers["Retry-After"] == "1", (r.status_code, r.text)
            assert r.json()["error"]["type"] == "server_error", r.text
        texts = {r.json()["choices"][0]["text"] for r in replies if r.status_code == 200}
        assert len(texts) == 1, texts
        assert requests.get(server.url + "/v2/health/ready", timeout=60).status_code == 200
        print(f"lifecycle: full queue refused {len(refused)} of 16 with 503 and Retry-After")


def device_failure(binary, *flags):
    """The weights in use are cut off: 503 for all, an unready model, by option the end of the process."""
    with tempfile.TemporaryDirectory() as cache, Server(binary, "--cache-dir", cache, *flags) as server:
        ask = {"prompt": "Hello", "max_tokens": 8, "temperature": 0}
        model = server.url + "/v2/models/tensorrt_llm"
        assert requests.post(server.url + "/v1/completions", json=ask, timeout=60).status_code == 200
        assert requests.get(model + "/ready", timeout=60).status_code == 200
        engines = [os.path.join(folder, name) for folder, _, names in os.walk(cache) for name in names
                   if name.endswith(".engine")]
        assert len(engines) == 1, engines
        os.truncate(engines[0], 0)
        what = f"device cpu has failed: {engines[0]} has become smaller while it was in use"
        reply = requests.post(server.url + "/v1/completions", json=ask, timeout=60)
        assert reply.status_code == 503, (reply.status_code, reply.text)
        assert what in reply.json()["error"]["message"], reply.text
        if flags:
            code = server.process.wait(timeout=60)
            assert code == 1, f"exit code {code}: {server.log_text()}"
        else:
            reply = requests.post(server.url + "/v1/completions", json=ask, timeout=60)
            assert reply.status_code == 503 and "not ready" in reply.text, (reply.status_code, reply.text)
            raw = {"text_input": "Hello", "max_tokens": 8}
            reply = requests.post(server.url + "/v2/models/ensemble/generate", json=raw, timeout=60)
            assert reply.status_code == 503 and what in reply.json()["error"], (reply.status_code, reply.text)
            assert requests.get(model + "/ready", timeout=60).status_code == 400
            assert requests.get(server.url + "/v2/health/ready", timeout=60).status_code == 400
            assert requests.get(server.url + "/v2/health/live", timeout=60).status_code == 200
        assert server.log_text().count(what) == 1, server.log_text()
    print(f"lifecycle: a device that failed: 503, {'exit code 1' if flags else 'unready, said once in the log'}")


def device_hang(binary, what, *flags):
    """The device's work, or a call of its driver, never ends: as for one that failed, within the timeout."""
    plugin = os.path.join(os.path.dirname(binary), "..", "test_plugins", "libnereid_hanging_plugin.so")
    with tempfile.TemporaryDirectory() as folder:
        switch = os.path.join(folder, "hang")
        env = {"NEREID_CUDA_LIBRARY": os.path.realpath(plugin), "NEREID_HANGING": switch}
        # Seconds, since a busy machine must not count as hanging before it does.
        timeout = 20 if SLOW else 4
        with Server(binary, "--device", "cuda:0", "--max-batch-size", "2", "--device-timeout-secs", str(timeout),
                    "--exit-timeout-secs", "20", *flags, env=env) as server, \
                concurrent.futures.ThreadPoolExecutor(8) as pool:
            ask = {"prompt": "Hello", "max_tokens": 8, "temperature": 0}
            model = server.url + "/v2/models/tensorrt_llm"

            def complete(**more):
                return requests.post(server.url + "/v1/completions", json={**ask, **more}, timeout=300)

            assert complete().status_code == 200
            while not server.device_is_healthy():  # the first figures have yet to come
                time.sleep(0.05)
            streaming = requests.post(server.url + "/v1/completions", timeout=300, stream=True,
                                      json={**ask, "max_tokens": DRAINED_TOKENS, "ignore_eos": True, "stream": True})
            lines = streaming.iter_lines(chunk_size=1)
            assert next(lines).startswith(b"data: ")
            open(switch + what, "w").close()
            start = time.monotonic()
            waiting = [pool.submit(complete, max_tokens=8 + i) for i in range(6)]
            told = "device cpu has failed: it has made no progress for"
            rest = list(lines)
            assert any(told.encode() in line for line in rest), rest[-4:]
            for reply in [future.result() for future in waiting]:
                assert reply.status_code == 503 and told in reply.json()["error"]["message"], reply.text
            took = time.monotonic() - start
            assert took < 1.25 * timeout + (60 if SLOW else 10), took
            if flags:
                code = server.process.wait(timeout=60)
                assert code == 1, f"exit code {code}: {server.log_text()}"
            else:
                assert complete().status_code == 503
                assert requests.get(model + "/ready", timeout=60).status_code == 400
                assert requests.get(server.url + "/v2/health/ready", timeout=60).status_code == 400
                assert requests.get(server.url + "/v2/health/live", timeout=60).status_code == 200
                while server.device_is_healthy():
                    time.sleep(0.05)
                server.process.terminate()  # the device still hangs
                assert server.process.wait(timeout=60) == 0, server.log_text()
            assert server.log_text().count(told) == 1, server.log_text()
    print(f"lifecycle: a device that hangs ({what}): 503 after {took:.1f} s, timeout {timeout} s, "
          f"{'exit code 1' if flags else 'unready, live, ends at SIGTERM'}")


def without_tokenizer(binary):
    """Token ids in, token ids out; the start lines and the OpenAI endpoints say why."""
    with Server(binary, model="tests/models/llama") as server:
        why = "has no tokenizer files: only the model 'tensorrt_llm' is served"
        assert why in server.log_text(), server.log_text()
        models = requests.post(server.url + "/v2/repository/index", timeout=60).json()
        assert [model["name"] for model in models] == ["tensorrt_llm"], models
        ask = {"input_ids": [1, 2, 3], "input_lengths": 3, "request_output_len": 8, "exclude_input_in_output": True}
        reply = requests.post(server.url + "/v2/models/tensorrt_llm/generate", json=ask, timeout=60)
        assert reply.status_code == 200, reply.text
        assert len(reply.json()["output_ids"]) == 8, reply.text
        for path, body in [("/v1/completions", {"prompt": "Hello"}), ("/v1/completions", {"prompt": [1, 2, 3]}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]})]:
            refused = requests.post(server.url + path, json=body, timeout=60)
            assert refused.status_code == 501, (refused.status_code, refused.text)
            assert "no tokenizer" in refused.json()["error"]["message"], refused.text
        assert requests.get(server.url + "/v1/models", timeout=60).status_code == 501
        assert requests.get(server.url + "/v2/health/ready", timeout=60).status_code == 200
    print("lifecycle: a folder without a tokenizer is served by ids, and says why")


def main():
    binary = sys.argv[1]
    figures(binary)
    drain(binary)
    cut(binary, [signal.SIGTERM], "--exit-timeout-secs", "0")
    cut(binary, [signal.SIGTERM, signal.SIGTERM], "--exit-timeout-secs", "300")
    overload(binary)
    without_tokenizer(binary)
    device_failure(binary)
    device_failure(binary, "--exit-on-device-failure")
    device_hang(binary, ".work")
    device_hang(binary, ".call")
    device_hang(binary, ".call", "--exit-on-device-failure")


if __name__ == "__main__":
    main()
