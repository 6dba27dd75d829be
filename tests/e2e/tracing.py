#!/usr/bin/env python3
"""Request tracing of a running server: the Triton trace file, its settings over HTTP, and spans at a collector.

usage: tracing.py BUILD_DIR
"""
import http.client
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

IO = 'input { name: "IN" data_type: TYPE_INT32 dims: [ -1 ] }\noutput { name: "OUT" data_type: TYPE_INT32 dims: [ -1 ] }\n'
STEP = '{ model_name: "one" model_version: -1 input_map { key: "IN" value: "%s" } output_map { key: "OUT" value: "%s" } }'
MODELS = {
    "one": 'backend: "nereid_test"\n' + IO,
    "two": 'platform: "ensemble"\n' + IO + "ensemble_scheduling { step [ %s, %s ] }\n" % (STEP % ("IN", "t"), STEP % ("t", "OUT")),
}
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BODY = json.dumps({"id": "r1", "inputs": [{"name": "IN", "datatype": "INT32", "shape": [2], "data": [4, 5]}]})


class Server:
    def __init__(self, build, root, *trace):
        self.log = tempfile.TemporaryFile("w+")
        common = ["--model-repository=" + root, "--http-port=0", "--backend-directory=" + os.path.join(build, "test_backends")]
        command = [os.path.join(build, "bin/tritonserver"), "--allow-grpc=false", "--allow-metrics=false", "--http-address=127.0.0.1"]
        self.process = subprocess.Popen(command + common + ["--trace-config=" + t for t in trace], stdout=self.log, stderr=self.log)
        self.port = self.wait_for_port()

    def wait_for_port(self):
        for _ in range(600):
            self.log.seek(0)
            text = self.log.read()
            found = re.search(r"Started HTTPService at \S+:(\d+)", text)
            if found:
                return int(found.group(1))
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise SystemExit("the server did not start:\n" + text[-3000:])

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            text = response.read()
            if response.status != 200:
                raise SystemExit("%s %s: %d %s" % (method, path, response.status, text))
            return json.loads(text)
        finally:
            connection.close()

    def stop(self):
        self.process.terminate()
        code = self.process.wait(timeout=60)
        if code:
            self.log.seek(0)
            raise SystemExit("the server ended with %d\n%s" % (code, self.log.read()[-3000:]))


def until(condition, what):
    for _ in range(200):
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise SystemExit("never: " + what)


def check(actual, expected, what):
    if actual != expected:
        raise SystemExit("%s: %r, not %r" % (what, actual, expected))


def events(records, trace):
    return [r["timestamps"][0]["name"] for r in records if r["id"] == trace and "timestamps" in r]


def test_file(build, root):
    path = os.path.join(root, "trace.json")
    server = Server(build, os.path.join(root, "models"), "triton,file=" + path, "rate=1", "level=TIMESTAMPS", "level=TENSORS")

    def load():
        with open(path, encoding="utf-8") as f:
            text = f.read()
        return json.loads(text) if text.endswith("]") else None

    server.ask("POST", "/v2/models/two/infer", BODY)
    records = until(lambda: os.path.exists(path) and load(), "a trace file")
    heads = {r["model_name"]: r for r in records if "model_name" in r}
    check(sorted(heads), ["one", "two"], "traced models")
    root_id = heads["two"]["id"]
    check((heads["one"]["parent_id"], heads["two"]["request_id"]), (root_id, "r1"), "heads")
    seen = events(records, root_id)
    check(seen[:4], ["HTTP_RECV_START", "HTTP_RECV_END", "REQUEST_START", "QUEUE_START"], "first events")
    check(sorted(seen[4:]), ["HTTP_SEND_END", "HTTP_SEND_START", "INFER_RESPONSE_COMPLETE", "REQUEST_END"], "last events")
    step = events(records, heads["one"]["id"])
    check([e for e in step if e.startswith("COMPUTE")],
          ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"], "compute")
    tensors = [(r["activity"], r["tensor"]) for r in records if r["id"] == root_id and "tensor" in r]
    check(tensors, [(activity, {"name": name, "data": "4,5", "shape": "2", "dtype": "INT32"})
                    for activity, name in [("TENSOR_QUEUE_INPUT", "IN"), ("TENSOR_BACKEND_OUTPUT", "OUT")]], "tensors")
    # Model over global; a count; files by frequency.
    server.ask("POST", "/v2/models/one/trace/setting", json.dumps({"trace_level": ["OFF"]}))
    server.ask("POST", "/v2/models/one/infer", BODY)
    server.ask("POST", "/v2/trace/setting", json.dumps({"log_frequency": "2", "trace_count": "3"}))
    for _ in range(5):
        server.ask("POST", "/v2/models/two/infer", BODY)
    check(server.ask("GET", "/v2/trace/setting")["trace_count"], "0", "count left")
    for number, count in ((0, 2), (1, 1)):
        name = "%s.%d" % (path, number)
        until(lambda: os.path.exists(name), name)
        with open(name, encoding="utf-8") as f:
            check(len([r for r in json.load(f) if r.get("model_name") == "two"]), count, name)
    server.stop()
    check(len([r for r in load() if r.get("model_name")]), 3, "requests in the first file")


def test_collector(build, root):
    bodies = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    collector = http.server.HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    server = Server(build, os.path.join(root, "models"), "mode=opentelemetry", "level=TIMESTAMPS", "rate=1000000",
                    "opentelemetry,url=http://127.0.0.1:%d/v1/traces" % collector.server_port,
                    "opentelemetry,resource=deployment=test", "opentelemetry,bsp_schedule_delay=50")
    server.ask("POST", "/v2/models/two/infer", BODY)  # one in a million: not this one
    server.ask("POST", "/v2/models/two/infer", BODY, {"traceparent": PARENT, "tracestate": "a=b"})
    until(lambda: bodies, "spans at the collector")
    server.stop()
    collector.shutdown()
    spans = []
    for path, body in bodies:
        check(path, "/v1/traces", "path")
        resource = body["resourceSpans"][0]
        attributes = {a["key"]: a["value"]["stringValue"] for a in resource["resource"]["attributes"]}
        check(attributes, {"deployment": "test", "service.name": "triton-inference-server"}, "resource")
        spans += resource["scopeSpans"][0]["spans"]
    check(sorted(s["name"] for s in spans), ["InferRequest", "compute", "compute", "one", "one", "two"], "spans")
    by_id = {s["spanId"]: s for s in spans}
    for span in spans:
        check(span["traceId"], "0af7651916cd43dd8448eb211c80319c", "trace id")
        parent = by_id.get(span["parentSpanId"], {"name": "client"})["name"]
        check(parent, {"InferRequest": "client", "two": "InferRequest", "one": "two", "compute": "one"}[span["name"]], "parent")
    check(next(s for s in spans if s["name"] == "InferRequest")["parentSpanId"], "b7ad6b7169203331", "client's span")


def main():
    with tempfile.TemporaryDirectory() as root:
        for name, config in MODELS.items():
            os.makedirs(os.path.join(root, "models", name, "1"))
            with open(os.path.join(root, "models", name, "config.pbtxt"), "w", encoding="utf-8") as f:
                f.write(config)
        test_file(sys.argv[1], root)
        test_collector(sys.argv[1], root)
    print("tracing: file, settings and collector are as they should be")


if __name__ == "__main__":
    main()
