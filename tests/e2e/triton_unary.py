"""A repository that is not decoupled: one request, one answer, by every kind of tritonclient, for both text models."""
import asyncio
import queue

import numpy as np
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
import tritonclient.http as httpclient
import tritonclient.http.aio as httpaio
from tritonclient.utils import np_to_triton_dtype

from triton_server import PROMPT, Server, repository

MODELS = ("ensemble", "tensorrt_llm_bls")
TENSORS = {"text_input": np.array([[PROMPT.encode()]], object), "max_tokens": np.int32([[16]]),
           "exclude_input_in_output": np.array([[True]])}


def inputs(module):
    out = []
    for name, value in TENSORS.items():
        out.append(module.InferInput(name, value.shape, np_to_triton_dtype(value.dtype)))
        out[-1].set_data_from_numpy(value)
    return out


def text_of(result):
    text = result.as_numpy("text_output").flatten()[0]  # str when it came as JSON
    return text if isinstance(text, str) else text.decode()


def waiting(server, model):
    """Texts by the clients that wait: plain, started and fetched later, compressed."""
    with httpclient.InferenceServerClient(server.http) as http, grpcclient.InferenceServerClient(server.grpc) as grpc:
        yield text_of(http.infer(model, inputs(httpclient), request_id="h"))
        yield text_of(http.async_infer(model, inputs(httpclient)).get_result())
        binary = [httpclient.InferRequestedOutput("text_output", binary_data=False)]
        yield text_of(http.infer(model, inputs(httpclient), outputs=binary, request_compression_algorithm="gzip",
                                 response_compression_algorithm="deflate"))
        result = grpc.infer(model, inputs(grpcclient), request_id="g", compression_algorithm="gzip")
        assert result.get_response().id == "g"
        yield text_of(result)
        answers = queue.Queue()
        grpc.async_infer(model, inputs(grpcclient), lambda result, error: answers.put((result, error)))
        result, error = answers.get()
        assert error is None, error
        yield text_of(result)


async def by_asyncio(server, model):
    async with httpaio.InferenceServerClient(server.http) as http, grpcaio.InferenceServerClient(server.grpc) as grpc:
        results = await asyncio.gather(*[http.infer(model, inputs(httpaio)) for _ in range(4)],
                                       *[grpc.infer(model, inputs(grpcaio)) for _ in range(4)])
    return [text_of(result) for result in results]


def unary_clients():
    with Server(repository("unary")) as server:
        texts = []
        for model in MODELS:
            texts += waiting(server, model)
            texts += asyncio.run(by_asyncio(server, model))
            texts.append(server.generate(model, PROMPT, 16, exclude_input_in_output=True)["text_output"])
        assert texts[0] and len(set(texts)) == 1, texts
