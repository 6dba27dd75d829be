"""The scenarios of the TensorRT-LLM backend's CI that need one device and no adapters, on the quick-start model.
usage: triton_scenarios.py BUILD_DIR [SCENARIO...]"""
import json
import os
import queue
import re
import subprocess
import sys
import time

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import np_to_triton_dtype

from triton_server import MODEL, ROOT, Server, make_repository

WORK = os.path.join(os.path.abspath(sys.argv[1]), "e2e", "triton")
CLIENTS = os.path.join(ROOT, "inflight_batcher_llm", "client")
TOOLS = os.path.join(ROOT, "tools", "inflight_batcher_llm")
DATASET = os.path.join(WORK, "dataset.json")
PROMPT = "What is machine learning?"
LONG_PROMPT = ("Machine learning is a field of study that gives computers the ability to learn from data without being "
               "told every step, and people use it for many things, such as reading text, seeing pictures, hearing "
               "speech, playing games, finding errors, and telling what the weather of the next")


def repository(name, **how):
    path = os.path.join(WORK, name)
    make_repository(path, **how)
    return path


def client(folder, name, *words, status=0):
    result = subprocess.run([sys.executable, os.path.join(folder, name), *words], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, timeout=240)
    assert result.returncode == status, "%s %s: status %d\n%s" % (name, words, result.returncode, result.stdout)
    return result.stdout


def tokenize(server, text):
    body = {"inputs": [{"name": "QUERY", "datatype": "BYTES", "shape": [1, 1], "data": [text]},
                       {"name": "REQUEST_OUTPUT_LEN", "datatype": "INT32", "shape": [1, 1], "data": [1]}],
            "outputs": [{"name": "REQUEST_INPUT_LEN"}]}
    reply = json.loads(server.get("/v2/models/preprocessing/infer", body)[1])
    return reply["outputs"][0]["data"][0]


def histogram(server, side):
    family = "nv_llm_%s_token_len" % side
    return int(server.metric(family + "_count", model="tensorrt_llm")), float(server.metric(family + "_sum",
                                                                                              model="tensorrt_llm"))


def invalid_strategy():
    """1: an invalid batching strategy ends the server, with the known words and no crash."""
    server = Server(repository("invalid", batching_strategy="INVALID", bls=False))
    code = server.process.wait(timeout=60)
    assert "Invalid gpt_model_type" in server.log(), server.log()[-2000:]
    assert code > 0, code


def benchmark(server, protocol, *words):
    address = server.http if protocol == "http" else server.grpc
    out = client(TOOLS, "benchmark_core_model.py", "-i", protocol, "-u", address, "--max-input-len=500", *words,
                 "dataset", "--dataset", DATASET, "--tokenizer-dir", MODEL)
    for text in ("[INFO] Warm up for benchmarking.", "[INFO] Start benchmarking on 6 prompts.", "Avg. InFlight requests",
                 "Total requests"):
        assert text in out, out
    return out


def by_hand_equals_ensemble(server):
    """What end_to_end_test.py checks: the three models called one by one give the ensemble's text."""
    def infer(model, tensors, outputs):
        body = {"inputs": [{"name": n, "datatype": t, "shape": s, "data": d} for n, t, s, d in tensors],
                "outputs": [{"name": name} for name in outputs]}
        status, reply = server.get("/v2/models/%s/infer" % model, body)
        assert status == 200, reply
        return {o["name"]: (o["shape"], o["data"]) for o in json.loads(reply)["outputs"]}

    tokens = 12
    pre = infer("preprocessing", [("QUERY", "BYTES", [1, 1], [PROMPT]),
                                  ("REQUEST_OUTPUT_LEN", "INT32", [1, 1], [tokens]),
                                  ("BAD_WORDS_DICT", "BYTES", [1, 1], [""]),
                                  ("STOP_WORDS_DICT", "BYTES", [1, 1], [""])],
                ["INPUT_ID", "REQUEST_INPUT_LEN", "DECODER_INPUT_ID"])
    length = pre["REQUEST_INPUT_LEN"][1][0]
    core = infer("tensorrt_llm", [("input_ids", "INT32", *pre["INPUT_ID"]),
                                  ("input_lengths", "INT32", [1, 1], [length]),
                                  ("decoder_input_ids", "INT32", *pre["DECODER_INPUT_ID"]),
                                  ("request_output_len", "INT32", [1, 1], [tokens]),
                                  ("return_log_probs", "BOOL", [1, 1], [True]),
                                  ("return_context_logits", "BOOL", [1, 1], [True]),
                                  ("return_generation_logits", "BOOL", [1, 1], [True])],
                 ["output_ids", "sequence_length", "context_logits", "generation_logits", "output_log_probs"])
    vocabulary = core["context_logits"][0][-1]
    assert core["context_logits"][0] == [1, length, vocabulary], core["context_logits"][0]
    assert core["generation_logits"][0] == [1, 1, tokens, vocabulary], core["generation_logits"][0]
    ids, lengths = core["output_ids"], core["sequence_length"]
    assert ids[0][:2] == [1, 1] and lengths[1][0] <= length + tokens
    text = infer("postprocessing", [("TOKENS_BATCH", "INT32", *ids), ("SEQUENCE_LENGTH", "INT32", *lengths)], ["OUTPUT"])
    assert text["OUTPUT"][1][0] == server.generate("ensemble", PROMPT, tokens)["text_output"]


def not_streaming():
    """2 and 3: V1 and in-flight batching, not decoupled: benchmark, functionality, metrics."""
    for strategy, marker in (("V1", "v1_specific_metric"), ("inflight_fused_batching", "inflight_batcher_specific_metric")):
        with Server(repository("plain", batching_strategy=strategy, bls=False)) as server:
            status, _ = server.get("/v2/logging", {"log_verbose_level": 1})
            assert status == 200
            benchmark(server, "http")
            by_hand_equals_ensemble(server)
            markers = {key for _, labels in server.metrics() for key, _ in labels}
            assert marker in markers
            assert len(markers & {"v1_specific_metric", "inflight_batcher_specific_metric"}) == 1, markers
            if strategy != "V1":
                benchmark(server, "grpc")
                stop_and_cancel(server)
                base_metrics(server)
                custom_metrics(server)


def base_metrics(server):
    """5: the four models of an ensemble count alike."""
    models = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing")

    def of(family):
        return [server.total("nv_inference_" + family, model=model) for model in models]

    def counts():
        return {family: of(family) for family in ("request_success", "count", "exec_count", "request_failure")}

    # What the scenario before cancelled may still end.
    before, earlier = counts(), None
    while before != earlier:
        time.sleep(0.5)
        before, earlier = counts(), before
    requests = 8
    processes = [subprocess.Popen(
        ["curl", "-sf", "-o", "/dev/null", "-X", "POST", "http://%s/v2/models/ensemble/generate" % server.http, "-d",
         json.dumps({"id": str(i), "text_input": PROMPT, "max_tokens": 8})]) for i in range(requests)]
    for process in processes:
        assert process.wait(timeout=60) == 0
    for family in ("request_success", "count"):
        assert [b - a for a, b in zip(before[family], of(family))] == [requests] * 4, (family, of(family))
    assert of("request_failure") == before["request_failure"] and of("pending_request_count") == [0] * 4
    grown = [b - a for a, b in zip(before["exec_count"], of("exec_count"))]
    assert grown[0] == grown[2] == requests, grown
    for family in ("request_duration_us", "compute_infer_duration_us"):
        assert all(value > 0 for value in of(family)), (family, of(family))
    names = {model: sorted(name for name, labels in server.metrics()
                           if name.startswith("nv_inference_") and ("model", model) in labels) for model in models}
    assert all(names[model] == names["ensemble"] for model in models), names


def custom_metrics(server):
    """10: the last statistics line of the log says what the metrics say."""
    time.sleep(0.4)
    metrics = {key: value for key, value in server.metrics().items() if key[0].startswith("nv_trt_llm")}
    lines = [line for line in server.log().splitlines() if "Active Request Count" in line]
    assert lines, "no statistics in the log"
    line = lines[-1]
    statistics = json.loads(line[line.index("{"):line.rindex("}") + 1].replace('\\"', '"'))
    assert len(statistics) == len(metrics) == 22, (len(statistics), len(metrics))
    assert all(re.fullmatch(r"\d+(\.\d+)?", value) for value in metrics.values()), metrics
    pairs = {"Active Request Count": {"request_type": "active"}, "Max Request Count": {"request_type": "max"},
             "Scheduled Requests": {"request_type": "scheduled"}, "Context Requests": {"request_type": "context"},
             "Free KV cache blocks": {"kv_cache_block_type": "free"},
             "Max KV cache blocks": {"kv_cache_block_type": "max"},
             "Used KV cache blocks": {"kv_cache_block_type": "used"},
             "Tokens per KV cache block": {"kv_cache_block_type": "tokens_per"},
             "Iteration Counter": {"general_type": "iteration_counter"},
             "Generation Requests": {"inflight_batcher_specific_metric": "generation_requests"},
             "Total Context Tokens": {"inflight_batcher_specific_metric": "total_context_tokens"}}
    for key, labels in pairs.items():
        found = [int(float(v)) for (_, has), v in metrics.items() if set(labels.items()) <= has]
        assert found == [int(statistics[key])], (key, found, statistics[key])
    assert not any("nv_trt_llm" in name for name, _ in server.metrics() if name.endswith("_bucket"))


def token_histograms():
    """4 and 8: one streamed request is one observation each; a decoupled model answers unstreamed requests."""
    with Server(repository("decoupled", decoupled_mode="true", max_queue_size=4)) as server:
        client(CLIENTS, "end_to_end_grpc_client.py", "-u", server.grpc, "--prompt=" + PROMPT, "--streaming", "-o=20",
               "--end-id", "-1")
        assert histogram(server, "input") == (1, tokenize(server, PROMPT))
        assert histogram(server, "output") == (1, 20)
        for model in ("ensemble", "tensorrt_llm_bls"):
            out = client(CLIENTS, "end_to_end_grpc_client.py", "-u", server.grpc, "--prompt=" + PROMPT, "--model-name",
                         model)
            assert "0: " + PROMPT in out, out
        text = "".join(json.loads(line[6:])["text_output"] for line in server.get(
            "/v2/models/tensorrt_llm_bls/generate_stream", {"text_input": PROMPT, "max_tokens": 8})[1].splitlines()
            if line.startswith("data: "))
        assert text.startswith(PROMPT)  # one event: nothing asked for a stream
        stop_and_cancel(server, "--streaming")
        full_queue(server)


def stop_and_cancel(server, *more):
    """A running request is stopped by its id, or by cancelling the call: the client finds fewer tokens. The client's end
    id ends the text after some 200 tokens, so the stop must come well before."""
    words = ["-u", server.grpc, "--request-output-len", "1500", "--stop-after-ms", "5", "--request-id", "1",
             "--tokenizer-dir", MODEL, *more]
    out = client(CLIENTS, "inflight_batcher_llm_client.py", *words)
    assert "Got cancellation response from server" in out, out
    out = client(CLIENTS, "inflight_batcher_llm_client.py", *words, "--stop-via-request-cancel")
    assert "Request is cancelled" in out, out


def full_queue(server):
    """More requests than run and wait are refused with the known words."""
    body = json.dumps({"text_input": PROMPT, "max_tokens": 400, "end_id": -1})
    processes = [subprocess.Popen(["curl", "-s", "-X", "POST", "http://%s/v2/models/ensemble/generate" % server.http,
                                   "-d", body], stdout=subprocess.PIPE, text=True) for _ in range(60)]
    replies = [process.communicate(timeout=120)[0] for process in processes]
    refused = [reply for reply in replies if "aximum queue size" in reply]
    assert refused, "Expected requests to be rejected due to a full queue, but that didn't happen!"
    assert any("text_output" in reply for reply in replies)


def beams():
    """6: beam width 2; every beam's tokens count."""
    with Server(repository("beams", max_beam_width=2, bls=False)) as server:
        reply = server.generate("ensemble", PROMPT, 10, beam_width=2, end_id=-1)
        assert len(reply["text_output"]) == 2, reply
        assert histogram(server, "output") == (1, 20)
        status, text = server.get("/v2/models/ensemble/generate",
                                  {"text_input": PROMPT, "max_tokens": 10, "beam_width": 3})
        assert status >= 400 and "beam" in text, text


PERF_VALUES = {"max_tokens_in_paged_kv_cache": 2560, "max_attention_window_size": 2560,
               "kv_cache_free_gpu_mem_fraction": 0.5, "request_stats_max_iterations": 10,
               "exclude_input_in_output": "True", "enable_kv_cache_reuse": "True",
               "batching_strategy": "inflight_batching", "tokens_per_block": 16}


def check_perf(values, first):
    """`values` of one answer: the first one computes all blocks of the prompt, the next reuses them."""
    blocks = int(values["kv_cache_alloc_total_blocks"]) + int(values["kv_cache_reused_blocks"])
    assert int(values["kv_cache_alloc_new_blocks"]) == int(values["kv_cache_alloc_total_blocks"]), values
    if first:
        assert int(values["kv_cache_reused_blocks"]) == 0 and blocks >= 4, values
    else:
        assert int(values["kv_cache_alloc_new_blocks"]) == 1, values
        assert int(values["kv_cache_reused_blocks"]) == blocks - 1 >= 3, values
    assert str(values["acceptance_rate"]) == "0.0", values
    assert int(values["total_draft_tokens"]) == int(values["total_accepted_draft_tokens"]) == 0, values
    for key in ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns"):
        assert int(values[key]) > 0, values


def perf_values(text):
    return dict(re.findall(r"^(\w+): ([\d.]+)$", text, re.M))


def perf_metrics():
    """9: performance outputs by every client, not decoupled and decoupled, with and without a prefix hit."""
    for decoupled in ("false", "true"):
        for way in ("generate", "end_to_end", "inflight"):
            with Server(repository("perf", decoupled_mode=decoupled, **PERF_VALUES)) as server:
                for first in (True, False):
                    if way == "generate":
                        perf_by_generate(server, decoupled == "true", first)
                    elif way == "end_to_end":
                        out = client(CLIENTS, "end_to_end_grpc_client.py", "-u", server.grpc, "-o", "10", "--prompt",
                                     LONG_PROMPT, "--return-perf-metrics")
                        check_perf(perf_values(out), first)
                    else:
                        streaming = ["--streaming"] if decoupled == "true" else []
                        out = client(CLIENTS, "inflight_batcher_llm_client.py", "-u", server.grpc, "--tokenizer-dir",
                                     MODEL, "--text", LONG_PROMPT, "--request-output-len", "200",
                                     "--return-perf-metrics", "--exclude-input-in-output", *streaming)
                        check_perf(perf_values(out), first)


def perf_by_generate(server, decoupled, first):
    body = {"text_input": LONG_PROMPT, "max_tokens": 10, "return_perf_metrics": True}
    for model in ("ensemble", "tensorrt_llm_bls"):
        if decoupled:
            _, text = server.get("/v2/models/%s/generate_stream" % model, body)
            events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
            assert len(events) == 1, text
            reply = events[0]
        else:
            reply = server.get("/v2/models/%s/generate" % model, body)[1]
        assert '"acceptance_rate":0.0' in reply, reply
        check_perf(json.loads(reply), first and model == "ensemble")


def openai_traces():
    """OpenAI's routes are traced like the others: one request of the engine's model for each prompt."""
    file = os.path.join(WORK, "openai_trace.json")
    if os.path.exists(file):
        os.remove(file)
    with Server(repository("trace", bls=False), "--trace-config=triton,file=" + file, "--trace-config=rate=1",
                "--trace-config=level=TIMESTAMPS") as server:
        for body in ({"prompt": ["The sea", "A tree"]}, {"prompt": "The sea", "stream": True}):
            status, text = server.get("/v1/completions", dict(body, model="model", max_tokens=4))
            assert status == 200, text
        status, text = server.get("/v1/chat/completions", {
            "model": "model", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]})
        assert status == 200, text
    with open(file, encoding="utf-8") as text:
        traces = json.load(text)
    requests = [trace["id"] for trace in traces if trace.get("model_name") == "tensorrt_llm"]
    assert len(requests) == 4, traces
    for request in requests:
        names = {stamp["name"] for trace in traces if trace["id"] == request for stamp in trace.get("timestamps", [])}
        assert {"HTTP_RECV_START", "REQUEST_START", "COMPUTE_START", "REQUEST_END", "HTTP_SEND_END"} <= names, names


def certificate(name):
    """(certificate, key) of a self-signed certificate for this machine."""
    paths = tuple(os.path.join(WORK, name + end) for end in (".crt", ".key"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out",
                    paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths


def ask_by_tls(address, **ssl):
    """What the ensemble streams to tritonclient; the error's text when there is no connection."""
    replies = queue.Queue()
    with grpcclient.InferenceServerClient(address, ssl=bool(ssl), **ssl) as triton:
        try:
            assert triton.is_server_live(client_timeout=20)
        except grpcclient.InferenceServerException as error:
            return str(error)
        triton.start_stream(callback=lambda result, error: replies.put(str(error).encode() if error else result.as_numpy("text_output")[0]))
        inputs = []
        for name, value in (("text_input", np.array([[PROMPT.encode()]], object)), ("max_tokens", np.int32([[8]])),
                            ("stream", np.array([[True]]))):
            inputs.append(grpcclient.InferInput(name, value.shape, np_to_triton_dtype(value.dtype)))
            inputs[-1].set_data_from_numpy(value)
        triton.async_stream_infer("ensemble", inputs)
        triton.stop_stream()
    return b"".join(replies.queue).decode()


def grpc_tls():
    """The gRPC port with TLS, of the server only and mutual, for tritonclient."""
    (cert, key), (own_cert, own_key) = certificate("server"), certificate("client")
    path = repository("tls", decoupled_mode="true", bls=False)
    flags = ["--grpc-server-cert=" + cert, "--grpc-server-key=" + key]
    with Server(path, "--grpc-use-ssl=true", *flags) as server:
        text = server.generate("ensemble", PROMPT, 8)["text_output"]
        assert text.endswith(ask_by_tls(server.grpc, root_certificates=cert)), text
        assert "UNAVAILABLE" in ask_by_tls(server.grpc)
        assert "UNAVAILABLE" in ask_by_tls(server.grpc, root_certificates=own_cert)
    with Server(path, "--grpc-use-ssl-mutual=true", "--grpc-root-cert=" + own_cert, *flags) as server:
        own = {"private_key": own_key, "certificate_chain": own_cert}
        assert text.endswith(ask_by_tls(server.grpc, root_certificates=cert, **own)), text
        assert "UNAVAILABLE" in ask_by_tls(server.grpc, root_certificates=cert)
        assert "UNAVAILABLE" in ask_by_tls(server.grpc, root_certificates=cert, private_key=key, certificate_chain=cert)
    server = Server(path, "--grpc-use-ssl=true")
    assert server.process.wait(timeout=60) > 0
    assert "--grpc-server-cert: TLS needs a file" in server.log(), server.log()[-2000:]


SCENARIOS = (invalid_strategy, not_streaming, token_histograms, beams, perf_metrics, openai_traces, grpc_tls)


def main():
    os.makedirs(WORK, exist_ok=True)
    rows = [{"input": "Machine learning", "instruction": "is a field of study", "output": "that gives computers eyes"},
            {"input": "The weather", "instruction": "of the next days", "output": "will be fine"}] * 3
    with open(DATASET, "w", encoding="utf-8") as file:
        json.dump(rows, file)
    wanted = sys.argv[2:]
    for scenario in SCENARIOS:
        if wanted and scenario.__name__ not in wanted:
            continue
        start = time.monotonic()
        scenario()
        print("scenario %s: passed in %.1f s" % (scenario.__name__, time.monotonic() - start), flush=True)


if __name__ == "__main__":
    main()
