"""Runs the sh blocks of docs/migrate-from-triton.md, in order and in one shell; Triton's own clients talk to the server
that they start before the block that stops it.  usage: triton_walkthrough.py BUILD_DIR"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
DOCUMENT = os.path.join(ROOT, "docs", "migrate-from-triton.md")
CLIENTS = '"%s" tests/e2e/triton_clients.py' % sys.executable


def blocks():
    """(heading, commands) of each sh block."""
    heading = ""
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    for match in re.finditer(r"^## ([^\n]*)$|^```sh\n(.*?)^```$", text, re.M | re.S):
        if match[1]:
            heading = match[1]
        else:
            yield heading, match[2]


def main():
    script = ["set -eEuo pipefail", 'trap \'echo "walkthrough: failed: $BASH_COMMAND" >&2\' ERR']
    found = []
    for heading, commands in blocks():
        found.append(heading)
        if heading == "Stop":
            script.append("echo '== Triton clients'; " + CLIENTS)
        script.append("echo '== %s'" % heading)
        script.append(commands)
    for needed in ("Convert and build", "Make the repository", "Launch", "Ask", "Stop"):
        assert needed in found, "the document has no commands under '%s'" % needed
    # After the last block: the server is gone, by itself and without a crash.
    script.append("for i in $(seq 100); do pgrep -x tritonserver >/dev/null || break; sleep 0.1; done")
    script.append("! pgrep -x tritonserver")
    # Paths of the document start at the build folder that make uses.
    text = "\n".join(script)
    build = os.path.relpath(os.path.abspath(sys.argv[1]), ROOT)
    text = text.replace("$PWD/build/release/", "$PWD/%s/" % build)
    # A file, not a pipe: a server that is left running by a failure would hold the pipe open.
    with tempfile.TemporaryFile("w+") as output:
        result = subprocess.run(["bash", "-c", text], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, timeout=600,
                                stdin=subprocess.DEVNULL)
        output.seek(0)
        printed = output.read()
    print(printed)
    if result.returncode != 0:
        log = os.path.join(ROOT, "build", "walkthrough", "triton.log")
        if os.path.exists(log):
            with open(log, encoding="utf-8", errors="replace") as file:
                print(file.read()[-4000:])
        sys.exit("walkthrough: a command of the document failed with status %d" % result.returncode)
    check(printed)


def check(text):
    """The output of the document's commands when they work."""
    for wanted in ("Total time of converting checkpoints: 00:00:", "Total time of building all engines: 00:00:",
                   '"text_output":"', 'data: {', "nv_trt_llm_request_metrics{", "Using end_id:", "Output sequence: ",
                   "Got cancellation response from server", "0 [b'", "1: I want you to", "Requests/Sec",
                   "Total requests", '"object":"text_completion"', "== Triton clients"):
        assert wanted in text, "the walk-through did not print %r" % wanted
    print("walkthrough: every command of the document works")


if __name__ == "__main__":
    main()
