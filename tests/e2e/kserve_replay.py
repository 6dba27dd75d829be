#!/usr/bin/env python3
"""Replays recorded KServe requests (kserve_cases.jsonl) against the test server and reports differences.

The answers come from a stock Triton 2.51. Where it answers 500 to a client's own mistake ours is 400 and only the status
is compared; an "error" of a case must be contained in ours, which may say more.
usage: kserve_replay.py BUILD_DIR
"""
import base64
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time

IO = 'input { name: "IN" data_type: TYPE_INT32 dims: [ %s ] }\noutput { name: "OUT" data_type: TYPE_INT32 dims: [ %s ] }\n'
MODELS = {
    "reloaded": ("max_batch_size: 4\n", 1, [1]),
    "scratch": ("max_batch_size: 4\n", 1, [1]),
    "tagged": ("max_batch_size: 4\n", 1, [1]),
    "one": ("max_batch_size: 8\n", -1, [1]),
    "ver_specific": ("version_policy { specific { versions: [ 1, 3 ] } }\n", 1, [1, 2, 3]),
    "ver_latest2": ("version_policy { latest { num_versions: 2 } }\n", 1, [1, 2, 3]),
}


def write_repository(root):
    for name, (more, dim, versions) in MODELS.items():
        for version in versions:
            os.makedirs(os.path.join(root, name, str(version)))
        with open(os.path.join(root, name, "config.pbtxt"), "w", encoding="utf-8") as f:
            f.write('backend: "nereid_test"\n' + more + IO % (dim, dim))


def ask(port, case):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = base64.b64decode(case["body_b64"]) if "body_b64" in case else case.get("body", "").encode()
    try:
        connection.request(case["method"], case["path"], body, case.get("headers", {}))
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    finally:
        connection.close()


def http_port(server, log):
    while True:
        with open(log, encoding="utf-8") as f:
            started = re.search(r"Started HTTPService at \S+?:(\d+)", f.read())
        if started:
            return int(started.group(1))
        if server.poll() is not None:
            raise RuntimeError("the server ended with code %d" % server.returncode)
        time.sleep(0.05)


def difference(case, status, body):
    if status != case["status"]:
        return "status %d, not %d" % (status, case["status"])
    if "error" in case and case["error"] not in json.loads(body).get("error", ""):
        return "error %r, not %r" % (json.loads(body).get("error"), case["error"])
    if "body_is" in case and json.loads(body) != case["body_is"]:
        return "body %s, not %s" % (body, json.dumps(case["body_is"]))
    return None


def main():
    build = sys.argv[1]
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "kserve_cases.jsonl"), encoding="utf-8") as f:
        cases = [json.loads(line) for line in f]
    with tempfile.TemporaryDirectory() as root, tempfile.NamedTemporaryFile() as log:
        write_repository(root)
        server = subprocess.Popen(
            [os.path.join(build, "bin/tritonserver"), "--model-repository=" + root, "--model-control-mode=explicit",
             "--load-model=*", "--exit-on-error=false", "--http-address=127.0.0.1", "--http-port=0", "--allow-grpc=false",
             "--allow-metrics=false", "--backend-directory=" + os.path.join(build, "test_backends")],
            stdout=subprocess.DEVNULL, stderr=log)
        try:
            port = http_port(server, log.name)
            failures = 0
            for case in cases:
                status, body = ask(port, case)
                wrong = difference(case, status, body)
                if wrong:
                    failures += 1
                    print("DIFFERS %s: %s" % (case["name"], wrong))
                time.sleep(case.get("then_wait_ms", 0) / 10000)
        finally:
            server.terminate()
            code = server.wait(timeout=60)
        print("kserve replay: %d cases, %d differ; the server ended with code %d" % (len(cases), failures, code))
        if failures or code:
            log.seek(0)
            sys.stdout.write(log.read().decode("utf-8", "replace")[-3000:])
        return 1 if failures or code else 0


if __name__ == "__main__":
    sys.exit(main())
