"""Runs the commands of docs/tutorials as they stand there. A page's blocks of `sh` are one script, run in a folder with
`models` and `tests` of the checkout; each line of a block of `text` must be in the output of the commands before it. Ports
are free ones: the variables of `nereid serve` set them, and localhost:8000 and :8002 of the commands become theirs.
usage: tutorials.py BUILD_DIR [PAGE]...    python3 of the commands is the one that runs this file and has the package openai"""
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(page, build):
    blocks = BLOCK.findall(page.read_text("utf-8"))
    assert blocks and blocks[0][0] == "sh", f"{page.name}: no commands"
    http, metrics = free_port(), free_port()
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    for number, (kind, text) in enumerate(blocks):
        assert kind in ("sh", "text"), f"{page.name}: a block of {kind}"
        script += f"printf '\\n=== {number}\\n'\n{text}" if kind == "sh" else ""
    script = script.replace("localhost:8000", f"localhost:{http}").replace("localhost:8002", f"localhost:{metrics}")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("models", "tests"):
            os.symlink(ROOT / name, os.path.join(folder, name))
        env = {**os.environ, "NEREID_HTTP_PORT": str(http), "NEREID_METRICS_PORT": str(metrics), "NEREID_CONFIG": "", "HOME": folder,
               "PATH": f"{build}/bin:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
        env.setdefault("NEREID_CACHE_DIR", os.path.join(folder, "cache"))
        done = subprocess.run(["bash", "-m", "-c", script], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=120, check=False)
        left = sorted(set(os.listdir(folder)) - {"models", "tests", "cache", ".cache"})
    assert done.returncode == 0, f"{page.name}: exit status {done.returncode}\n{done.stdout}"
    assert not left, f"{page.name}: leaves {left}"
    outputs = dict(re.findall(r"^=== (\d+)\n(.*?)(?=^=== \d+\n|\Z)", done.stdout, re.M | re.S))
    for number, (kind, text) in enumerate(blocks):
        for line in text.splitlines() if kind == "text" else ():
            assert line.strip() in outputs[str(number - 1)], f"{page.name}: no {line!r} in\n{outputs[str(number - 1)]}"


def main():
    build = os.path.abspath(sys.argv[1])
    pages = [pathlib.Path(page) for page in sys.argv[2:]] or sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    for page in pages:
        begun = time.monotonic()
        run(page, build)
        print(f"tutorials: {page.name} {time.monotonic() - begun:.1f} s", flush=True)
    print("tutorials: ok")


if __name__ == "__main__":
    main()
