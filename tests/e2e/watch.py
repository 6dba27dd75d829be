"""Other clients of a server while something is done to it: answers to live over HTTP and gRPC, and the tokens of a
client that streams one short text after the other. Beside them the machine's own time for such an answer: that of a process
that only returns its input. Each client is a process of its own, so that none waits for another's Python."""
import contextlib
import json
import multiprocessing
import socket
import time

import robustness_grpc
from robustness import post

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOKENS = 48
STREAM = post("/v1/completions", json.dumps({"prompt": "The sea", "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0,
                                             "stream": True}).encode(), "Connection: close")
WHATS = {"live": "answers to live", "grpc": "answers to live over gRPC", "echo": "echoes", "token": "tokens", "first": "first tokens"}
PATIENCE = 120  # seconds; an answer that does not come is one that took so long
ALONE, BESIDE = 1, 2  # phases; what is under way when a phase begins belongs to it


def worst(times):
    return max(times, default=0)


def _echo(listener):
    connection = listener.accept()[0]
    while request := connection.recv(4096):
        connection.sendall(request)


class _Samples:
    def __init__(self, phase):
        self.phase, self.times = phase, {}

    @contextlib.contextmanager
    def one(self, what):
        first, begin = self.phase.value, time.monotonic()
        try:
            yield
        finally:
            self.times.setdefault((max(first, self.phase.value), what), []).append(time.monotonic() - begin)


def _probe(port, grpc_port, echo_port, phase, stop, results):
    """Live on a new connection each time and on kept ones of every event loop, and over gRPC, with an echo after each."""
    samples = _Samples(phase)
    kept = [socket.create_connection(("127.0.0.1", port), PATIENCE) for _ in range(8)]
    echoing = socket.create_connection(("127.0.0.1", echo_port), PATIENCE)

    def ask(s, what):
        with samples.one(what):
            s.sendall(LIVE)
            return s.recv(4096)

    try:
        while not stop.is_set():
            for s in [*kept, None]:
                with contextlib.ExitStack() as stack:
                    s = s or stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE))
                    answer = ask(s, "live")
                    assert answer.startswith(b"HTTP/1.1 200"), answer
                assert ask(echoing, "echo") == LIVE
            if grpc_port:
                with samples.one("grpc"):
                    assert robustness_grpc.is_live(grpc_port)
            time.sleep(0.005)
        results.put(samples.times)
    except TimeoutError:  # its time is a sample like others
        results.put(samples.times)
    except BaseException as error:
        results.put(error)


def _stream(port, phase, stop, results):
    samples = _Samples(phase)
    try:
        while not stop.is_set():
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as s:
                s.sendall(STREAM)
                data, piece = b"", b" "
                while piece:
                    with samples.one("token" if b"data: " in data else "first"):
                        piece = s.recv(65536)
                    data += piece
            if data.startswith(b"HTTP/1.1 503"):  # a budget is full; what that costs others is counted, not timed
                samples.times.setdefault((phase.value, "refused"), []).append(0)
                time.sleep(0.02)
            else:
                assert data.count(b"data: ") > TOKENS and b"data: [DONE]" in data, f"another client's stream: {data[-500:]!r}"
        results.put(samples.times)
    except TimeoutError:  # its time is a sample like others
        results.put(samples.times)
    except BaseException as error:
        results.put(error)


class Watch:
    """Begins in the phase ALONE. `times(phase, what)` are seconds, once stop() was called."""

    def __init__(self, port, grpc_port=0):
        self.phase, self.ending, self.results = multiprocessing.Value("i", ALONE), multiprocessing.Event(), multiprocessing.Queue()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            echo = multiprocessing.Process(target=_echo, args=(listener,), daemon=True)
            echo.start()
            ports = port, grpc_port, listener.getsockname()[1]
        shared = self.phase, self.ending, self.results
        self.clients = [multiprocessing.Process(target=_probe, args=(*ports, *shared), daemon=True),
                        multiprocessing.Process(target=_stream, args=(port, *shared), daemon=True)]
        for client in self.clients:
            client.start()
        self.all_times = {}

    def begin(self, phase):
        self.phase.value = phase

    def stop(self):
        self.ending.set()
        answers = [self.results.get(timeout=PATIENCE + 30) for _ in self.clients]
        for client in self.clients:
            client.join()
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            self.all_times |= answer

    def times(self, phase, what):
        return sorted(self.all_times.get((phase, what), ()))
