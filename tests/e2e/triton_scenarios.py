"""The scenarios of the TensorRT-LLM backend's CI that need one device, on the quick-start model.
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

from churn import churn
from triton_features import adapters, draft_and_target, lookahead, medusa, whisper
from triton_flags import client_flags
from triton_metrics import Histogram, base_metrics, custom_metrics
from triton_ports import grpc_restricted, start_up_lines
from triton_server import CLIENTS, MODEL, PROMPT, TOOLS, WORK, Server, client, repository, tokenize
from triton_several import behind_a_proxy, two_models
from triton_unary import unary_clients

DATASET = os.path.join(WORK, "dataset.json")
LONG_PROMPT = ("Machine learning is a field of study that gives computers the ability to learn from data without being "
               "told every step, and people use it for many things, such as reading text, seeing pictures, hearing "
               "speech, playing games, finding errors, and telling what the weather of the next")


def tensor_inputs(tensors):
    """gRPC inputs of (name, array) pairs."""
    inputs = []
    for name, value in tensors:
        inputs.append(grpcclient.InferInput(name, value.shape, np_to_triton_dtype(value.dtype)))
        inputs[-1].set_data_from_numpy(value)
    return inputs


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


def by_hand_equals_ensemble(server, beams=1, models=("ensemble",)):
    """The checks of end_to_end_test.py: the three models called one by one give the text, log probabilities and logits of
    `models`."""
    def infer(model, tensors, outputs):
        body = {"inputs": [{"name": n, "datatype": t, "shape": s, "data": d} for n, t, s, d in tensors],
                "outputs": [{"name": name} for name in outputs]}
        status, reply = server.get("/v2/models/%s/infer" % model, body)
        assert status == 200, reply
        return {o["name"]: (o["shape"], o["data"]) for o in json.loads(reply)["outputs"]}

    tokens, words = 12, [("BAD_WORDS_DICT", "BYTES", [1, 1], [""]), ("STOP_WORDS_DICT", "BYTES", [1, 1], [""])]
    logits = ["context_logits", "generation_logits"] if beams == 1 else []  # the latter are refused for beams
    wanted = [("beam_width", "INT32", [1, 1], [beams])] + [
        ("return_" + name, "BOOL", [1, 1], [True]) for name in ["log_probs"] + logits]
    extras = logits + ["output_log_probs", "cum_log_probs"]
    pre = infer("preprocessing", [("QUERY", "BYTES", [1, 1], [PROMPT]),
                                  ("REQUEST_OUTPUT_LEN", "INT32", [1, 1], [tokens])] + words,
                ["INPUT_ID", "REQUEST_INPUT_LEN", "DECODER_INPUT_ID"])
    length = pre["REQUEST_INPUT_LEN"][1][0]
    core = infer("tensorrt_llm", [("input_ids", "INT32", *pre["INPUT_ID"]),
                                  ("input_lengths", "INT32", [1, 1], [length]),
                                  ("decoder_input_ids", "INT32", *pre["DECODER_INPUT_ID"]),
                                  ("end_id", "INT32", [1, 1], [-1]),
                                  ("request_output_len", "INT32", [1, 1], [tokens])] + wanted,
                 ["output_ids", "sequence_length"] + extras)
    if logits:
        vocabulary = core["context_logits"][0][-1]
        assert core["context_logits"][0] == [1, length, vocabulary], core["context_logits"][0]
        assert core["generation_logits"][0] == [1, 1, tokens, vocabulary], core["generation_logits"][0]
    assert core["output_log_probs"][0] == [1, beams, tokens] and core["cum_log_probs"][0] == [1, beams], core.keys()
    ids, lengths = core["output_ids"], core["sequence_length"]
    assert ids[0][:2] == [1, beams] and lengths[1] == [length + tokens] * beams
    text = infer("postprocessing", [("TOKENS_BATCH", "INT32", *ids), ("SEQUENCE_LENGTH", "INT32", *lengths)], ["OUTPUT"])
    for model in models:
        whole = infer(model, [("text_input", "BYTES", [1, 1], [PROMPT]), ("max_tokens", "INT32", [1, 1], [tokens]),
                              ("end_id", "INT32", [1, 1], [-1])] + wanted, ["text_output"] + extras)
        assert whole["text_output"][1] == text["OUTPUT"][1], (model, whole["text_output"], text["OUTPUT"])
        for name in extras:
            assert whole[name] == core[name], (model, name)


STRATEGIES = ("V1", "inflight_fused_batching")


def not_streaming():
    """2 and 3: V1 and in-flight batching, not decoupled: benchmark, functionality, metrics."""
    for strategy in STRATEGIES:
        with Server(repository("plain", batching_strategy=strategy)) as server:
            status, _ = server.get("/v2/logging", {"log_verbose_level": 1})
            assert status == 200
            benchmark(server, "http")
            by_hand_equals_ensemble(server, models=("ensemble", "tensorrt_llm_bls"))
            if strategy != "V1":
                benchmark(server, "grpc")
                stop_and_cancel(server)
            base_metrics(server)
            custom_metrics(server, strategy)


def token_histograms():
    """4 and 8: one streamed request is one observation each; a decoupled model answers unstreamed requests."""
    with Server(repository("decoupled", decoupled_mode="true", max_queue_size=4)) as server:
        inputs, outputs = Histogram(server, "input"), Histogram(server, "output")
        client(CLIENTS, "end_to_end_grpc_client.py", "-u", server.grpc, "--prompt=" + PROMPT, "--streaming", "-o=20",
               "--end-id", "-1")
        inputs.expect([tokenize(server, PROMPT)])
        outputs.expect([20])
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


def new_tokens(printed):
    return len(json.loads(re.findall(r"^Output sequence:  (\[.*\])$", printed, re.M)[-1]))


def in_time(*words):
    """The client's output; it starts again when its stop came after the last token, as on a busy machine."""
    for _ in range(10):
        try:
            return client(CLIENTS, "inflight_batcher_llm_client.py", *words)
        except AssertionError as late:
            if "the request was not stopped" not in str(late):
                raise
    raise AssertionError("ten requests were not stopped: %s" % (words,))


def stop_and_cancel(server, *more):
    """A running request is stopped by its id, or by cancelling the call: fewer tokens come than the same request has when
    it is left alone, which nothing else ends."""
    asked = 1500
    prompt = os.path.join(WORK, "prompt.csv")
    with open(prompt, "w", encoding="utf-8") as file:
        file.write("11, 12, 13\n14, 15\n")
    words = ["-u", server.grpc, "--request-output-len", str(asked), "--request-id", "1", "--input-tokens-csv", prompt,
             "--end-id", "-1", *more]
    assert new_tokens(client(CLIENTS, "inflight_batcher_llm_client.py", *words)) == asked
    words += ["--stop-after-ms", "5"]
    out = in_time(*words)
    assert "Got cancellation response from server" in out and new_tokens(out) < asked, out
    out = in_time(*words, "--stop-via-request-cancel")
    assert "Request is cancelled" in out, out
    while int(server.metric("nv_trt_llm_request_metrics", request_type="active")) > 0:
        time.sleep(0.05)
    assert server.generate("ensemble", PROMPT, 4)["text_output"]


def full_queue(server):
    """More requests than run and wait are refused, over HTTP and on a gRPC stream, with the words that the backend's test
    client looks for."""
    body = json.dumps({"text_input": PROMPT, "max_tokens": 400, "end_id": -1})
    processes = [subprocess.Popen(["curl", "-s", "-X", "POST", "http://%s/v2/models/ensemble/generate" % server.http,
                                   "-d", body], stdout=subprocess.PIPE, text=True) for _ in range(60)]
    replies = [process.communicate(timeout=120)[0] for process in processes]
    assert any("Maximum queue size of 4" in reply for reply in replies), "nothing was refused: %s" % set(replies)
    assert any("text_output" in reply for reply in replies), replies
    replies = queue.Queue()
    tensors = (("input_ids", np.int32([[11, 12, 13]])), ("input_lengths", np.int32([[3]])),
               ("request_output_len", np.int32([[400]])), ("streaming", np.array([[True]])))
    with grpcclient.InferenceServerClient(server.grpc) as triton:
        triton.start_stream(callback=lambda result, error: replies.put(error and str(error)))
        for number in range(60):
            triton.async_stream_infer("tensorrt_llm", tensor_inputs(tensors), request_id=str(number))
        triton.stop_stream()
    errors = [error for error in replies.queue if error]
    assert errors and all("Exceeds maximum queue size" in error for error in errors), set(errors)
    assert None in replies.queue


def beams():
    """6: beam width 2, in both strategies: every beam's tokens count, and the checks of 2, 3, 5 and 10 hold."""
    for strategy in STRATEGIES:
        with Server(repository("beams", max_beam_width=2, bls=False, batching_strategy=strategy)) as server:
            assert server.get("/v2/logging", {"log_verbose_level": 1})[0] == 200
            outputs = Histogram(server, "output")
            reply = server.generate("ensemble", PROMPT, 10, beam_width=2, end_id=-1)
            assert len(reply["text_output"]) == 2, reply
            outputs.expect([20])
            status, text = server.get("/v2/models/ensemble/generate",
                                      {"text_input": PROMPT, "max_tokens": 10, "beam_width": 3})
            assert status >= 400 and "beam" in text, text
            benchmark(server, "grpc")
            by_hand_equals_ensemble(server, beams=2)
            base_metrics(server, beams=2)
            custom_metrics(server, strategy)


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


def loads_beside_streams():
    """Models come and go while others work (churn.py, which takes longer with --loads)."""
    churn(os.path.join(WORK, "churn"))


def openai_traces():
    """OpenAI's routes are traced like the others: one request of the engine's model for each prompt."""
    file = os.path.join(WORK, "openai_trace.json")
    if os.path.exists(file):
        os.remove(file)
    with Server(repository("trace", bls=False), "--trace-config=triton,file=" + file, "--trace-config=rate=1",
                "--trace-config=level=TIMESTAMPS") as server:
        for body in ({"prompt": ["The sea", "A tree"]}, {"prompt": "The sea", "stream": True}):
            status, text = server.get("/v1/completions", dict(body, model="ensemble", max_tokens=4))
            assert status == 200, text
        status, text = server.get("/v1/chat/completions", {
            "model": "ensemble", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]})
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
    """The ensemble's stream to tritonclient; the error's text when there is no connection."""
    replies = queue.Queue()
    with grpcclient.InferenceServerClient(address, ssl=bool(ssl), **ssl) as triton:
        try:
            assert triton.is_server_live(client_timeout=20)
        except grpcclient.InferenceServerException as error:
            return str(error)
        triton.start_stream(callback=lambda result, error: replies.put(str(error).encode() if error else result.as_numpy("text_output")[0]))
        inputs = tensor_inputs((("text_input", np.array([[PROMPT.encode()]], object)), ("max_tokens", np.int32([[8]])),
                                ("stream", np.array([[True]]))))
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


SCENARIOS = (invalid_strategy, not_streaming, token_histograms, beams, perf_metrics, openai_traces, grpc_tls,
             loads_beside_streams, unary_clients, two_models, behind_a_proxy, client_flags,
             start_up_lines, grpc_restricted, adapters, medusa, lookahead, draft_and_target, whisper)


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
