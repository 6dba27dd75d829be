#!/usr/bin/env python3
"""The cases of gRPC's interoperability tests that make sense for the KServe service, with grpcio as the client. The names are
those of gRPC's list; what its test service does is done by models that echo, repeat, are slow or never answer.
--also PROGRAM: one more client of the cases (grpc_interop.cc, grpc_interop_grpclib.py), run with the server's address.
usage: grpc_interop.py BUILD_DIR [CASE] [--also PROGRAM]...
"""
import argparse
import queue
import subprocess
import sys
import tempfile
import threading

import grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from grpc_client import Server, check, write_repository
from grpc_requests import LONG, request, values_of


def failure(call):
    """(code, details) of a call that must fail."""
    try:
        reply = call()
    except grpc.RpcError as e:
        return e.code(), e.details()
    raise AssertionError("no error but %s" % str(reply)[:200])


def empty_unary(channel, stub):
    check(stub.ServerLive(pb.ServerLiveRequest(), timeout=LONG).live, "live")


def large_unary(channel, stub):
    """271,828 and more bytes there and back."""
    for size in (271828 // 4, 314159 // 4, 1 << 20):
        sent = list(range(size))
        check(values_of(stub.ModelInfer(request("one", sent), timeout=LONG)) == sent, "%d numbers" % size)


def client_compressed_unary(channel, stub):
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate, grpc.Compression.NoCompression):
        reply = stub.ModelInfer(request("one", [7] * 100000), timeout=LONG, compression=compression)
        check(values_of(reply) == [7] * 100000, compression)


def server_streaming(channel, stub):
    sizes = [31415, 9, 2653, 58979]
    replies = list(stub.ModelStreamInfer(iter([request("repeat", sizes)]), timeout=LONG))
    check([values_of(r.infer_response)[0] for r in replies] == sizes, replies)


def client_streaming(channel, stub):
    """Many requests, none waits for an answer; all are answered before the stream ends."""
    sent = [request("one", [i], str(i)) for i in range(300)]
    replies = list(stub.ModelStreamInfer(iter(sent), timeout=LONG))
    check(sorted((int(r.infer_response.id), values_of(r.infer_response)[0]) for r in replies) == [(i, i) for i in range(300)],
          "%d replies" % len(replies))


def ping_pong(channel, stub):
    requests = queue.Queue()
    stream = stub.ModelStreamInfer(iter(requests.get, None), timeout=LONG)
    for i in (27182, 8, 1828, 45904):
        requests.put(request("one", list(range(i)), str(i)))
        reply = next(stream).infer_response
        check(reply.id == str(i) and values_of(reply) == list(range(i)), i)
    requests.put(None)
    check(list(stream) == [] and stream.code() == grpc.StatusCode.OK, stream.code())


def empty_stream(channel, stub):
    stream = stub.ModelStreamInfer(iter([]), timeout=LONG)
    check(list(stream) == [] and stream.code() == grpc.StatusCode.OK, stream.code())


def cancel_after_begin(channel, stub):
    requests = queue.Queue()
    stream = stub.ModelStreamInfer(iter(requests.get, None), timeout=LONG)
    stream.cancel()
    check(stream.code() == grpc.StatusCode.CANCELLED, stream.code())
    requests.put(None)


def cancel_after_first_response(channel, stub):
    requests = queue.Queue()
    stream = stub.ModelStreamInfer(iter(requests.get, None), timeout=LONG)
    requests.put(request("one", [1]))
    check(values_of(next(stream).infer_response) == [1], "first")
    requests.put(request("stuck_stream", [1]))
    stream.cancel()
    check(stream.code() == grpc.StatusCode.CANCELLED, stream.code())
    requests.put(None)
    empty_unary(channel, stub)


def timeout_on_sleeping_server(channel, stub):
    code, _ = failure(lambda: stub.ModelInfer(request("stuck", [1]), timeout=0.05))
    check(code == grpc.StatusCode.DEADLINE_EXCEEDED, code)
    stream = stub.ModelStreamInfer(iter([request("stuck_stream", [1])]), timeout=0.05)
    code, _ = failure(lambda: list(stream))
    check(code == grpc.StatusCode.DEADLINE_EXCEEDED, code)


def status_code_and_message(channel, stub):
    want = "Request for unknown model: 'nope' is not found"
    code, details = failure(lambda: stub.ModelInfer(request("nope", [1]), timeout=LONG))
    check((code, details) == (grpc.StatusCode.NOT_FOUND, want), (code, details))
    reply, = stub.ModelStreamInfer(iter([request("nope", [1])]), timeout=LONG)
    check(want in reply.error_message, reply)


def special_status_message(channel, stub):
    """Any characters of a status message are sent percent-encoded and arrive unchanged."""
    name = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608 100%\t\n"
    code, details = failure(lambda: stub.ModelMetadata(pb.ModelMetadataRequest(name=name), timeout=LONG))
    check(code == grpc.StatusCode.NOT_FOUND and "'%s'" % name in details, (code, details))


def custom_metadata(channel, stub):
    """Any metadata may come along: text, bytes, several of a name. x-fwd-... reaches the model as a parameter."""
    metadata = [("x-fwd-note", "test_initial_metadata_value"), ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"),
                ("twice", "a"), ("twice", "b"), ("empty", ""), ("large", "x" * 4000), ("all-bin", bytes(range(256)))]
    call = stub.ModelInfer.future(request("one", [5]), timeout=LONG, metadata=metadata)
    check(values_of(call.result()) == [5], "unary")
    requests = queue.Queue()
    stream = stub.ModelStreamInfer(iter(requests.get, None), timeout=LONG, metadata=metadata)
    requests.put(request("one", [6]))
    check(values_of(next(stream).infer_response) == [6], "stream")
    requests.put(None)
    check(list(stream) == [] and stream.code() == grpc.StatusCode.OK, stream.code())


def unimplemented_method(channel, stub):
    for path in ("/inference.GRPCInferenceService/UnimplementedCall", "/grpc.testing.UnimplementedService/UnimplementedCall"):
        code, _ = failure(lambda path=path: channel.unary_unary(path)(b"", timeout=LONG))
        check(code == grpc.StatusCode.UNIMPLEMENTED, (path, code))
        code, _ = failure(lambda path=path: list(channel.stream_stream(path)(iter([b""]), timeout=LONG)))
        check(code == grpc.StatusCode.UNIMPLEMENTED, (path, code))


def concurrent_large_unary(channel, stub):
    """1,000 calls in flight on one connection."""
    calls = [stub.ModelInfer.future(request("one", [i] * 10000), timeout=LONG) for i in range(1000)]
    check(all(values_of(call.result()) == [i] * 10000 for i, call in enumerate(calls)), "an answer of another call")


def rpc_soak(channel, stub):
    for i in range(1000):
        check(values_of(stub.ModelInfer(request("one", [i]), timeout=LONG)) == [i], i)


def channel_soak(channel, stub, address=None):
    for i in range(100):
        with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as fresh:
            other = service_pb2_grpc.GRPCInferenceServiceStub(fresh)
            check(values_of(other.ModelInfer(request("one", [i]), timeout=LONG)) == [i], i)


def many_streams(channel, stub):
    """100 streams side by side on one connection, each with its own answers in its own order."""
    faults = []

    def run(of):
        try:
            got = [values_of(r.infer_response)[0]
                   for r in stub.ModelStreamInfer(iter([request("repeat", [of * 100 + i for i in range(20)])]), timeout=LONG)]
            check(got == [of * 100 + i for i in range(20)], got)
        except BaseException as e:  # reported by the main thread
            faults.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not faults, faults)


CASES = (empty_unary, large_unary, client_compressed_unary, server_streaming, client_streaming, ping_pong, empty_stream,
         cancel_after_begin, cancel_after_first_response, timeout_on_sleeping_server, status_code_and_message,
         special_status_message, custom_metadata, unimplemented_method, concurrent_large_unary, many_streams, rpc_soak,
         channel_soak)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("case", nargs="?", default="")
    parser.add_argument("--also", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        write_repository(root)
        server = Server(options.build, root, "--log-verbose=1")
        try:
            limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
            with grpc.insecure_channel(server.address, options=limits) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                cases = [case for case in CASES if options.case in case.__name__]
                for case in cases:
                    case(channel, stub, **({"address": server.address} if case is channel_soak else {}))
                    print("grpc interop: " + case.__name__, flush=True)
            for program in options.also:
                command = [sys.executable, program] if program.endswith(".py") else [program]
                check(subprocess.run([*command, server.address]).returncode == 0, program)
            check(server.stop() == 0, server.tail())
            with open(server.log.name, encoding="utf-8") as log:
                lines = log.read()
            for method in ("ModelInfer", "ModelStreamInfer") if not options.case else ():
                for line in ("gRPC request: ", "Cancellation notification received for "):
                    check(line + "/inference.GRPCInferenceService/" + method + '"' in lines, line + method)
        except BaseException:
            sys.stdout.write(server.tail())
            raise
        finally:
            server.stop()
    print("grpc interop: %d cases, all passed" % len(cases))


if __name__ == "__main__":
    main()
