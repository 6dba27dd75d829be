#!/usr/bin/env python3
"""Parts of the stock server and of ours put together: the same C API on both sides.

    python   the stock Python backend in our server
    backends our backends in the stock server: an ensemble answers with the same text as in ours
    front    the stock front end on our core library

usage: proofs.py BUILD_DIR [python|backends|front ...]
"""
import base64
import json
import os
import re
import shutil
import sys
import time

import stock
import wire

MODELS = ("types", "repeat", "slow", "failing", "bls")
EXPLICIT = ["--model-control-mode=explicit"]


def check(holds, what, *details):
    if not holds:
        raise AssertionError("%s: %s" % (what, " ".join(str(d) for d in details)))


def post(http, path, body, **more):
    answer = http({"method": "POST", "path": path, "body": json.dumps(body), **more})
    text = base64.b64decode(answer.get("response_b64", "")).decode()
    return answer["status"], text


def tensor(name, datatype, data):
    return {"inputs": [{"name": name, "datatype": datatype, "shape": [len(data)], "data": data}]}


def infer(http, model, *input_parts):
    status, text = post(http, "/v2/models/%s/infer" % model, tensor(*input_parts))
    return status, json.loads(text)


def events(text):
    return [json.loads(e[6:]) for e in text.split("\n\n") if e.startswith("data: ")]


def check_models(http):
    """One response, several, calls to other models, failures, and a slow model."""
    status, reply = infer(http, "types", "IN_INT32", "INT32", [1, 2, 3])
    check(status == 200 and reply["outputs"][0]["data"] == [1, 2, 3], "one response", status, reply)

    status, text = post(http, "/v2/models/repeat/generate_stream", {"IN": [4, 5, 6]})
    check(status == 200 and [e["OUT"] for e in events(text)] == [4, 5, 6], "several responses", status, text)

    status, reply = infer(http, "bls", "IN", "INT32", [7, 8])
    check(status == 200, "calls to other models", status, reply)
    seen = json.loads(reply["outputs"][0]["data"][0])
    check(seen == {"echo": [7, 8], "stream": [7, 8], "error": "code 5"}, "calls to other models", seen)

    for code, status_wanted, words in ((0, 200, ""), (3, 404, "code 3"), (5, 503, "code 5"), (10, 500, "raised")):
        status, reply = infer(http, "failing", "CODE", "INT32", [code])
        check(status == status_wanted and words in reply.get("error", ""), "failing %d" % code, status, reply)

    body = {"DELAY_MS": 300}
    began = time.time()
    status, text = post(http, "/v2/models/slow/generate", body)
    check(status == 200 and time.time() - began >= 0.3, "slow", status, text)


def check_cancelled(http, leave):
    """A client leaves a model that takes one request at a time for 12 s: the next is served before that."""
    leave()
    began = time.time()
    status, text = post(http, "/v2/models/slow/generate", {"DELAY_MS": 1})
    check(status == 200 and time.time() - began < 8, "after a cancelled request", status, text, time.time() - began)


def http_leaves(http):
    http({"method": "POST", "path": "/v2/models/slow/generate", "body": '{"DELAY_MS": 12000}', "close_after_ms": 300})


def grpc_leaves(grpc):
    """The stock front end sees a client leave over gRPC only."""
    request = {"model_name": "slow", "inputs": [{"name": "DELAY_MS", "datatype": "UINT32", "shape": [1, 1],
                                                 "contents": {"uint_contents": [12000]}}]}
    grpc({"rpc": "ModelInfer", "request": request, "cancel_after_ms": 300})


def python_repository(parts, name):
    target = parts.folder(name)
    for model in MODELS:
        source = "models" if model == "bls" else "repository"
        shutil.copytree(os.path.join(stock.HERE, source, model), os.path.join(target, model))
    return target


def stopped(server):
    code = server.stop()
    check(code == 0, "exit code of " + server.name, code, server.tail())


def prove_python(parts):
    repository = python_repository(parts, "repository_python")
    with stock.our_server(parts, repository, parts.our_backends(), name="proof_python") as server:
        http = wire.Http(server.http)
        check_models(http)
        check_cancelled(http, lambda: http_leaves(http))
        stopped(server)


def prove_front(parts):
    repository = python_repository(parts, "repository_front")
    binary, library = parts.stock_front_on_our_core()
    backends = parts.folder("front_backends")
    stock.patchelf("--set-rpath", parts.libs, parts.stock_python_backend(backends))
    server = stock.Server("stock front end", lambda s: [binary, *stock.flags(s, repository, backends)],
                          parts.environment([library]), stock.fresh_log(parts, "proof_front"))
    with server:
        with open("/proc/%d/maps" % server.process.pid, encoding="utf-8") as f:
            cores = set(re.findall(r"\S*/libtritonserver\S*", f.read()))
        check(cores == {os.path.join(library, os.path.basename(parts.core))}, "core library", cores)
        http, grpc = wire.Http(server.http), wire.Grpc(server.grpc)
        check_models(http)
        check_grpc(grpc)
        check_cancelled(http, lambda: grpc_leaves(grpc))
        stopped(server)


def check_grpc(grpc):
    reply = grpc({"rpc": "ServerReady"})
    check(reply["code"] == "OK" and reply["reply"].get("ready"), "gRPC ready", reply)
    request = {"model_name": "types", "inputs": [{"name": "IN_INT32", "datatype": "INT32", "shape": [2],
                                                  "contents": {"int_contents": [1, -2]}}]}
    reply = grpc({"rpc": "ModelInfer", "request": request})
    check(reply["code"] == "OK" and reply["reply"]["raw_output_contents"] == ["AQAAAP7///8="], "gRPC infer", reply)
    request = {"model_name": "repeat", "inputs": [{"name": "IN", "datatype": "INT32", "shape": [3],
                                                   "contents": {"int_contents": [1, 2, 3]}}]}
    reply = grpc({"rpc": "ModelStreamInfer", "requests": [request]})
    check(reply["code"] == "OK" and len(reply["replies"]) >= 3, "gRPC stream", reply)
    request["model_name"] = "nope"
    reply = grpc({"rpc": "ModelInfer", "request": request})
    check(reply["code"] == "NOT_FOUND" or "nope" in reply.get("message", ""), "gRPC unknown model", reply)


VALUES = {"triton_backend": "tensorrtllm", "triton_max_batch_size": "4", "decoupled_mode": "true",
          "logits_datatype": "TYPE_FP32", "encoder_input_features_data_type": "TYPE_FP16",
          "prompt_embedding_table_data_type": "TYPE_FP16", "max_queue_size": "0", "max_queue_delay_microseconds": "0",
          "batching_strategy": "inflight_fused_batching", "preprocessing_instance_count": "1",
          "postprocessing_instance_count": "1", "bls_instance_count": "1", "accumulate_tokens": "false",
          "tensorrt_llm_model_name": "tensorrt_llm"}


def text_repository(parts, source):
    """The templates filled for models/quickstart; parameters without a value stay as they are."""
    target = parts.folder("repository_text")
    values = dict(VALUES, engine_dir=os.path.join(source, "models/quickstart"),
                  tokenizer_dir=os.path.join(source, "models/quickstart"))
    templates = os.path.join(source, "all_models/inflight_batcher_llm")
    for model in ("preprocessing", "postprocessing", "tensorrt_llm", "ensemble", "tensorrt_llm_bls"):
        os.makedirs(os.path.join(target, model, "1"))
        with open(os.path.join(templates, model, "config.pbtxt"), encoding="utf-8") as f:
            text = f.read()
        text = re.sub(r"\$\{(\w+)\}", lambda m: values.get(m[1], m[0]), text)
        with open(os.path.join(target, model, "config.pbtxt"), "w", encoding="utf-8") as f:
            f.write(text)
    return target


QUESTIONS = [
    {"text_input": "Once upon a time", "max_tokens": 24},
    {"text_input": "The sea", "max_tokens": 16, "temperature": 0.8, "random_seed": 7, "top_k": 20},
    {"text_input": "a b c", "max_tokens": 12, "bad_words": "", "stop_words": ""},
]


def texts(server):
    http = wire.Http(server.http)
    out = []
    for model in ("ensemble", "tensorrt_llm_bls"):
        for question in QUESTIONS:
            status, text = post(http, "/v2/models/%s/generate" % model, question)
            check(status == 200, server.name + " " + model, status, text)
            out.append(json.loads(text)["text_output"])
            status, text = post(http, "/v2/models/%s/generate_stream" % model, dict(question, stream=True))
            check(status == 200, server.name + " " + model + " stream", status, text)
            out.append([e["text_output"] for e in events(text)])
    stopped(server)
    return out


def prove_backends(parts):
    source = os.path.dirname(os.path.dirname(stock.HERE))
    repository = text_repository(parts, source)
    with stock.our_server(parts, repository, parts.our_backends(), name="proof_ours") as server:
        ours = texts(server)
    with stock.stock_server(parts, repository, parts.stock_backends(), name="proof_stock") as server:
        theirs = texts(server)
    check(ours == theirs, "texts differ", ours, theirs)
    check(all(ours), "no text", ours)


def main():
    parts = stock.Parts(sys.argv[1])
    proofs = {"python": prove_python, "backends": prove_backends, "front": prove_front}
    for name in sys.argv[2:] or proofs:
        began = time.time()
        proofs[name](parts)
        print("proof %s: passed in %.0f s" % (name, time.time() - began))
    return 0


if __name__ == "__main__":
    sys.exit(main())
