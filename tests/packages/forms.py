#!/usr/bin/env python3
"""Installs each download form in a copy of a bare root, serves models/quickstart there, asks for an answer, stops the server
and removes what was installed. Prints for each the seconds to install, and from then to the first token, and the goal where
both together miss it; a busy machine does, so it is no fault. The image is served in 512 MiB of memory, too.

usage: forms.py PACKAGES_DIR ROOTS_DIR WORK_DIR [FORM]...      (as root)    FORM: deb, tar, wheel, service, image"""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from skips import skip

PATH = "/opt/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
WAIT = 60  # seconds
GOAL_SECONDS = 30  # to install and get a token
MEMORY = 512 << 20  # of the small container


def command_in(root, words, user=0):
    """The command line that runs `words` in the root as its process 1."""
    (root / "proc").mkdir(exist_ok=True)
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc=/proc", f"--root={root}", "--wd=/",
            f"--setgid={user}", f"--setuid={user}", *words]


def run_in(root, script):
    done = subprocess.run(command_in(root, ["/bin/sh", "-ec", script]), env={"PATH": PATH, "HOME": "/root"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{script}\n{done.stdout}"
    return done.stdout


class MemoryGroup:
    """A control group with a limit of memory, of either version of the kernel's interface."""

    def __init__(self, limit):
        base = pathlib.Path("/sys/fs/cgroup")
        old = base / "memory"
        self.is_old = (old / "memory.limit_in_bytes").exists()
        self.folder = (old if self.is_old else base) / f"nereid-packages-test-{os.getpid()}"
        self.folder.mkdir()
        try:
            self.file("memory.limit_in_bytes", "memory.max").write_text(str(limit))
        except OSError:
            self.folder.rmdir()
            raise

    def file(self, old_name, name):
        return self.folder / (old_name if self.is_old else name)

    def enter(self):
        """For the process that runs it, and its children."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def is_killed(self):
        """Whether the kernel has ended a process for want of memory."""
        events = dict(line.split() for line in self.file("memory.oom_control", "memory.events").read_text().splitlines())
        return events["oom_kill"] != "0"

    def own_bytes(self):
        """Memory of the processes; pages of files, which the kernel can drop, are not counted."""
        stat = dict(line.split() for line in (self.folder / "memory.stat").read_text().splitlines())
        return int(stat["total_rss" if self.is_old else "anon"])


@contextlib.contextmanager
def memory_group(limit):
    """None where the kernel gives this machine none."""
    try:
        group = MemoryGroup(limit)
    except OSError as error:
        skip("the image in 512 MiB", str(error))
        yield None
        return
    try:
        yield group
        assert not group.is_killed(), "killed for want of memory"
    finally:
        group.folder.rmdir()


@contextlib.contextmanager
def serving(root, words, user=0, environment=None, group=None):
    """Gives the HTTP port. The server is process 1, as in a container; it must end well at SIGTERM."""
    ports, log = root / "tmp" / "ports", root / "tmp" / "log"
    ports.unlink(missing_ok=True)
    with open(log, "w") as output:
        wrapper = subprocess.Popen(command_in(root, [*words, "--http-port", "0", "--metrics-port", "0", "--port-file", "/tmp/ports"], user),
                                   env={"PATH": PATH, "HOME": "/tmp", **(environment or {})}, stdout=output, stderr=output,
                                   preexec_fn=group and group.enter)
    try:
        limit = time.monotonic() + WAIT
        while not ports.exists():
            assert wrapper.poll() is None and time.monotonic() < limit, log.read_text()
            time.sleep(0.02)
        yield int(dict(line.split("=") for line in ports.read_text().split())["http"])
    finally:
        if wrapper.poll() is None:
            server = pathlib.Path(f"/proc/{wrapper.pid}/task/{wrapper.pid}/children").read_text().split()[0]
            os.kill(int(server), signal.SIGTERM)
        assert wrapper.wait(WAIT) == 0, log.read_text()


def first_token(port):
    """Returns when the first streamed token has come; the whole answer must be one."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    body = {"model": "quickstart", "stream": True, "max_tokens": 16, "messages": [{"role": "user", "content": "What is the capital of France?"}]}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer, when, text = connection.getresponse(), None, ""
    assert answer.status == 200, answer.read()
    for line in answer:
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            text += choice["delta"].get("content") or ""
        when = when or (time.monotonic() if text else None)
    assert when and len(text) > 4, text
    return when


@contextlib.contextmanager
def copy_of(root, work):
    copy = work / "root"
    subprocess.run(["rm", "-rf", copy], check=True)
    subprocess.run(["cp", "-a", root, copy], check=True)
    try:
        yield copy
    finally:
        subprocess.run(["rm", "-rf", copy], check=True)


def files_of(root):
    """Files outside the folders that running programs write to."""
    found = set()
    for folder, folders, files in os.walk(root):
        if pathlib.Path(folder) == root:
            folders[:] = [name for name in folders if name not in ("proc", "tmp", "var", "root")]
        found.update(os.path.join(folder, name) for name in files)
    return found


def check(name, root, install, words, remove):
    """`install` and `remove` are scripts; what the second leaves must be what was there before the first."""
    before = files_of(root)
    start = time.monotonic()
    run_in(root, install)
    installed = time.monotonic()
    with serving(root, words) as port:
        token = first_token(port)
    report(name, installed - start, token - installed)
    nereid = words[0]
    assert "FAULT" not in run_in(root, f"{nereid} doctor || true").replace("FAULT  port", ""), run_in(root, f"{nereid} doctor || true")
    # The bundled libcurl is found and used.
    pull = run_in(root, f"HF_ENDPOINT=http://127.0.0.1:1 {nereid} pull org/name 2>&1 || echo code $?")
    assert "http://127.0.0.1:1: " in pull and "code 7" in pull, pull
    run_in(root, remove)
    left = {path for path in files_of(root) - before if "/ld.so.cache" not in path and not path.endswith(".pyc")}
    assert not left, f"{name}: left behind: {sorted(left)[:10]}"


def check_service(root, deb):
    """The unit under systemd as process 1, with a network of its own: enabled at boot, stopped without a fault."""
    run_in(root, f"apt-get install -y --no-install-recommends /tmp/{deb}; systemctl enable nereid; systemd-analyze verify --man=no nereid.service nereid.socket; "
                 "systemd-analyze security --offline=yes --threshold=25 nereid.service")
    with open(root / "tmp" / "log", "w") as log:
        start = time.monotonic()
        container = subprocess.Popen(["systemd-nspawn", "-q", "--boot", "--register=no", "--keep-unit", "--private-network", "-D", root],
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    body = json.dumps({"model": "quickstart", "max_tokens": 8, "messages": [{"role": "user", "content": "What is the capital of France?"}]})

    def entered(namespaces, *words):
        children = pathlib.Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
        return subprocess.run(["nsenter", "-t", children[0] if children else "0", *namespaces, *words], capture_output=True, text=True)

    def inside(*words):
        return entered(["-m", "-p", "-u", "-i", "-n"], *words)

    def ask():  # by the host's curl in the container's network
        return entered(["-n"], "curl", "-fsS", "http://127.0.0.1:8000/v1/chat/completions", "-H", "Content-Type: application/json", "-d", body)

    try:
        limit = time.monotonic() + WAIT
        while (answer := ask()).returncode != 0:
            assert container.poll() is None and time.monotonic() < limit, answer.stderr + (root / "tmp" / "log").read_text()
            time.sleep(0.1)
        print(f"{'service, Debian 12':22} boot to answer {time.monotonic() - start:5.2f} s", flush=True)
        assert json.loads(answer.stdout)["choices"][0]["message"]["content"], answer.stdout
        inside("systemctl", "stop", "nereid")
        state = inside("systemctl", "show", "nereid", "-p", "Result", "-p", "ExecMainStatus", "-p", "ActiveState").stdout.split()
        assert sorted(state) == ["ActiveState=inactive", "ExecMainStatus=0", "Result=success"], state
        inside("systemctl", "poweroff")
        container.wait(WAIT)
    finally:
        container.kill()
        container.wait()


def report(name, install, serve):
    missed = f" (goal: {GOAL_SECONDS} s; load {os.getloadavg()[0]:.1f})" if install + serve >= GOAL_SECONDS else ""
    print(f"{name:22} installed in {install:5.2f} s, first token {serve:5.2f} s later{missed}", flush=True)


def check_image(name, layout_tar, work):
    """The image by its own configuration, in a root that has nothing but its layer."""
    layout, root = work / "oci", work / "root"
    for folder in (layout, root):
        subprocess.run(["rm", "-rf", folder], check=True)
        folder.mkdir()
    with tarfile.open(layout_tar) as tar:
        tar.extractall(layout)

    def blob(descriptor):
        return layout / "blobs" / descriptor["digest"].replace(":", "/")

    manifest = json.loads(blob(json.loads((layout / "index.json").read_text())["manifests"][0]).read_text())
    config = json.loads(blob(manifest["config"]).read_text())["config"]
    start = time.monotonic()
    for layer in manifest["layers"]:
        assert layer["size"] <= 60 << 20, f"{name}: a layer of {layer['size']} bytes"
        subprocess.run(["tar", "-C", root, "-xzf", blob(layer)], check=True)
    installed = time.monotonic()
    environment = dict(entry.split("=", 1) for entry in config["Env"])
    words, user = config["Entrypoint"] + config["Cmd"], int(config["User"].split(":")[0])
    with serving(root, words, user, environment) as port:
        report(name, installed - start, first_token(port) - installed)
    assert list((root / "var/cache/nereid").iterdir()), "no engine in the image's volume"
    with memory_group(MEMORY) as group:
        if group:
            subprocess.run(["find", root / "var/cache/nereid", "-mindepth", "1", "-delete"], check=True)  # the engine is built again
            start = time.monotonic()
            with serving(root, words, user, environment, group) as port:
                seconds = first_token(port) - start
                print(f"{name + ' in 512 MiB':22} first token after {seconds:5.2f} s, {group.own_bytes() / (1 << 20):.0f} MiB of its own", flush=True)
    for folder in (layout, root):
        subprocess.run(["rm", "-rf", folder], check=True)


def main(packages, roots, work, *chosen):
    packages, roots, work = (pathlib.Path(path).resolve() for path in (packages, roots, work))

    def only(pattern):
        found = list(packages.glob(pattern))
        assert len(found) == 1, f"{pattern}: {found}"
        return found[0]

    deb, tar, wheel = only("nereid_*.deb"), only("nereid-*-x86_64.tar.gz"), only("nereid-*.whl")
    forms = [
        (".deb, Debian 12", "debian", deb, "apt-get install -y --no-install-recommends /tmp/FILE", "/usr", "dpkg -P nereid"),
        (".deb, Debian 13", "debian13", deb, "apt-get install -y --no-install-recommends /tmp/FILE", "/usr", "dpkg -P nereid"),
        (".deb, Ubuntu 24.04", "ubuntu", deb, "apt-get install -y --no-install-recommends /tmp/FILE", "/usr", "dpkg -P nereid"),
        ("tar, Debian 12", "debian", tar, "cd /tmp; tar -xzf FILE; nereid-*/install.sh", "/usr/local", "/tmp/nereid-*-x86_64/install.sh --uninstall"),
        ("wheel, Debian 12", "debian-python", wheel, "python3 -m venv /opt/venv; pip install --no-index /tmp/FILE", "/opt/venv",
         "pip uninstall -q -y nereid; test ! -e /opt/venv/bin/nereid; rm -rf /opt/venv"),
    ]
    chosen = chosen or ("deb", "tar", "wheel", "service", "image")
    for name, base, file, install, prefix, remove in forms:
        if not (roots / base).is_dir() or not name.lstrip(".").startswith(chosen):
            continue
        with copy_of(roots / base, work) as root:
            shutil.copy(file, root / "tmp")
            os.chmod(root / "tmp" / file.name, 0o644)
            check(name, root, install.replace("FILE", file.name), [f"{prefix}/bin/nereid", "serve", f"{prefix}/lib/nereid/models/quickstart"], remove)
    if "service" in chosen and (roots / "debian-systemd").is_dir() and shutil.which("systemd-nspawn"):
        with copy_of(roots / "debian-systemd", work) as root:
            shutil.copy(deb, root / "tmp")
            check_service(root, deb.name)
    for image in sorted(packages.glob("nereid-[0-9]*-image.tar")) if "image" in chosen else ():
        check_image("image", image, work)


if __name__ == "__main__":
    main(*sys.argv[1:])
