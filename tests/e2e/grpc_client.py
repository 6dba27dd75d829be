#!/usr/bin/env python3
"""gRPC with the real clients against the test server: grpcio, tritonclient (sync, asyncio, streams), health, reflection,
compression, cancellation, shutdown, rubbish on the port; and a replay of grpc_cases.jsonl, recorded from a stock Triton
2.51 (outputs' shapes are not compared: the test backend answers without the batch dimension).
usage: grpc_client.py BUILD_DIR
"""
import asyncio
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import grpc
import numpy as np
import tritonclient.grpc as client
import tritonclient.grpc.aio as aio_client
from google.protobuf import descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

IO = ('input { name: "IN" data_type: TYPE_INT32 dims: [ %d ] }\noutput { name: "OUT" data_type: TYPE_INT32 dims: [ %d ] }\n'
      'parameters { key: "behavior" value { string_value: "%s" } }\n')
DECOUPLED = "model_transaction_policy { decoupled: true }\n"
MODELS = {
    "one": ("max_batch_size: 8\n", -1, "identity", [1]),
    "counted_grpc": ("max_batch_size: 4\n", 1, "identity", [1]),
    "ver_specific": ("version_policy { specific { versions: [ 1, 3 ] } }\n", 1, "identity", [1, 2, 3]),
    "slow": ("max_batch_size: 0\n", -1, "slow", [1]),
    "stuck": ("max_batch_size: 0\n", -1, "wait_cancel", [1]),
    "stuck_stream": (DECOUPLED, -1, "wait_cancel", [1]),
    "repeat": (DECOUPLED, -1, "repeat", [1]),
    "repeat_alone": (DECOUPLED, -1, "repeat_final_alone", [1]),
    "fails_later": (DECOUPLED, -1, "fail_after", [1]),
}
HERE = os.path.dirname(os.path.abspath(__file__))


class Server:
    def __init__(self, build, root, *flags):
        self.log = tempfile.NamedTemporaryFile()
        self.process = subprocess.Popen(
            [os.path.join(build, "bin/tritonserver"), "--model-repository=" + root, "--model-control-mode=explicit",
             "--load-model=*", "--exit-on-error=false", "--http-address=127.0.0.1", "--http-port=0",
             "--grpc-address=127.0.0.1", "--grpc-port=0", "--metrics-address=127.0.0.1", "--metrics-port=0", "--grpc-header-forward-pattern=x-fwd-.*",
             "--backend-directory=" + os.path.join(build, "test_backends"), *flags],
            stdout=subprocess.DEVNULL, stderr=self.log)
        self.http, self.port = self.started("HTTPService"), self.started("GRPCInferenceService")
        self.metrics = self.started("Metrics Service")
        self.address = "127.0.0.1:%d" % self.port

    def started(self, service):
        while True:
            with open(self.log.name, encoding="utf-8") as f:
                line = re.search("Started %s at \\S+?:(\\d+)" % service, f.read())
            if line:
                return int(line.group(1))
            if self.process.poll() is not None:
                raise RuntimeError("the server ended with code %d" % self.process.returncode)
            time.sleep(0.05)

    def wait_for_calls(self, count):
        """Returns when so many rpcs are being answered."""
        deadline = time.monotonic() + 60
        while True:
            with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % self.metrics) as page:
                active = int(re.search(r"^nereid_grpc_calls_active (\d+)$", page.read().decode(), re.M)[1])
            if active >= count:
                return
            check(time.monotonic() < deadline, "%d calls of %d" % (active, count))
            time.sleep(0.02)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def tail(self):
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")[-3000:]


def write_repository(root):
    for name, (more, dim, behavior, versions) in MODELS.items():
        for version in versions:
            os.makedirs(os.path.join(root, name, str(version)))
        with open(os.path.join(root, name, "config.pbtxt"), "w", encoding="utf-8") as f:
            f.write('backend: "nereid_test"\n' + more + IO % (dim, dim, behavior))


def tensor(values):
    values = np.array(values, dtype=np.int32)
    out = client.InferInput("IN", list(values.shape), "INT32")
    out.set_data_from_numpy(values)
    return [out]


def check(condition, what):
    if not condition:
        raise AssertionError(what)


# ---------------------------------------------------------------- replay

def normal(x, key=""):
    if isinstance(x, dict):
        return {k: normal(v, k) for k, v in x.items() if not (k == "shape" and "datatype" in x)}
    if isinstance(x, list):
        return [normal(v, key) for v in x]
    if key in ("ns", "last_inference"):
        return "TIME"
    if isinstance(x, str):
        return re.sub(r"(Got input\(s\) \[)([^\]]*)", lambda m: m[1] + ",".join(sorted(m[2].split(","))), x)
    return x


# Deliberate differences: names -> why.
DIFFERENT = {
    "infer shape negative": "ours names the dimension; stock computes a negative size",
    "infer extra unknown input": "stock prints an unbalanced bracket",
}


def run_case(channel, stub, case):
    metadata = [tuple(m) for m in case.get("metadata", [])]
    compression = {"Gzip": grpc.Compression.Gzip, "Deflate": grpc.Compression.Deflate}.get(case.get("compression"))
    extra = {"timeout": case.get("timeout_s", 30), "metadata": metadata or None, "compression": compression}
    out = {}
    try:
        if "requests" in case:
            requests = [json_format.ParseDict(r, pb.ModelInferRequest()) for r in case["requests"]]
            out["replies"] = []
            for reply in stub.ModelStreamInfer(iter(requests), **extra):
                out["replies"].append(json_format.MessageToDict(reply, preserving_proto_field_name=True))
        elif "request_b64" in case:
            import base64
            path = case["rpc"] if case["rpc"].startswith("/") else "/inference.GRPCInferenceService/" + case["rpc"]
            call = channel.unary_unary(path, request_serializer=None, response_deserializer=None)
            out["reply"] = base64.b64encode(call(base64.b64decode(case["request_b64"]), **extra)).decode()
        else:
            request = json_format.ParseDict(case.get("request", {}), getattr(pb, case["rpc"] + "Request")())
            reply = getattr(stub, case["rpc"])(request, **extra)
            out["reply"] = json_format.MessageToDict(reply, preserving_proto_field_name=True)
        out["code"] = "OK"
    except grpc.RpcError as e:
        out["code"], out["message"] = e.code().name, e.details()
    return out


def replay(address):
    with open(os.path.join(HERE, "grpc_cases.jsonl"), encoding="utf-8") as f:
        cases = [json.loads(line) for line in f]
    differ = 0
    with grpc.insecure_channel(address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        for case in cases:
            got = normal(run_case(channel, stub, case))
            want = normal({k: case[k] for k in ("code", "message", "reply", "replies") if k in case})
            if got != want and case["name"] not in DIFFERENT:
                differ += 1
                print("DIFFERS %s\n  expected %s\n  got      %s" % (case["name"], json.dumps(want)[:700], json.dumps(got)[:700]))
    print("grpc replay: %d cases, %d differ" % (len(cases), differ))
    check(differ == 0, "replay")


# ---------------------------------------------------------------- clients

def test_sync_client(server):
    with client.InferenceServerClient(server.address) as triton:
        check(triton.is_server_live() and triton.is_server_ready() and triton.is_model_ready("one"), "ready")
        check(triton.get_server_metadata().name == "triton", "server metadata")
        check(triton.get_model_metadata("one").inputs[0].datatype == "INT32", "metadata")
        check(triton.get_model_config("one").config.max_batch_size == 8, "config")
        check(any(m.name == "one" and m.state == "READY" for m in triton.get_model_repository_index().models), "index")
        for how in (None, "gzip", "deflate"):
            result = triton.infer("one", tensor([[1, 2, 3]]), request_id="7", compression_algorithm=how)
            check(result.as_numpy("OUT").ravel().tolist() == [1, 2, 3] and result.get_response().id == "7", "infer %s" % how)
        big = np.arange(4_000_000, dtype=np.int32).reshape(1, -1)
        check((triton.infer("one", tensor(big)).as_numpy("OUT").ravel() == big.ravel()).all(), "16 MiB")
        try:
            triton.infer("slow", tensor([2000]), client_timeout=0.2)
            check(False, "deadline")
        except client.InferenceServerException as e:
            check("Deadline" in str(e), e)
        stats = triton.get_inference_statistics("one")
        check(stats.model_stats[0].inference_count >= 4, "statistics")
        results = queue.Queue()
        for i in range(500):
            triton.async_infer("one", tensor([[i]]), lambda result, error, i=i: results.put((i, result, error)))
        for _ in range(500):
            i, result, error = results.get(timeout=30)
            check(error is None and result.as_numpy("OUT").ravel()[0] == i, "async %s" % error)


def test_system_shared_memory(server):
    import tritonclient.utils.shared_memory as shm
    data = np.arange(8, dtype=np.int32)
    name = "/nereid_grpc_%d" % os.getpid()
    region = shm.create_shared_memory_region("r", name, 64)
    try:
        shm.set_shared_memory_region(region, [data])
        with client.InferenceServerClient(server.address) as triton:
            triton.register_system_shared_memory("r", name, 64)
            check(triton.get_system_shared_memory_status().regions["r"].byte_size == 64, "status")
            given = client.InferInput("IN", [1, 8], "INT32")
            given.set_shared_memory("r", 32)
            wanted = client.InferRequestedOutput("OUT")
            wanted.set_shared_memory("r", 32, offset=32)
            triton.infer("one", [given], outputs=[wanted])
            out = shm.get_contents_as_numpy(region, np.int32, [8], offset=32)
            check((out == data).all(), "data in shared memory")
            wanted.set_shared_memory("r", 4, offset=32)
            try:
                triton.infer("one", [given], outputs=[wanted])
                check(False, "output region that is too small")
            except client.InferenceServerException as error:
                check("INVALID_ARGUMENT" in str(error.status()), error)
            triton.unregister_system_shared_memory("r")
    finally:
        shm.destroy_shared_memory_region(region)


def collect(triton, requests, enough, timeout=20):
    """Streams (model, values, id, more) and returns replies as (id, values or error, final)."""
    replies = queue.Queue()
    triton.start_stream(callback=lambda result, error: replies.put((result, error)))
    out = []
    try:
        for model, values, request_id, more in requests:
            triton.async_stream_infer(model, tensor(values), request_id=request_id, **more)
        while len(out) < enough:
            result, error = replies.get(timeout=timeout)
            if error is not None:
                out.append((None, error.message(), None))
                continue
            response = result.get_response()
            values = result.as_numpy("OUT")
            out.append((response.id, None if values is None else values.tolist(),
                        response.parameters["triton_final_response"].bool_param))
    finally:
        triton.stop_stream()
    return out


def test_streams(server):
    with client.InferenceServerClient(server.address) as triton:
        got = collect(triton, [("repeat", [5, 6], "a", {})], 2)
        check(got == [("a", [5], False), ("a", [6], True)], got)
        got = collect(triton, [("repeat_alone", [5, 6], "a", {"enable_empty_final_response": True})], 3)
        check(got == [("a", [5], False), ("a", [6], False), ("a", None, True)], got)
        got = collect(triton, [("repeat_alone", [5], "a", {}), ("one", [[9]], "b", {})], 2)
        check(sorted(got) == [("a", [5], False), ("b", [9], True)], got)
        # Not decoupled: the order of the requests, although the first takes longest.
        got = collect(triton, [("slow", [300], "s", {}), ("one", [[1]], "x", {}), ("one", [[2]], "y", {})], 3)
        check([g[0] for g in got] == ["s", "x", "y"], got)
        got = collect(triton, [("fails_later", [1], "f", {}), ("one", [[1]], "x", {})], 3)
        check((None, "second response failed", None) in got and ("x", [1], True) in got, got)
        many = collect(triton, [("repeat", [i, i + 1], str(i), {}) for i in range(300)], 600)
        for i in range(300):
            check([g[1] for g in many if g[0] == str(i)] == [[i], [i + 1]], "stream %d" % i)


def test_error_mode(server):
    with grpc.insecure_channel(server.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = pb.ModelInferRequest(model_name="fails_later", raw_input_contents=[b"\1\0\0\0"])
        request.inputs.add(name="IN", datatype="INT32", shape=[1])
        replies = []
        try:
            for reply in stub.ModelStreamInfer(iter([request]), metadata=[("triton_grpc_error", "true")], timeout=20):
                replies.append(reply)
            check(False, "the stream must fail")
        except grpc.RpcError as e:
            check(e.code() == grpc.StatusCode.UNAVAILABLE and e.details() == "second response failed", e)
        check(len(replies) == 1, replies)


def test_cancellation(server):
    with grpc.insecure_channel(server.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        request = pb.ModelInferRequest(model_name="stuck", raw_input_contents=[b"\1\0\0\0"])
        request.inputs.add(name="IN", datatype="INT32", shape=[1])
        begin = time.time()
        calls = [stub.ModelInfer.future(request) for _ in range(20)]
        server.wait_for_calls(20)
        for call in calls:
            call.cancel()
        streamed = pb.ModelInferRequest()
        streamed.CopyFrom(request)
        streamed.model_name = "stuck_stream"
        pending = queue.Queue()
        stream = stub.ModelStreamInfer(iter(pending.get, None))
        # Requests of a stream are read in order: an answer to a later one shows that both have begun.
        pending.put(streamed)
        pending.put(streamed)
        pending.put(pb.ModelInferRequest(model_name="nope"))
        check("nope" in next(stream).error_message, "an answer beside the stuck ones")
        stream.cancel()
        pending.put(None)

        # Models go when their last request is over: at once, or after a minute when it was not cancelled.
        for model in ("stuck", "stuck_stream"):
            stub.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name=model))

        def ready():
            index = stub.RepositoryIndex(pb.RepositoryIndexRequest()).models
            return [m.name for m in index if m.name.startswith("stuck") and m.state != "UNAVAILABLE"]

        while ready():
            check(time.time() - begin < 50, "cancellation did not reach %s" % ready())
            time.sleep(0.05)


async def aio_main(server):
    async with aio_client.InferenceServerClient(server.address) as triton:
        check(await triton.is_server_live(), "live")
        results = await asyncio.gather(*[triton.infer("one", tensor([[i]])) for i in range(200)])
        check([r.as_numpy("OUT").ravel()[0] for r in results] == list(range(200)), "gather")

        async def requests():
            for i in range(3):
                yield {"model_name": "repeat", "inputs": tensor([i, i + 10]), "request_id": str(i)}

        got = []
        async for result, error in triton.stream_infer(requests()):
            check(error is None, error)
            got.append((result.get_response().id, result.as_numpy("OUT").tolist()[0]))
        check(sorted(got) == [("0", 0), ("0", 10), ("1", 1), ("1", 11), ("2", 2), ("2", 12)], got)


def test_asyncio_client(server):
    asyncio.run(aio_main(server))


def test_health_and_reflection(server):
    with grpc.insecure_channel(server.address) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service="any"))
        check(reply.status == health_pb2.HealthCheckResponse.SERVING, reply)
        database = ProtoReflectionDescriptorDatabase(channel)
        services = set(database.get_services())
        check("inference.GRPCInferenceService" in services and "grpc.health.v1.Health" in services, services)
        pool = descriptor_pool.DescriptorPool(database)
        service = pool.FindServiceByName("inference.GRPCInferenceService")
        method = service.FindMethodByName("ModelMetadata")
        request = message_factory.GetMessageClass(method.input_type)(name="one")
        answer = message_factory.GetMessageClass(method.output_type)
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata", type(request).SerializeToString,
                                   answer.FromString)
        check(call(request).name == "one", "call by reflection")
        check(pool.FindMessageTypeByName("inference.ModelConfig").fields_by_name["max_batch_size"].number == 4, "imports")


def test_rubbish(server):
    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4000,
                 os.urandom(20000)):
        with socket.create_connection(("127.0.0.1", server.port)) as s:
            s.settimeout(5)
            s.sendall(data)
            try:
                while s.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    # Idle connections in numbers.
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(500)]
    with client.InferenceServerClient(server.address) as triton:
        check(triton.infer("one", tensor([[1]])).as_numpy("OUT").ravel()[0] == 1, "still serving")
    for s in idle:
        s.close()


def test_response_compression(build, root):
    server = Server(build, root, "--grpc-infer-response-compression-level=high")
    try:
        with client.InferenceServerClient(server.address) as triton:
            zeros = np.zeros((1, 100000), dtype=np.int32)
            check((triton.infer("one", tensor(zeros)).as_numpy("OUT") == 0).all(), "compressed answer")
    finally:
        check(server.stop() == 0, "exit code")


def test_shutdown(build, root):
    """A running request finishes after SIGTERM, a stuck one gets a status; the server ends with code 0."""
    server = Server(build, root, "--exit-timeout-secs=4")
    with grpc.insecure_channel(server.address) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

        def start(model, value):
            request = pb.ModelInferRequest(model_name=model, raw_input_contents=[np.int32(value).tobytes()])
            request.inputs.add(name="IN", datatype="INT32", shape=[1])
            return stub.ModelInfer.future(request)

        # A stream without requests holds nothing up.
        idle = stub.ModelStreamInfer(iter(queue.Queue().get, None))
        slow, stuck = start("slow", 500), start("stuck", 1)
        server.wait_for_calls(3)
        begin = time.time()
        server.process.send_signal(signal.SIGTERM)
        check(slow.result(timeout=20).raw_output_contents[0] == np.int32(500).tobytes(), "finishes")
        check(stuck.code() == grpc.StatusCode.UNAVAILABLE, "stuck: %s" % stuck.code())
        check(stuck.details() == "Server exiting", "stuck: %s" % stuck.details())
        check(idle.code() == grpc.StatusCode.UNAVAILABLE, "idle stream: %s" % idle.code())
    check(server.stop() == 0, server.tail())
    seconds = time.time() - begin
    check(seconds < 40, "shutdown took %.1f s:\n%s" % (seconds, server.tail()))


def main():
    build = sys.argv[1]
    with tempfile.TemporaryDirectory() as root:
        write_repository(root)
        server = Server(build, root)
        try:
            replay(server.address)
            for test in (test_sync_client, test_system_shared_memory, test_streams, test_error_mode, test_cancellation,
                         test_asyncio_client, test_health_and_reflection, test_rubbish):
                test(server)
                print("grpc: " + test.__name__)
            code = server.stop()
            check(code == 0, "exit code %d" % code)
            test_response_compression(build, root)
            test_shutdown(build, root)
        except BaseException:
            sys.stdout.write(server.tail())
            raise
        finally:
            server.stop()
    print("grpc: all passed")


if __name__ == "__main__":
    main()
