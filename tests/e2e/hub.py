"""Models by name: `nereid pull`, `list`, `rm`, `ps` and `serve hf://ORG/NAME` against a server that speaks the hub's
protocol, and against one that is hostile.

usage: hub.py NEREID [CHECK ...]"""
import contextlib
import hashlib
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import fake_hub
from own_server import MODEL, serving

NEREID = os.path.abspath(sys.argv[1])
FILES = {name: pathlib.Path(MODEL, name).read_bytes() for name in os.listdir(MODEL)}
OTHERS = {"README.md": b"# text", "pytorch_model.bin": b"\x80\x02pickle", "modeling_x.py": b"import os", ".gitattributes": b"x",
          "onnx/model.safetensors": b"no"}


class Caller:
    """Runs the program with a cache of its own and the environment of a user."""

    def __init__(self, hub, folder):
        self.folder = pathlib.Path(folder)
        self.cache = self.folder / "cache"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "NEREID_", "XDG_"))
                and not key.lower().endswith("_proxy") and key not in ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")}
        self.env = {**kept, "HF_ENDPOINT": hub.url, "NEREID_CACHE_DIR": str(self.cache), "HF_HOME": str(self.folder / "hf"),
                    "HOME": str(self.folder), "NEREID_FSYNC": "0"}

    def run(self, *words, code=0, **more):
        done = subprocess.run([NEREID, *words], env={**self.env, **more}, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def fails(self, said, *words, code=1, **more):
        text = self.run(*words, code=code, **more).stderr
        assert said in text, f"{words}: {text}"
        return text

    def start(self, *words, **more):
        return subprocess.Popen([NEREID, *words], env={**self.env, **more}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def listed(self):
        return json.loads(self.run("list", "--json").stdout)["models"]

    def bytes_of_parts(self):
        """Bytes of all partial files; a pull that runs may rename one between the listing and its stat()."""
        sizes = 0
        for path in self.cache.rglob("*.part"):
            with contextlib.suppress(FileNotFoundError):
                sizes += path.stat().st_size
        return sizes


@contextlib.contextmanager
def caller():
    with fake_hub.running() as hub, tempfile.TemporaryDirectory() as folder:
        yield hub, Caller(hub, folder)


def same_files(folder, files):
    there = {str(path.relative_to(folder)): path.read_bytes() for path in pathlib.Path(folder).rglob("*")
             if path.is_file() and path.name != ".nereid-model.json"}
    assert there == files, set(there) ^ set(files)


def check_pull():
    with caller() as (hub, user):
        commit = hub.add("org/tiny", {**FILES, **OTHERS, "1_Pooling/config.json": b"{}"})
        path = user.run("pull", "org/tiny").stdout.strip()
        assert path.endswith(f"models/org--tiny/{commit}"), path
        same_files(path, {**FILES, "1_Pooling/config.json": b"{}"})
        large = [name for name, data in FILES.items() if len(data) >= hub.large]
        assert large and len(hub.requests("cdn")) == len(large)
        assert all(headers["user-agent"].startswith("nereid/") for _, _, _, headers in hub.requests())
        # Complete: one request for the list, none for files; offline none at all.
        hub.forget()
        assert user.run("pull", "hf://org/tiny@" + commit).stdout.strip() == path
        assert len(hub.requests()) == 1 and not hub.requests("cdn")
        hub.forget()
        assert user.run("pull", "org/tiny", HF_HUB_OFFLINE="1").stdout.strip() == path
        assert not hub.requests()
        # A later revision has the equal files linked, not downloaded.
        second = hub.add("org/tiny", {**FILES, "config.json": FILES["config.json"] + b"\n"})
        hub.forget()
        newer = user.run("pull", "org/tiny").stdout.strip()
        assert newer.endswith(second) and newer != path
        assert len(hub.requests()) == 2 and not hub.requests("cdn"), hub.requests()
        rows = user.listed()
        assert [(row["model"], row["complete"]) for row in rows] == [("org/tiny", True)] * 2, rows
        assert {row["commit"]: row["revisions"] for row in rows}[second] == ["main"], rows
        assert user.run("rm", "org/tiny").stdout.startswith("removed org/tiny: ")
        same_files(path, {**FILES, "1_Pooling/config.json": b"{}"})
        assert [row["commit"] for row in user.listed()] == [commit]
        user.run("rm", "--all", "org/tiny")
        assert not user.listed() and not (user.cache / "models" / "org--tiny").exists()
        user.fails("org/tiny: was not pulled", "rm", "org/tiny", code=3)
        # A hub whose list has names alone: sizes and checksums are those of the files' headers.
        hub.plain_list = True
        path = user.run("pull", "org/tiny").stdout.strip()
        same_files(path, {**FILES, "config.json": FILES["config.json"] + b"\n"})
        assert len(hub.requests("hub", "HEAD")) == len(FILES)


def check_shards():
    with caller() as (hub, user):
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
        files = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode(),
                 "model-00001-of-00002.safetensors": b"1" * 30_000, "model-00002-of-00002.safetensors": b"2" * 30_000}
        hub.add("org/shards", {**files, "consolidated.safetensors": b"3" * 30_000})
        same_files(user.run("pull", "org/shards", "-j", "1").stdout.strip(), files)
        hub.add("org/broken", {name: data for name, data in files.items() if "00002-of" not in name})
        user.fails("model.safetensors.index.json: the model has no file 'model-00002-of-00002.safetensors'", "pull", "org/broken",
                   code=3)
        assert {row["model"]: row["complete"] for row in user.listed()} == {"org/shards": True, "org/broken": False}
        # GGUF by name, beside a checkpoint; with its other parts.
        gguf = {"x-Q8_0.gguf": b"q8" * 20_000, "y-00001-of-00002.gguf": b"1", "y-00002-of-00002.gguf": b"2"}
        hub.add("org/gguf", {**gguf, "config.json": b"{}"})
        user.fails("name one of its .gguf files behind ':': x-Q8_0.gguf", "pull", "org/gguf", code=3)
        user.fails("Did you mean 'x-Q8_0.gguf'?", "pull", "org/gguf:x-Q8_1.gguf", code=3)
        path = user.run("pull", "org/gguf:x-Q8_0.gguf").stdout.strip()
        assert path.endswith("/x-Q8_0.gguf")
        same_files(os.path.dirname(path), {"x-Q8_0.gguf": gguf["x-Q8_0.gguf"]})
        user.run("pull", "org/gguf:y-00001-of-00002.gguf")
        same_files(os.path.dirname(path), gguf)
        hub.forget()
        assert user.run("pull", "org/gguf:x-Q8_0.gguf", HF_HUB_OFFLINE="1").stdout.strip() == path
        hub.add("org/pickle", {"config.json": b"{}", "pytorch_model.bin": b"x"})
        user.fails("as pickles alone (pytorch_model.bin), which are not taken", "pull", "org/pickle", code=3)


def check_token():
    with caller() as (hub, user):
        hub.add("org/tiny", FILES)
        hub.token = "hf_secret"
        user.fails("set HF_TOKEN to a token", "pull", "org/tiny", code=4)
        text = user.fails("the token of HF_TOKEN is invalid or has no access", "pull", "org/tiny", code=4, HF_TOKEN="hf_other")
        assert "hf_other" not in text
        hub.gated = True
        user.fails("accept its terms", "pull", "org/tiny", code=4)
        hub.forget()
        token = user.folder / "hf" / "token"
        token.parent.mkdir(parents=True)
        token.write_text("hf_secret\n", encoding="utf-8")
        user.run("pull", "org/tiny")
        assert all(headers["authorization"] == "Bearer hf_secret" for _, _, _, headers in hub.requests("hub"))
        assert hub.requests("cdn") and all("authorization" not in headers for _, _, _, headers in hub.requests("cdn"))
        assert all("cookie" not in headers and "hf_secret" not in path for _, _, path, headers in hub.requests("cdn"))


def check_errors():
    with caller() as (hub, user):
        hub.add("org/tiny", FILES)
        user.fails("org/none: the hub has nothing of that name", "pull", "org/none", code=3)
        user.fails("org/tiny@v9: the model has no such revision", "pull", "org/tiny@v9", code=3)
        for word in ("tiny", "../x/y", "org/tiny@../x", "org/tiny:x.bin", "hf://", "http://a/b"):
            user.run("pull", word, code=1)
        assert len(hub.requests()) == 2
        user.fails("HF_ENDPOINT: 'file:///etc'", "pull", "org/tiny", HF_ENDPOINT="file:///etc")
        user.fails("is not complete in", "pull", "org/tiny", code=7, HF_HUB_OFFLINE="1")
        # Busy for a while, then for good.
        busy = []

        def answer(server, method, path, headers):
            busy.append(path)
            return (429, {"Retry-After": "1"}, b"") if len(busy) == 1 else (503, {}, b"") if len(busy) == 2 else None

        hub.answer = answer
        begin = time.monotonic()
        text = user.run("pull", "org/tiny").stderr
        assert "too many requests" in text and "the hub answers 503" in text and time.monotonic() - begin > 2, text
        user.run("rm", "org/tiny")
        hub.answer = lambda *_: (502, {}, b"<html>" + b"x" * 100_000)
        hub.forget()
        user.fails("after 5 attempts: org/tiny: the hub answers 502", "pull", "org/tiny", code=7)
        assert len(hub.requests()) == 5
        hub.answer = lambda *_: (429, {"Retry-After": "86400"}, b"")
        user.fails("it asks to wait for 24:00:00", "pull", "org/tiny", code=7)
        user.fails("127.0.0.1:1: ", "pull", "org/tiny", code=7, HF_ENDPOINT="http://127.0.0.1:1")


def check_resume():
    with caller() as (hub, user):
        commit = hub.add("org/tiny", FILES)
        large = len(FILES["model.safetensors"])
        # Cut in the middle: the rest alone is asked for.
        hub.cut = 3
        path = user.run("pull", "org/tiny", "-j", "1").stdout.strip()
        same_files(path, FILES)
        ranges = [headers["range"] for _, _, _, headers in hub.requests("cdn") if "range" in headers]
        assert ranges and all(re.fullmatch(r"bytes=[1-9]\d*-", text) for text in ranges), ranges
        user.run("rm", "org/tiny")
        # Stopped by Ctrl-C, by SIGTERM and killed: what is there stays, and the next pull goes on.
        for name, signal_number in (("INT", signal.SIGINT), ("TERM", signal.SIGTERM), ("KILL", signal.SIGKILL)):
            hub.rate = large // 4
            before = user.bytes_of_parts()
            pull = user.start("pull", "org/tiny")
            while user.bytes_of_parts() < before + large // 20:
                assert pull.poll() is None, pull.communicate()
                time.sleep(0.02)
            pull.send_signal(signal_number)
            text = pull.communicate(timeout=20)[1]
            assert pull.returncode == -signal_number, (name, pull.returncode, text)
            assert name == "KILL" or "goes on from here" in text, text
            assert [row["complete"] for row in user.listed()] == [False]
            user.fails("is not complete", "pull", "org/tiny", code=7, HF_HUB_OFFLINE="1")
        hub.rate = None
        hub.forget()
        same_files(user.run("pull", "org/tiny").stdout.strip(), FILES)
        assert any("range" in headers for _, _, _, headers in hub.requests("cdn"))
        user.run("rm", "org/tiny")
        # A partial file with wrong bytes fails its checksum and is downloaded again.
        part = user.cache / "models" / "org--tiny" / commit / "model.safetensors.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"x" * (large // 2))
        text = user.run("pull", "org/tiny").stderr
        assert "the checksum is wrong; downloading it again" in text, text
        same_files(part.parent, FILES)
        user.run("rm", "org/tiny")
        # A part that is longer than the file, and one that is a link.
        part.parent.mkdir(parents=True)
        part.write_bytes(b"x" * (large + 1))
        same_files(os.path.dirname(part), {"model.safetensors.part": b"x" * (large + 1)})
        user.run("pull", "org/tiny")
        same_files(part.parent, FILES)
        user.run("rm", "org/tiny")
        secret = user.folder / "secret"
        secret.write_bytes(b"secret")
        part.parent.mkdir(parents=True)
        part.symlink_to(secret)
        user.run("pull", "org/tiny", code=7)
        assert secret.read_bytes() == b"secret"


def check_two_pulls():
    with caller() as (hub, user):
        hub.add("org/tiny", FILES)
        hub.rate = len(FILES["model.safetensors"]) // 2
        pulls = [user.start("pull", "org/tiny") for _ in range(3)]
        outputs = [pull.communicate(timeout=60) for pull in pulls]
        assert [pull.returncode for pull in pulls] == [0, 0, 0], outputs
        assert len({output[0] for output in outputs}) == 1
        assert sum("another process pulls this model" in output[1] for output in outputs) == 2, outputs
        assert len(hub.requests("cdn")) == sum(len(data) >= hub.large for data in FILES.values())
        same_files(outputs[0][0].strip(), FILES)


def refused(said, model_files=None, answer=None, code=1, **more):
    """A hostile hub: the pull ends with `said`, and nothing but the cache has changed."""
    with caller() as (hub, user):
        hub.add("org/bad", model_files or FILES)
        hub.answer = answer and (lambda *request: answer(hub, *request))
        begin = time.monotonic()
        text = user.fails(said, "pull", "org/bad", code=code, **more)
        assert time.monotonic() - begin < 60
        assert "\x1b" not in text and "complete\": true" not in user.run("list", "--json").stdout
        assert {path.name for path in user.folder.iterdir()} <= {"cache", "hf"}, list(user.folder.iterdir())
        return hub


def check_hostile_lists():
    for name in ("../evil.json", "a/../../evil.json", "/etc/evil.json", "a\\..\\evil.json", "evil\n.json", "\x1b[2Jevil.json",
                 "a//evil.json", "./evil.json"):
        refused("; refused", {**FILES, name: b"{}"})
    sha, blob = "a" * 64, "b" * 40

    def listing(*siblings, commit="c" * 40):
        body = json.dumps({"sha": commit, "siblings": siblings}).encode()
        return lambda hub, server, method, path, headers: (200, {}, body) if path.startswith("/api") else None

    weights = {"rfilename": "model.safetensors", "size": 5, "lfs": {"sha256": sha, "size": 5}}
    refused("'model.safetensors' is listed twice", answer=listing(weights, weights))
    refused("is no commit", answer=listing(weights, commit="../../x"))
    refused("its size -5", answer=listing({"rfilename": "model.safetensors", "size": -5, "blobId": blob}))
    refused("its size 17592186044417", answer=listing({"rfilename": "model.safetensors", "size": 2**44 + 1, "blobId": blob}))
    refused("100001 files", answer=listing(*({"rfilename": f"{i}.json"} for i in range(100_001))))
    refused("has more than 33554432 bytes", answer=lambda *_: (200, {}, b" " * (33 << 20)))
    refused("error page has more than", answer=lambda *_: (404, {}, b" " * (3 << 20)))
    refused("headers of more than", answer=lambda *_: (200, {f"X-{i}": "x" * 1000 for i in range(99)}, b"{}"))
    refused("the hub's list of files", answer=lambda *_: (200, {}, b"[" * 100_000))
    refused("the hub's list of files", answer=lambda *_: (200, {}, b"\xff\xfe"))
    refused("are missing and", answer=listing({"rfilename": "model.safetensors", "size": 2**43, "blobId": blob}), code=6)
    # A file without a checksum is not taken.
    refused("names no checksum", answer=lambda hub, server, method, path, headers:
            (200, {"Content-Length": "5"}, b"") if method == "HEAD" else
            listing({"rfilename": "model.safetensors"})(hub, server, method, path, headers))
    # The headers' commit is another one.
    refused("of commit 'dddd", answer=lambda hub, server, method, path, headers:
            (200, {"Content-Length": "5", "ETag": f'"{sha}"', "X-Repo-Commit": "d" * 40}, b"") if method == "HEAD" else
            listing({"rfilename": "model.safetensors"})(hub, server, method, path, headers))


def check_hostile_files():
    data = FILES["model.safetensors"]
    name = hashlib.sha256(data).hexdigest()

    def at_cdn(status, headers, body):
        return lambda hub, server, method, path, _: (status, headers, body) if name in path else None

    wrong = data[:-1] + bytes([data[-1] ^ 1])
    refused("have another sha256 than the hub named", answer=at_cdn(200, {}, wrong), code=5)
    refused("the hub sends", answer=at_cdn(200, {}, data + b"more"))
    # Without a length, and longer than the size that the list has.
    refused("sends more than the", answer=at_cdn(200, {"Content-Length": "", "Connection": "close"}, data + b"more"))
    refused("the hub sends bytes from 7 on", answer=at_cdn(206, {"Content-Range": f"bytes 7-{len(data)}/{len(data)}"}, data))
    # An index that leads out of the folder.
    refused("has no file '../../x.safetensors'", {**FILES, "model.safetensors.index.json":
            json.dumps({"weight_map": {"x": "../../x.safetensors"}}).encode()}, code=3)


def check_redirects():
    def to(place):
        return lambda hub, server, method, path, headers: (302, {"Location": place.format(cdn=hub.cdn, path=path)}, b"") \
            if "/resolve/" in path and "model.safetensors" in path else None

    for place, said in (("file:///etc/passwd", "neither https nor http"), ("ftp://127.0.0.1/x", "neither https nor http"),
                        ("gopher://127.0.0.1:25/x", "neither https nor http"),
                        ("http://user:word@127.0.0.1/", "with the name of a user"),
                        ("http://169.254.169.254/latest/meta-data/", "a link-local or reserved address"),
                        ("http://[::ffff:169.254.169.254]/", "a link-local or reserved address"),
                        ("http://", "redirects to"), ("", "redirects to")):
        refused(said, answer=to(place), HF_TOKEN="hf_secret")
    hub = refused("more than 8 redirects", answer=lambda hub, server, method, path, headers:
                  (302, {"Location": path}, b"") if "/resolve/" in path else None)
    assert len(hub.requests()) < 60
    # A relative redirect stays at the hub and keeps the token; one to another host loses it.
    with caller() as (hub, user):
        hub.add("org/tiny", FILES)
        hub.token = "hf_secret"
        hub.answer = lambda server, method, path, headers: (307, {"Location": path.replace("/resolve/", "/moved/")}, b"") \
            if "/resolve/" in path else hub.route("hub", path.replace("/moved/", "/resolve/"), headers) if "/moved/" in path else None
        user.run("pull", "org/tiny", HF_TOKEN="hf_secret")
        assert any("/moved/" in path for _, _, path, _ in hub.requests())
        assert hub.requests("cdn") and all("authorization" not in headers for _, _, _, headers in hub.requests("cdn"))


def check_tls():
    with caller() as (hub, user):
        certificate, key = user.folder / "hf.pem", user.folder / "hf.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hub", "-addext",
                        "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate], check=True, capture_output=True)
        hub.use_tls(certificate, key)
        hub.add("org/tiny", FILES)
        hub.token = "hf_secret"
        tls = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_secret"}
        user.fails("certificate", "pull", "org/tiny", **tls)
        assert not hub.requests()
        # Large files are at a server without TLS.
        user.fails("from https to http; refused", "pull", "org/tiny", **tls, SSL_CERT_FILE=str(certificate))
        hub.large = 1 << 40
        same_files(user.run("pull", "org/tiny", **tls, SSL_CERT_FILE=str(certificate)).stdout.strip(), FILES)


def check_terminal():
    """On a terminal a bar with rate and time left; elsewhere plain lines."""
    with caller() as (hub, user):
        hub.add("org/tiny", FILES)
        hub.rate = len(FILES["model.safetensors"]) // 3
        text = user.run("pull", "org/tiny").stderr
        assert "\r" not in text and "org/tiny  [####################]  100%" in text, text
        user.run("rm", "org/tiny")
        main, side = pty.openpty()
        pull = subprocess.Popen([NEREID, "pull", "org/tiny"], env={**user.env, "TERM": "xterm"}, stderr=side, stdout=subprocess.PIPE)
        os.close(side)
        shown = b""
        with contextlib.suppress(OSError):
            while piece := os.read(main, 4096):
                shown += piece
        os.close(main)
        assert pull.wait(30) == 0
        assert re.search(rb"\rorg/tiny  \[#*-*\] +\d+%.*MB of .*MB.*/s  \d:\d\d left", shown), shown[-2000:]


def check_serve():
    with caller() as (hub, user):
        commit = hub.add("org/tiny", FILES)
        done = user.run("serve", "hf://org/tiny", "--print-config")
        assert json.loads(done.stdout)["model"] == "hf://org/tiny" and "is not in the cache" in done.stderr, done
        assert not hub.requests(), "printing options downloads nothing"
        saved = dict(os.environ)
        os.environ.clear()
        os.environ.update(user.env)
        try:
            with serving(NEREID, model="hf://org/tiny") as url:
                models = json.load(urllib.request.urlopen(url + "/v1/models", timeout=20))
                assert [model["id"] for model in models["data"]] == ["org/tiny"], models
                body = json.dumps({"model": "org/tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}).encode()
                request = urllib.request.Request(url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
                assert json.load(urllib.request.urlopen(request, timeout=60))["usage"]["completion_tokens"] > 0
                report = json.loads(user.run("ps", "--json").stdout)["servers"]
                assert [(row["url"].rsplit(":", 1)[1], row["source"], row["state"], row["models"]) for row in report] == \
                    [(url.rsplit(":", 1)[1], "hf://org/tiny", "ready", ["org/tiny"])], report
                assert "org/tiny" in user.run("ps").stdout
                assert "org/tiny" in user.run("ps", "--url", url).stdout
                assert json.loads(user.run("serve", "hf://org/tiny", "--print-config").stdout)["model"].startswith(str(user.cache))
            assert user.run("ps").stdout.count("\n") == 1
            # Complete: no request, even to a hub that is not there.
            hub.forget()
            os.environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
            with serving(NEREID, model=f"hf://org/tiny@{commit}"):
                pass
            assert not hub.requests()
            assert "llama" in user.run("inspect", "hf://org/tiny").stdout.lower()
        finally:
            os.environ.clear()
            os.environ.update(saved)
        user.fails("no answer", "ps", "--url", "http://127.0.0.1:1")
        user.fails("give hf://org/tiny to a command that loads a model", "serve", "org/tiny")
        user.fails("the hub has nothing of that name (the hub: Repository not found) Did you mean 'org/tiny'?", "serve", "hf://org/tyni")


def check_hub_cache():
    """A model that the hub's own tools downloaded is read where it lies, and left there."""
    with caller() as (hub, user):
        hub.add("org/tiny", FILES)
        commit = "e" * 40
        folder = user.folder / "hf" / "hub" / "models--org--tiny"
        snapshot = folder / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (folder / "blobs").mkdir()
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(commit, encoding="utf-8")
        for name, data in FILES.items():
            blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
            blob.write_bytes(data)
            (snapshot / name).symlink_to(os.path.join("..", "..", "blobs", blob.name))
        assert user.run("pull", "org/tiny", HF_HUB_OFFLINE="1").stdout.strip() == str(snapshot)
        answer = user.run("generate", "hf://org/tiny", "-p", "What is machine learning?", "-n", "4")
        assert answer.stdout.strip() and not hub.requests()
        assert [(row["hub_cache"], row["complete"]) for row in user.listed()] == [(True, True)]
        user.fails("lies in the cache of the hub's own tools", "rm", "org/tiny", code=3)
        assert snapshot.exists()


ONLY = sys.argv[2:]  # names of checks; none: all
for check in (check_pull, check_shards, check_token, check_errors, check_resume, check_two_pulls, check_hostile_lists,
              check_hostile_files, check_redirects, check_tls, check_terminal, check_serve, check_hub_cache):
    if ONLY and check.__name__ not in ONLY:
        continue
    begun = time.monotonic()
    check()
    print(f"hub: {check.__name__} {time.monotonic() - begun:.1f} s", flush=True)
print("hub: ok")
