"""Starts where pods run: a read-only root, a full disk, no TMPDIR, a cache folder that cannot be written. The engine is built in
memory with one line of warning, requests are answered, and what a killed server left behind is gone after the next start.
Where mounting is not permitted the first two are skipped.

usage: pods.py NEREID"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from skips import skip

BINARY = os.path.realpath(sys.argv[1])
MODEL = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "models", "quickstart"))
WARNING = "the engine is built in memory, for this process alone"


class Server:
    """`nereid serve`, its port file in `folder`; `before` is a shell command in a mount namespace of its own."""

    def __init__(self, folder, before=None, **environment):
        self.ports, self.log = os.path.join(folder, "ports"), os.path.join(folder, "log")
        if os.path.exists(self.ports):
            os.remove(self.ports)
        command = [BINARY, "serve", MODEL, "--port", "0", "--grpc-port", "0", "--metrics-port", "0", "--port-file", self.ports]
        if before:
            command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'set -e; {before}; exec "$@"', "sh", *command]
        variables = {name: value for name, value in dict(os.environ, **environment).items() if value is not None}
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, env=variables, stdout=log, stderr=subprocess.STDOUT)
        while self.process.poll() is None and not os.path.exists(self.ports):
            time.sleep(0.01)
        assert self.process.poll() is None, self.text()
        with open(self.ports) as file:
            self.url = "http://127.0.0.1:" + dict(line.strip().split("=") for line in file)["http"]

    def text(self):
        with open(self.log) as file:
            return file.read()

    def ask(self):
        body = {"model": "quickstart", "prompt": "Once", "max_tokens": 4, "temperature": 0}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as reply:
            return json.load(reply)["choices"][0]["text"]

    def stop(self, sign=signal.SIGTERM):
        self.process.send_signal(sign)
        return self.process.wait()


def check(name, wanted, folder, before=None, **environment):
    server = Server(folder, before, **environment)
    try:
        got = server.ask()
    finally:
        code = server.stop()
    log = server.text()
    assert got == wanted and code == 0, (name, got, wanted, code, log)
    assert log.count(WARNING) == 1, (name, log)
    print(f"pods: {name}: served from memory, one warning")


def scratch_folders(folder):
    return [name for name in os.listdir(folder) if name.startswith("nereid-scratch-")]


def check_left_behind(folder):
    """A server that is killed cannot clean up; the next one does."""
    place = os.path.join(folder, "tmp")
    os.mkdir(place)
    killed = Server(folder, TMPDIR=place)
    left = scratch_folders(place)
    assert killed.stop(signal.SIGKILL) == -signal.SIGKILL and len(left) == 1, left
    os.utime(os.path.join(place, left[0]), (0, 0))  # as old as it will be soon
    following = Server(folder, TMPDIR=place)
    assert left[0] not in scratch_folders(place), left
    assert following.stop() == 0 and not scratch_folders(place), scratch_folders(place)
    print("pods: what a killed server left behind is gone")


def can_mount():
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/mnt"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        skip("pods: a read-only root, a full disk", done.stderr.strip() or f"unshare and mount: code {done.returncode}")
    return done.returncode == 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        plain = Server(folder)
        wanted = plain.ask()
        assert plain.stop() == 0 and WARNING not in plain.text()
        file = os.path.join(folder, "file")
        with open(file, "w"):
            pass
        check("an unwritable cache and no TMPDIR", wanted, folder, NEREID_CACHE_DIR=file, TMPDIR=None)
        check("a TMPDIR that is missing", wanted, folder, NEREID_CACHE_DIR=file, TMPDIR=os.path.join(folder, "missing"))
        check_left_behind(folder)
        if not can_mount():
            return
        disk = os.path.join(folder, "disk")
        os.mkdir(disk)
        full = f"mount -t tmpfs -o size=256k none {disk}; ! cat /dev/zero >{disk}/rest 2>/dev/null"
        check("a full disk", wanted, folder, full, NEREID_CACHE_DIR=disk, TMPDIR=disk)
        shared = tempfile.mkdtemp(dir="/dev/shm")  # of a pod, too
        try:
            check("a read-only root", wanted, shared, "mount -o remount,bind,ro /", NEREID_CACHE_DIR=None, HOME="/", TMPDIR=None)
        finally:
            shutil.rmtree(shared)


if __name__ == "__main__":
    main()
    print("pods: all passed")
