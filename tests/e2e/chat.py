"""`nereid chat` with a folder and with a server, by pipe and on a terminal; options of `nereid serve` from a file; bars of
long work.

usage: chat.py NEREID"""
import contextlib
import fcntl
import http.server
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import termios
import threading
import time

from own_server import MODEL, serving

NEREID = os.path.abspath(sys.argv[1])


def run(*words, text="", code=0, **more):
    done = subprocess.run([NEREID, *words], input=text, capture_output=True, text=True, timeout=120, env={**os.environ, **more},
                          check=False)
    assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


class ScriptedServer:
    """OpenAI's API with answers of a test: `pieces` of each answer, with a pause before each."""

    def __init__(self):
        self.pieces = ["Hello", " there"]
        self.pause = 0
        self.bodies = []
        self.headers = []
        self.left = threading.Event()  # a client went away in the middle of an answer
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                server.headers.append(dict(self.headers))
                self.reply(200, {"data": [{"id": "first"}, {"id": "second"}]})

            def reply(self, status, body):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_POST(self):
                server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                if server.pieces is None:
                    self.reply(400, {"error": {"message": "too long\x1b[2J"}})
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                try:
                    for piece in server.pieces:
                        time.sleep(server.pause)
                        delta = piece if isinstance(piece, dict) else {"content": piece}
                        self.event({"choices": [{"index": 0, "delta": delta}]})
                    self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
                                "usage": {"completion_tokens": len(server.pieces)}})
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    server.left.set()

            def event(self, body):
                self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\n")
                self.wfile.flush()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


@contextlib.contextmanager
def scripted():
    server = ScriptedServer()
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()


def check_pipe():
    with scripted() as server, tempfile.TemporaryDirectory() as folder:
        saved = os.path.join(folder, "chat.json")
        lines = ["Hi", "/system Be brief.", "one\\", "two", '"""', "a", "", "b", '"""', "//etc", f"/save {saved}", "/model second",
                 "/set temperature 0.5", "Again", "/retry", "/clear", "Anew", "/quit", "never"]
        done = run("chat", server.url, text="\n".join(lines), NEREID_API_KEY="secret")
        assert done.stdout == "Hello there\n" * 7 and done.stderr == "", done
        sent = [body["messages"] for body in server.bodies]
        assert sent[0] == [{"role": "user", "content": "Hi"}]
        assert sent[1] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                           {"role": "assistant", "content": "Hello there"}, {"role": "user", "content": "one\ntwo"}]
        assert sent[2][-1]["content"] == "a\n\nb" and sent[3][-1]["content"] == "/etc"
        assert sent[4] == sent[5] and sent[6] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Anew"}]
        assert [body["model"] for body in server.bodies] == ["first"] * 4 + ["second"] * 3
        assert "temperature" not in server.bodies[3] and server.bodies[4]["temperature"] == 0.5
        assert server.headers[0]["Authorization"] == "Bearer secret"
        conversation = json.loads(pathlib.Path(saved).read_text(encoding="utf-8"))
        assert conversation["system"] == "Be brief." and len(conversation["messages"]) == 8, conversation
        # A saved conversation goes on; faults of lines are reported, and the code is 1.
        server.bodies.clear()
        done = run("chat", server.url + "/v1/", "--load", saved, "--model", "second", "--set", "seed=1", 
                   text=f"More\n/cler\n/save\n/load /no\n/set x banana\n/save {folder}/new/chat.json\n", code=1)
        assert done.stdout == "Hello there\n" and len(server.bodies[0]["messages"]) == 10 and server.bodies[0]["seed"] == 1
        assert "Did you mean '/clear'?" in done.stderr and "usage: /save FILE" in done.stderr and "/no" in done.stderr, done
        assert "x: 'banana' is no JSON" in done.stderr and f"no folder {folder}/new" in done.stderr, done
        assert not os.path.exists(os.path.join(folder, "new"))
        # One question; text on standard input; a server that refuses.
        assert run("chat", server.url, "-p", "Hi", "--stats").stdout == "Hello there\n"
        assert run("chat", server.url, "-p", "-", text="a\nb\n").stdout == "Hello there\n"
        assert server.bodies[-1]["messages"] == [{"role": "user", "content": "a\nb\n"}]
        server.pieces = None
        done = run("chat", server.url, text="Hi\n", code=1)
        assert "HTTP 400: too long\\x1b[2J" in done.stderr, done
        for words, said in ((("chat", "http://127.0.0.1:1"), "127.0.0.1:1"), (("chat", server.url, "--set", "x"), "FIELD=VALUE"),
                            (("chat", server.url, "--set", "stream=false"), "cannot be set here")):
            assert said in run(*words, code=1).stderr


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *words):
        self.main, side = pty.openpty()
        self.process = subprocess.Popen([NEREID, *words], stdin=side, stdout=side, stderr=side, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(side)
        self.shown = ""

    def until(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.shown:
            assert time.monotonic() < end, f"no {text!r} in {self.shown!r}"
            if select.select([self.main], [], [], 0.2)[0]:
                with contextlib.suppress(OSError):
                    self.shown += os.read(self.main, 4096).decode(errors="replace")
        before, self.shown = self.shown.split(text, 1)
        return before

    def type(self, text):
        os.write(self.main, text.encode())

    def ends(self, code=0):
        assert self.process.wait(30) == code
        os.close(self.main)


def check_terminal():
    with scripted() as server:
        server.pieces = [{"reasoning_content": "hm"}, "safe\x1b[2J\x07", " end"]
        chat = Terminal("chat", server.url)
        chat.until(">>> ")
        chat.type("Hi\n")
        answer = chat.until(">>> ")
        assert "\x1b[2mhm\x1b[0m" in answer and "safe\\x1b[2J\\x07 end" in answer, answer
        # Ctrl-C stops the answer, not the program; what came is part of the conversation.
        server.pieces, server.pause = ["word "] * 600, 0.05
        chat.type("Count\n")
        chat.until("word word ")
        chat.type("\x03")
        chat.until("[stopped]")
        chat.until(">>> ")
        assert server.left.wait(20)
        server.pieces, server.pause = ["done"], 0
        chat.type("Then\n")
        chat.until("done")
        assert server.bodies[-1]["messages"][-2]["content"].startswith("word ")
        chat.until(">>> ")
        # At the prompt: the first Ctrl-C drops the line, a second one leaves, as does Ctrl-D.
        chat.type("half a li\x03")
        chat.until("(Ctrl-C again, Ctrl-D or /quit leaves)")
        chat.until(">>> ")
        chat.type("/help\n")
        chat.until("/retry")
        chat.until(">>> ")
        chat.type("\x04")
        chat.ends()
        chat = Terminal("chat", server.url)
        chat.until(">>> ")
        chat.type("\x03")
        chat.until(">>> ")
        chat.type("\x03")
        chat.ends()
        chat = Terminal("chat", server.url)
        chat.until(">>> ")
        chat.process.send_signal(signal.SIGTERM)
        chat.ends()


def check_folder():
    """The model in the program's own process."""
    done = run("chat", MODEL, "--set", "temperature=0", text="What is machine learning?\n/set max_tokens 4\nAnd then?\n")
    lines = done.stdout.strip().split("\n")
    assert len(lines) >= 2 and all(lines), done
    alone = run("chat", MODEL, "--set", "temperature=0", "-p", "What is machine learning?").stdout
    assert done.stdout.startswith(alone), (done.stdout, alone)
    with serving(NEREID) as url:
        assert run("chat", url, "--set", "temperature=0", "-p", "What is machine learning?").stdout == alone
        assert "HTTP 400" in run("chat", url, "--set", "temperature=-5", "-p", "x", code=1).stderr
    assert "give the folder of a model" in run("chat", "/no/such/folder", code=1).stderr
    chat = Terminal("chat", MODEL, "--set", "max_tokens=400", "--set", "ignore_eos=true")
    chat.until(">>> ")
    chat.type("What is machine learning?\n")
    time.sleep(0.3)
    chat.type("\x03")
    chat.until(">>> ")
    chat.type("/quit\n")
    chat.ends()


def check_bars():
    """Long work shows a bar on a terminal and nothing elsewhere."""
    words = ("bench", MODEL, "--batch", "1", "--repeats", "30")
    assert "\r" not in run(*words).stderr

    def on_terminal(**more):
        main, side = pty.openpty()
        process = subprocess.Popen([NEREID, *words], stdout=subprocess.DEVNULL, stderr=side, env={**os.environ, "TERM": "xterm", **more})
        os.close(side)
        shown = b""
        with contextlib.suppress(OSError):
            while piece := os.read(main, 4096):
                shown += piece
        os.close(main)
        assert process.wait(60) == 0
        return shown.decode()

    shown = on_terminal()
    assert re.search(r"\rbench  \[#+-*\] +\d+%  \d+ of 30  [\d.]+/s", shown) and shown.endswith("\r\x1b[K"), shown
    assert "\r" not in on_terminal(NEREID_PROGRESS="0").replace("\r\n", "")
    assert "\r" not in on_terminal(TERM="dumb").replace("\r\n", "")


def check_config():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "nereid.toml")

        def write(text):
            pathlib.Path(file).write_text(text, encoding="utf-8")

        def printed(*words, **more):
            return json.loads(run("serve", *words, "--print-config", **{"NEREID_CONFIG": file, **more}).stdout)

        write(f'model = "{MODEL}"\nmax_batch_size = 5\nmax-queue-size = 6\nhttp-port = 0\nno-ui = true\napi-key = ["a", "b"]\n')
        shown = printed("--max-batch-size", "3", NEREID_MAX_QUEUE_SIZE="4")
        sources = shown["from"]
        assert shown["engine"]["max_batch_size"] == 3 and sources["max_batch_size"] == "flag --max-batch-size"
        assert shown["engine"]["max_queue_size"] == 4 and sources["max_queue_size"] == "environment NEREID_MAX_QUEUE_SIZE"
        assert shown["server"]["http_port"] == 0 and sources["http_port"] == f"{file}:4"
        assert shown["server"]["ui"] is False and sources["ui"] == f"{file}:5" and sources["api_key"] == f"{file}:6"
        assert sources["model"] == f"{file}:1" and sources["host"] == "default", sources
        assert shown["log_level"] == "info" and sources["log_level"] == "default"
        assert sources["max_prefill_ms"] == "default: 50 on CPUs, 0 on GPUs", sources
        assert '"a"' not in json.dumps(shown) and set(sources) > {"kv_cache.type", "device"}, shown
        # Other places of the file, and none.
        os.makedirs(os.path.join(folder, "nereid"))
        os.rename(file, os.path.join(folder, "nereid", "nereid.toml"))
        assert printed(NEREID_CONFIG="", XDG_CONFIG_HOME=folder)["engine"]["max_batch_size"] == 5
        assert printed(MODEL, "--no-config", NEREID_CONFIG="", XDG_CONFIG_HOME=folder)["from"]["max_batch_size"] == "default"
        assert printed(NEREID_CONFIG="", NEREID_MODEL=MODEL)["from"]["model"] == "environment NEREID_MODEL"
        for text, said in (("max-batch-sice = 1", f"{file}:1: key 'max-batch-sice': no flag has that name. Did you mean 'max-batch-size'?"),
                           ("\nmax-batch-size = 0.5", f"{file}:2: key 'max-batch-size'"), ("max-batch-size = 99999", "99999"),
                           ("[server]\nx = 1", "key 'server': no flag has that name"), ("max-batch-size 1", f"{file}:1:"),
                           ("print-config = true", "no flag has that name")):
            write(text)
            error = run("serve", MODEL, "--config", file, code=1).stderr
            assert said in error, error
        assert "/no/file" in run("serve", MODEL, "--config", "/no/file", code=1).stderr
        for variable, value, code in (("NEREID_CONFIG", "/no/file", 1), ("NEREID_MODEL", "/no/model", 1), ("NEREID_MAX_BATCH_SIZE", "x", 105)):
            words = ("serve",) if variable == "NEREID_MODEL" else ("serve", MODEL)
            error = run(*words, code=code, **{"NEREID_CONFIG": "", variable: value}).stderr
            assert variable in error and value in error, error
        assert "model is required" in run("serve", "--no-config", code=106).stderr
        write('http-port = 0\nmetrics-port = 0\nmodel-name = "of the file"\napi-key = "right"\n')
        with serving(NEREID, "--config", file) as url:
            assert "of the file" in run("ps", "--url", url, "--api-key", "right").stdout
            assert "wants a key: --api-key" in run("ps", "--url", url).stdout
            assert "refuses the key of --api-key" in run("ps", "--url", url, NEREID_API_KEY="wrong").stdout


for check in (check_pipe, check_terminal, check_folder, check_bars, check_config):
    begun = time.monotonic()
    check()
    print(f"chat: {check.__name__} {time.monotonic() - begun:.1f} s", flush=True)
print("chat: ok")
