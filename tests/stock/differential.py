#!/usr/bin/env python3
"""Sends the same generated requests to the stock server and to ours, over the same repository with the stock Python
backend in both, and compares status, message, shapes and data.

A stock server that dies of a request is started again; ours must answer every one. Requests that are known to end
the stock process are sent to ours only, which must refuse them.

usage: differential.py BUILD_DIR [--count N] [--seed N] [--show N]
"""
import argparse
import json
import os
import sys
import time

import compare
import deliberate
import generate
import stock
import wire

USED = ("types", "one", "core", "failing", "params", "llm", "llm_stream", "repeat", "failing_stream", "ensemble_plain",
        "ensemble", "pre", "post", "core_stream", "seq", "seq_oldest")
COUNT = 1200  # of the usual run, in which every rule of deliberate.GENERATED has a case
HANGS = 3  # of the stock server in one stream
OPTIONS = ["--model-control-mode=explicit"] + ["--load-model=" + m for m in USED]


def http_json(maker, hostile):
    model, body = maker.infer_json()
    text = json.dumps(maker.damaged(body) if hostile else body).encode()
    return maker.http(model, "infer", text)


def http_binary(maker, hostile):
    model, body, blob = maker.infer_binary()
    if not hostile:
        return maker.binary_case(model, body, blob)
    action = maker.random.randrange(3)
    if action == 0:
        return maker.binary_case(model, body, blob[:maker.random.randrange(len(blob) + 1)])
    if action == 1:
        return maker.binary_case(model, body, blob + b"\x00" * maker.random.randint(1, 9))
    return maker.binary_case(model, maker.damaged(body), blob)


def http_generate(maker, hostile):
    model, body = maker.pick(generate.GENERATE_BODIES)
    verb = maker.pick(["generate", "generate_stream"])
    return maker.http(model, verb, json.dumps(maker.damaged(body) if hostile else body).encode())


def http_garbled(maker, hostile):
    case = maker.pick([http_json, http_generate])(maker, False)
    if hostile:
        case["body_b64"] = generate.base64.b64encode(maker.garbled(generate.base64.b64decode(case["body_b64"]))).decode()
    return case


def http_question(maker, hostile):
    name = maker.pick(generate.NAMES if hostile else USED).replace(" ", "%20")
    what = maker.pick(["", "/ready", "/config", "/versions/1", "/versions/7", "/versions/x"])
    return {"method": maker.pick(["GET", "GET", "POST"]), "path": "/v2/models/%s%s" % (name, what)}


def grpc_infer(maker, hostile):
    request = maker.grpc_infer()
    return {"rpc": "ModelInfer", "request": damaged_message(maker, request) if hostile else request}


def grpc_stream(maker, hostile):
    requests = maker.stream_requests(maker.random.randint(1, 3))
    if hostile:
        requests[-1] = damaged_message(maker, requests[-1])
    return {"rpc": "ModelStreamInfer", "requests": requests}


def grpc_question(maker, hostile):
    rpc = maker.pick(["ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics"])
    name = maker.pick(generate.NAMES[:6] if hostile else USED)
    if rpc == "ModelStatistics":  # counts depend on what came before
        name = "nope"
    return {"rpc": rpc, "request": {"name": name, "version": maker.pick(["", "1"] if not hostile else ["", "1", "7", "x"])}}


def http_sequence(maker, _):
    return maker.sequence_http()


def grpc_sequence(maker, _):
    return {"rpc": "ModelStreamInfer", "requests": maker.sequence_requests()}


def damaged_message(maker, request):
    """Wrong but well-formed protobuf: other names, types, shapes, sizes, counts."""
    request = json.loads(json.dumps(request))
    inputs = request["inputs"]
    action = maker.random.randrange(9)
    if action == 0:
        request["model_name"] = maker.pick(["nope", "", "types"])
    elif action == 1:
        request["model_version"] = maker.pick(["1", "9", "x", "-1"])
    elif action == 2 and inputs:
        inputs[0]["name"] = maker.pick(["", "X", "IN"])
    elif action == 3 and inputs:
        inputs[0]["datatype"] = maker.pick(["", "INT32", "FP16", "BYTES", "X"])
    elif action == 4 and inputs:
        inputs[0]["shape"] = maker.pick([[], [0], [-1], [1, 2, 3], [5], [1 << 40]])
    elif action == 5 and inputs:
        inputs.append(dict(inputs[0]))
    elif action == 6:
        request["inputs"] = []
    elif action == 7:
        request["raw_input_contents"] = [maker.pick(["", "AA==", "AAAAAAAAAAAAAAAA"])] * maker.random.randint(1, 2)
    else:
        request["outputs"] = [{"name": maker.pick(["", "X", "OUT"])}]
    return request


KINDS = [("http json", http_json, 4), ("http binary", http_binary, 3), ("http generate", http_generate, 4),
         ("http garbled", http_garbled, 2), ("http question", http_question, 1), ("grpc infer", grpc_infer, 4),
         ("grpc stream", grpc_stream, 3), ("grpc question", grpc_question, 1), ("http sequence", http_sequence, 1),
         ("grpc sequence", grpc_sequence, 1)]


# Cases that the generator makes too rarely: data for a shape without elements.
FIXED = [
    {"method": "POST", "path": "/v2/models/types/infer", "body": json.dumps({
        "inputs": [{"name": "IN_INT32", "datatype": "INT32", "shape": [0], "data": [1, 2]}]})},
]


def make_cases(seed, count, protocols):
    maker = generate.Maker(seed)
    if "http" in protocols:
        for case in FIXED:
            yield dict(maker.named("fixed", case), timeout_s=20)
    kinds = [k for k in KINDS if k[0].split()[0] in protocols]
    weights = [k[2] for k in kinds]
    for i in range(count):
        name, make, _ = maker.random.choices(kinds, weights)[0]
        case = maker.named(name, make(maker, i % 2 == 1))
        if "rpc" in case and case["rpc"] == "ModelStreamInfer":
            case["final_any"] = True  # whether alone or with the last response is a matter of timing
        yield dict(case, timeout_s=20)


class Side:
    """A server and the clients of its present process."""

    def __init__(self, server):
        self.server = server
        self.hangs = 0
        self.connect()

    def connect(self):
        self.http = wire.Http(self.server.http)
        self.grpc = wire.Grpc(self.server.grpc)

    def send(self, case):
        return (self.grpc if "rpc" in case else self.http)(case)

    def settled(self):
        """Whether the process still runs, a moment after an answer without a status."""
        for _ in range(20):
            if not self.server.alive():
                return False
            time.sleep(0.05)
        return True

    def send_until_answered(self, case):
        """For stock, where a stream now and then loses a reply and then never ends, by the way its threads met: the same
        stream is answered when it is sent again. A stream that hangs each time is what is compared."""
        for _ in range(HANGS + 1):
            answer = self.send(case)
            if answer.get("code") != "DEADLINE_EXCEEDED" or not self.settled():
                break
            self.hangs += 1
        return answer

    def restart(self):
        self.grpc.close()
        self.server.kill()
        self.server.start()
        self.connect()


def nothing_said(answer):
    return answer.get("status") in (0, -1) or answer.get("code") in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "UNKNOWN")


def order_free(case, form):
    """Requests of one stream run side by side: the order of their replies is not specified."""
    if case.get("rpc") == "ModelStreamInfer" and len(case["requests"]) > 1:
        return dict(form, replies=sorted(form.get("replies", []), key=lambda r: json.dumps(r, sort_keys=True)))
    return form


CRASHERS = [
    {"name": "classes of strings", "method": "POST", "path": "/v2/models/types/infer", "body": json.dumps({
        "inputs": [{"name": "IN_STRING", "datatype": "BYTES", "shape": [1], "data": ["a"]}],
        "outputs": [{"name": "OUT_STRING", "parameters": {"classification": 1}}]})},
    {"name": "error, then more, with triton_grpc_error", "rpc": "ModelStreamInfer",
     "metadata": [["triton_grpc_error", "true"]],
     "requests": [{"model_name": "failing_stream", "inputs": [
         {"name": "CODE", "datatype": "INT32", "shape": [1], "contents": {"int_contents": [3]}}]}]},
    {"name": "output region that is too small", "method": "POST", "path": "/v2/models/one/infer", "body": json.dumps({
        "inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 8], "data": list(range(8))}],
        "outputs": [{"name": "OUT", "parameters": {"shared_memory_region": "small", "shared_memory_byte_size": 4}}]})},
]


def check_crashers(side, protocols):
    """A request that ends the stock process gets an error here."""
    failures = 0
    key = "/nereid_small_%d" % os.getpid()
    with open("/dev/shm" + key, "wb") as region:
        region.write(bytes(64))
    registered = side.send({"method": "POST", "path": "/v2/systemsharedmemory/region/small/register",
                            "body": json.dumps({"key": key, "offset": 0, "byte_size": 64})})
    assert registered.get("status") == 200, registered
    os.unlink("/dev/shm" + key)
    for case in CRASHERS:
        if ("rpc" in case) != ("grpc" in protocols) and "rpc" in case:
            continue
        answer = side.send(case)
        refused = answer.get("status", 0) == 400 or answer.get("code", "OK") not in ("OK", "UNAVAILABLE")
        if not refused or not side.server.alive():
            failures += 1
            print("NOT REFUSED %s: %s" % (case["name"], answer))
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=20)
    parser.add_argument("--protocols", default=stock.PROTOCOLS)
    parser.add_argument("--self", action="store_true", help="stock on both sides: what varies by itself")
    args = parser.parse_args()
    parts = stock.Parts(args.build)
    table = deliberate.Table()
    repository = stock.repository_copy(parts, "repository_differential", ("seq", "seq_oldest"))
    theirs = stock.stock_server(parts, repository, parts.stock_backends(), OPTIONS, "differential_stock")
    if args.self:
        ours = stock.stock_server(parts, repository, parts.stock_backends(), OPTIONS, "differential_self")
    else:
        ours = stock.our_server(parts, repository, parts.our_backends(), OPTIONS, "differential")
    unlisted = listed = restarts = compared = 0
    with theirs, ours:
        left, right = Side(theirs), Side(ours)
        for case in make_cases(args.seed, args.count, args.protocols):
            want_answer, got_answer = left.send_until_answered(case), right.send(case)
            if nothing_said(got_answer) and not right.settled():
                print("OUR SERVER ENDED by %s\n%s" % (json.dumps(case), ours.tail()))
                return 1
            if nothing_said(want_answer) and not left.settled():
                restarts += 1
                left.restart()
                continue
            want, got = (order_free(case, compare.form(case, a)) for a in (want_answer, got_answer))
            compared += 1
            differing = compare.differences(want, got)
            if not differing:
                continue
            left_over = table.unexplained(case, want, got, differing)
            if not left_over:
                listed += 1
                continue
            unlisted += 1
            if unlisted <= args.show:
                print("DIFFERS %s" % json.dumps(case)[:900])
                if "body_b64" in case:
                    print("  request  %r" % deliberate.request_bytes(case)[:600])
                for k in left_over:
                    print("  %s\n    stock %s\n    ours  %s" % (
                        k, json.dumps(want.get(k))[:600], json.dumps(got.get(k))[:600]))
        failures = 0 if args.self else check_crashers(right, args.protocols)
        code = ours.stop()
        left.grpc.close()
    print("differential: %d requests, %d compared, %d listed differences, %d unlisted, stock hung in %d streams and "
          "was started again %d times, ours ended with %d" % (
              args.count, compared, listed, unlisted, left.hangs, restarts, code))
    idle = []
    if args.count >= COUNT and args.protocols == stock.PROTOCOLS and not args.self:
        idle = [rule for rule in deliberate.GENERATED if table.uses[rule] == 0]
        for rule in idle:
            print("a rule without a case: %s" % rule)
    few = compared < args.count * 5 // 6
    if few:
        print("too many requests ended the stock server for a comparison")
    return 1 if unlisted or failures or code or idle or few else 0


if __name__ == "__main__":
    sys.exit(main())
