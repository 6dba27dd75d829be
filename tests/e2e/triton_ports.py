"""The ports: their start-up lines and addresses, and rpcs that need a secret."""
import asyncio
import re
import urllib.request

import grpc
import tritonclient.grpc as grpcclient
import tritonclient.grpc.aio as grpcaio
from tritonclient.utils import InferenceServerException

from triton_server import PROMPT, Server, repository
from triton_unary import inputs, text_of


def start_up_lines():
    """The three lines that scripts wait for: in order, the last of the log, each with the address that answers."""
    flags = ["--http-address=127.0.0.2", "--grpc-address=127.0.0.3", "--metrics-address=127.0.0.4"]
    with Server(repository("lines", bls=False), *flags) as server:
        lines = re.findall(r"Started (\w+(?: \w+)?) at (\S+):(\d+)\"?$", server.log(), re.M)
        assert [line[:2] for line in lines] == [("GRPCInferenceService", "127.0.0.3"), ("HTTPService", "127.0.0.2"),
                                                ("Metrics Service", "127.0.0.4")], lines
        assert server.log().index("| exit_timeout") < server.log().index("Started GRPC")
        assert server.log().rstrip().splitlines()[-3:] == [line for line in server.log().splitlines() if "Started " in line]
        with grpcclient.InferenceServerClient("127.0.0.3:" + lines[0][2]) as triton:
            assert triton.is_server_ready()
        with urllib.request.urlopen("http://127.0.0.2:%s/v2/health/ready" % lines[1][2]) as reply:
            assert reply.status == 200
        with urllib.request.urlopen("http://127.0.0.4:%s/metrics" % lines[2][2]) as reply:
            assert b"nv_inference_request_success" in reply.read()


def refused(call, key):
    try:
        call()
    except InferenceServerException as error:
        assert "UNAVAILABLE" in str(error.status()) and "triton-grpc-protocol-" + key in error.message(), error
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE and "triton-grpc-protocol-" + key in error.details(), error
    else:
        raise AssertionError("answered without the secret of " + key)


def grpc_restricted():
    """Groups of rpcs with a secret each; the others are open."""
    flags = ["--grpc-restricted-protocol=inference,statistics:infer-key=infer-secret",
             "--grpc-restricted-protocol=model-repository,logging:admin-key=admin-secret"]
    good = {"triton-grpc-protocol-infer-key": "infer-secret"}
    admin = {"triton-grpc-protocol-admin-key": "admin-secret"}
    with Server(repository("restricted"), *flags) as server, grpcclient.InferenceServerClient(server.grpc) as triton:
        text = text_of(triton.infer("ensemble", inputs(grpcclient), headers=good))
        assert text and triton.get_model_repository_index(headers=admin).models
        assert triton.get_inference_statistics("ensemble", headers=good).model_stats[0].inference_count == 1
        assert triton.get_log_settings(headers=admin) is not None
        assert triton.is_server_ready() and triton.get_model_metadata("ensemble").name == "ensemble"
        assert triton.get_model_config("ensemble").config.name == "ensemble"
        for wrong in ({}, admin, {"infer-key": "infer-secret"}, {"triton-grpc-protocol-infer-key": "infer-secre"}):
            refused(lambda: triton.infer("ensemble", inputs(grpcclient), headers=wrong), "infer-key")
            refused(lambda: triton.get_inference_statistics("ensemble", headers=wrong), "infer-key")
        for wrong in ({}, good):
            refused(lambda: triton.get_model_repository_index(headers=wrong), "admin-key")
            refused(lambda: triton.load_model("ensemble", headers=wrong), "admin-key")
            refused(lambda: triton.update_log_settings({"log_verbose_level": 1}, headers=wrong), "admin-key")
        assert asyncio.run(streamed(server, good)) == text
        # Nothing is sent: a message that meets the refusal half way fails in the client.
        with grpc.insecure_channel(server.grpc) as channel:
            stream = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            refused(lambda: list(stream(iter(()))), "infer-key")
        # The same api over HTTP has no secret.
        assert server.generate("ensemble", PROMPT, 16, exclude_input_in_output=True)["text_output"] == text
    twice = Server(repository("restricted", bls=False), flags[0], "--grpc-restricted-protocol=inference:other=x")
    assert twice.process.wait(timeout=60) > 0
    assert "inference" in twice.log() and "multiple" in twice.log(), twice.log()[-2000:]


async def streamed(server, headers):
    async def requests():
        yield {"model_name": "ensemble", "inputs": inputs(grpcaio)}

    async with grpcaio.InferenceServerClient(server.grpc) as triton:
        async for result, error in triton.stream_infer(requests(), headers=headers):
            if error is not None:
                raise error
            return text_of(result)
