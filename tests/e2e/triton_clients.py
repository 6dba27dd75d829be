"""Triton's own clients, unmodified, against a server on the usual ports that serves the quick-start model as `ensemble`
and `tensorrt_llm_bls`: tritonclient (HTTP, gRPC, asyncio), gRPC reflection and health, perf_analyzer, genai-perf."""
import asyncio
import json
import os
import queue
import subprocess
import tempfile

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
import tritonclient.http as httpclient
import tritonclient.http.aio as httpaio

HTTP, GRPC = "localhost:8000", "localhost:8001"
MODELS = ("ensemble", "tensorrt_llm_bls")
PROMPT = "What is machine learning?"
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def inputs(module, stream=False, max_tokens=16):
    text = module.InferInput("text_input", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([[PROMPT.encode()]], dtype=np.object_))
    tokens = module.InferInput("max_tokens", [1, 1], "INT32")
    tokens.set_data_from_numpy(np.array([[max_tokens]], dtype=np.int32))
    streaming = module.InferInput("stream", [1, 1], "BOOL")
    streaming.set_data_from_numpy(np.array([[stream]], dtype=np.bool_))
    excluded = module.InferInput("exclude_input_in_output", [1, 1], "BOOL")
    excluded.set_data_from_numpy(np.array([[True]], dtype=np.bool_))
    return [text, tokens, streaming, excluded]


def text_of(result):
    return result.as_numpy("text_output").flatten()[0].decode()


def by_http(model):
    client = httpclient.InferenceServerClient(HTTP)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready(model)
    assert client.get_model_metadata(model)["name"] == model
    assert client.get_model_config(model)["max_batch_size"] == 8
    assert any(entry["name"] == model for entry in client.get_model_repository_index())
    stats = client.get_inference_statistics(model)["model_stats"]
    assert stats[0]["name"] == model, stats
    # Models that may send several responses answer by stream only; their halves that do not, by infer.
    query = httpclient.InferInput("QUERY", [1, 1], "BYTES")
    query.set_data_from_numpy(np.array([[PROMPT.encode()]], dtype=np.object_))
    length = httpclient.InferInput("REQUEST_OUTPUT_LEN", [1, 1], "INT32")
    length.set_data_from_numpy(np.array([[4]], dtype=np.int32))
    for binary in (True, False):
        wanted = [httpclient.InferRequestedOutput("INPUT_ID", binary_data=binary)]
        for algorithm in (None, "gzip", "deflate"):
            result = client.infer("preprocessing", [query, length], outputs=wanted, request_id="7",
                                  request_compression_algorithm=algorithm, response_compression_algorithm=algorithm)
            assert result.as_numpy("INPUT_ID").shape[0] == 1 and result.get_response()["id"] == "7"


async def by_http_asyncio(model):
    async with httpaio.InferenceServerClient(HTTP) as client:
        assert await client.is_model_ready(model)
        assert (await client.get_server_metadata())["name"]


def by_grpc_stream(model, streaming):
    """The whole text, from a stream."""
    replies = queue.Queue()
    with grpcclient.InferenceServerClient(GRPC) as client:
        assert client.is_server_ready() and client.is_model_ready(model)
        assert client.get_model_metadata(model).name == model
        client.start_stream(callback=lambda result, error: replies.put((result, error)))
        client.async_stream_infer(model, inputs(grpcclient, stream=streaming), request_id="g1",
                                  enable_empty_final_response=True)
        texts = []
        while True:
            result, error = replies.get(timeout=60)
            assert error is None, error
            response = result.get_response()
            assert response.id == "g1"
            if result.as_numpy("text_output") is not None:
                texts.append(text_of(result))
            if response.parameters["triton_final_response"].bool_param:
                break
        client.stop_stream()
    assert len(texts) > 1 if streaming else len(texts) == 1, texts
    return "".join(texts)


async def by_grpc_asyncio(model):
    async with grpcaio.InferenceServerClient(GRPC) as client:
        assert await client.is_model_ready(model)

        async def requests():
            yield {"model_name": model, "inputs": inputs(grpcaio), "request_id": "a1"}

        async for result, error in client.stream_infer(requests()):
            assert error is None, error
            return text_of(result)


def by_curl(model):
    body = json.dumps({"text_input": PROMPT, "max_tokens": 16, "exclude_input_in_output": True})
    out = subprocess.run(["curl", "-sf", "-X", "POST", "http://%s/v2/models/%s/generate" % (HTTP, model), "-d", body],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out)["text_output"]


def reflection():
    """The calls of grpcurl: list the services, describe one, ask for health."""
    import grpc
    from google.protobuf.descriptor_pool import DescriptorPool
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

    with grpc.insecure_channel(GRPC) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        services = set(database.get_services())
        assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= services, services
        service = DescriptorPool(database).FindServiceByName("inference.GRPCInferenceService")
        assert "ModelStreamInfer" in service.methods_by_name
        health = channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
        assert health == b"\x08\x01", health  # SERVING


def run_tool(words, needed, own_fault=None):
    """`own_fault`: what the tool prints when it trips over itself; it is then run once more."""
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    if own_fault and result.returncode != 0 and own_fault in result.stdout:
        print("clients: %s failed by itself (%s); once more" % (words[0], own_fault))
        return run_tool(words, needed)
    if result.returncode != 0 or any(text not in result.stdout for text in needed):
        raise SystemExit("%s: status %d\n%s" % (words[0], result.returncode, result.stdout[-6000:]))


def perf_analyzer():
    data = {"data": [{"text_input": [PROMPT], "max_tokens": [8], "stream": [True]}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(data, file)
        file.flush()
        for model in MODELS:
            run_tool(["perf_analyzer", "-m", model, "-i", "grpc", "-u", GRPC, "--streaming", "--async", "--input-data",
                      file.name, "--shape", "max_tokens:1", "--shape", "text_input:1", "--shape", "stream:1",
                      "--concurrency-range", "2", "--request-count", "10"], ["Throughput:"])
    run_tool(["perf_analyzer", "-m", "postprocessing", "-i", "http", "-u", HTTP, "--shape", "TOKENS_BATCH:1,4", "--shape",
              "SEQUENCE_LENGTH:1", "--concurrency-range", "2", "--request-count", "50", "--input-data", "zero"],
             ["Throughput:"])


def genai_perf(*way):
    # One run in about twenty, the file that its perf_analyzer wrote ended in mid-string, at a multiple of 4096 bytes.
    run_tool(["genai-perf", "profile", "-m", "ensemble", *way, "--streaming", "--tokenizer",
              os.path.join(ROOT, "models", "quickstart"), "--concurrency", "2", "--num-prompts", "10",
              "--synthetic-input-tokens-mean", "20", "--synthetic-input-tokens-stddev", "0", "--output-tokens-mean", "8",
              "--output-tokens-stddev", "0", "--measurement-interval", "1000"],
             ["Time to first token", "Output token throughput"], own_fault="JSONDecodeError: Unterminated string")


def main():
    answers = set()
    for model in MODELS:
        by_http(model)
        asyncio.run(by_http_asyncio(model))
        for streaming in (False, True):
            answers.add(by_grpc_stream(model, streaming).strip())
        answers.add(asyncio.run(by_grpc_asyncio(model)).strip())
        answers.add(by_curl(model).strip())
        print("clients: %s answers HTTP, gRPC, asyncio and curl" % model)
    assert len(answers) == 1, answers  # the same text by every way
    reflection()
    print("clients: reflection and health")
    perf_analyzer()
    print("clients: perf_analyzer")
    genai_perf("--service-kind", "triton", "--backend", "tensorrtllm", "--url", GRPC)
    for kind in ("chat", "completions"):
        genai_perf("--service-kind", "openai", "--endpoint-type", kind, "--url", HTTP)
    print("clients: genai-perf")


if __name__ == "__main__":
    main()
