#!/usr/bin/env python3
"""gRPC's interoperability cases with grpclib as the client: HTTP/2 and gRPC in Python (the h2 package), no code in common with
grpcio. The server and its models are those of grpc_interop.py, which starts this.
usage: grpc_interop_grpclib.py HOST:PORT
"""
import asyncio
import sys

from grpclib.client import Channel, StreamStreamMethod, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from tritonclient.grpc import service_pb2 as pb

from grpc_client import check
from grpc_requests import LONG, request, values_of

SERVICE = "/inference.GRPCInferenceService/"


class Stub:
    def __init__(self, channel):
        self.live = UnaryUnaryMethod(channel, SERVICE + "ServerLive", pb.ServerLiveRequest, pb.ServerLiveResponse)
        self.metadata = UnaryUnaryMethod(channel, SERVICE + "ModelMetadata", pb.ModelMetadataRequest, pb.ModelMetadataResponse)
        self.infer = UnaryUnaryMethod(channel, SERVICE + "ModelInfer", pb.ModelInferRequest, pb.ModelInferResponse)
        self.stream = StreamStreamMethod(channel, SERVICE + "ModelStreamInfer", pb.ModelInferRequest, pb.ModelStreamInferResponse)
        self.unknown = UnaryUnaryMethod(channel, SERVICE + "UnimplementedCall", pb.ServerLiveRequest, pb.ServerLiveResponse)


async def failure(call):
    """The status of a call that must fail."""
    try:
        reply = await call
    except GRPCError as e:
        return e
    raise AssertionError("no error but %s" % str(reply)[:200])


async def empty_unary(stub):
    check((await stub.live(pb.ServerLiveRequest(), timeout=LONG)).live, "live")


async def large_unary(stub):
    for size in (271828 // 4, 1 << 20):
        sent = list(range(size))
        check(values_of(await stub.infer(request("one", sent), timeout=LONG)) == sent, "%d numbers" % size)


async def server_streaming(stub):
    sizes = [31415, 9, 2653, 58979]
    async with stub.stream.open(timeout=LONG) as stream:
        await stream.send_message(request("repeat", sizes), end=True)
        got = [values_of(reply.infer_response)[0] async for reply in stream]
    check(got == sizes, got)


async def client_streaming(stub):
    async with stub.stream.open(timeout=LONG) as stream:
        for i in range(300):
            await stream.send_message(request("one", [i], str(i)), end=i == 299)
        got = [(int(reply.infer_response.id), values_of(reply.infer_response)[0]) async for reply in stream]
    check(sorted(got) == [(i, i) for i in range(300)], "%d replies" % len(got))


async def ping_pong(stub):
    async with stub.stream.open(timeout=LONG) as stream:
        for i in (27182, 8, 1828, 45904):
            await stream.send_message(request("one", list(range(i)), str(i)))
            reply = (await stream.recv_message()).infer_response
            check(reply.id == str(i) and values_of(reply) == list(range(i)), i)
        await stream.end()
        check(await stream.recv_message() is None, "an answer too many")


async def empty_stream(stub):
    async with stub.stream.open(timeout=LONG) as stream:
        await stream.send_request()
        await stream.end()
        check(await stream.recv_message() is None, "an answer to nothing")


async def cancel_after_begin(stub):
    async with stub.stream.open(timeout=LONG) as stream:
        await stream.send_request()
        await stream.cancel()
    await empty_unary(stub)


async def cancel_after_first_response(stub):
    async with stub.stream.open(timeout=LONG) as stream:
        await stream.send_message(request("one", [1]))
        check(values_of((await stream.recv_message()).infer_response) == [1], "first")
        await stream.send_message(request("stuck_stream", [1]))
        await stream.cancel()
    await empty_unary(stub)


async def timeout_on_sleeping_server(stub):
    """Whose clock is first is open: grpclib's own timeout is a TimeoutError, the server's a status."""
    try:
        status = (await failure(stub.infer(request("stuck", [1]), timeout=0.05))).status
        check(status == Status.DEADLINE_EXCEEDED, status)
    except asyncio.TimeoutError:
        pass
    await empty_unary(stub)


async def status_code_and_message(stub):
    error = await failure(stub.infer(request("nope", [1]), timeout=LONG))
    want = "Request for unknown model: 'nope' is not found"
    check((error.status, error.message) == (Status.NOT_FOUND, want), error)


async def special_status_message(stub):
    name = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608 100%\t\n"
    error = await failure(stub.metadata(pb.ModelMetadataRequest(name=name), timeout=LONG))
    check(error.status == Status.NOT_FOUND and "'%s'" % name in error.message, error)


async def custom_metadata(stub):
    metadata = [("x-fwd-note", "test_initial_metadata_value"), ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"),
                ("twice", "a"), ("twice", "b"), ("large", "x" * 4000), ("all-bin", bytes(range(256)))]
    check(values_of(await stub.infer(request("one", [5]), timeout=LONG, metadata=metadata)) == [5], "unary")
    async with stub.stream.open(timeout=LONG, metadata=metadata) as stream:
        await stream.send_message(request("one", [6]), end=True)
        check(values_of((await stream.recv_message()).infer_response) == [6], "stream")


async def unimplemented_method(stub):
    error = await failure(stub.unknown(pb.ServerLiveRequest(), timeout=LONG))
    check(error.status == Status.UNIMPLEMENTED, error)


async def concurrent_large_unary(stub):
    replies = await asyncio.gather(*(stub.infer(request("one", [i] * 10000), timeout=LONG) for i in range(200)))
    check(all(values_of(reply) == [i] * 10000 for i, reply in enumerate(replies)), "an answer of another call")


CASES = (empty_unary, large_unary, server_streaming, client_streaming, ping_pong, empty_stream, cancel_after_begin,
         cancel_after_first_response, timeout_on_sleeping_server, status_code_and_message, special_status_message,
         custom_metadata, unimplemented_method, concurrent_large_unary)


async def main():
    host, _, port = sys.argv[1].rpartition(":")
    async with Channel(host, int(port)) as channel:
        for case in CASES:
            await case(Stub(channel))
            print("grpclib: " + case.__name__, flush=True)
    print("grpclib: %d cases, all passed" % len(CASES))


if __name__ == "__main__":
    asyncio.run(main())
