"""Sends one recorded or generated case over HTTP or gRPC and returns the answer as plain values."""
import base64
import json
import socket
import threading
import time

import grpc
from google.protobuf import json_format
from tritonclient.grpc import service_pb2, service_pb2_grpc

KEPT_HEADERS = ("content-type", "transfer-encoding", "content-encoding", "accept-encoding", "allow",
                "inference-header-content-length", "endpoint-load-metrics")


class Reader:
    """An HTTP answer, read from a socket piece by piece."""

    def __init__(self, connection):
        self.connection = connection
        self.data = b""

    def more(self):
        piece = self.connection.recv(1 << 16)
        if not piece:
            raise EOFError
        self.data += piece

    def take(self, size):
        while len(self.data) < size:
            self.more()
        piece, self.data = self.data[:size], self.data[size:]
        return piece

    def until(self, mark):
        while mark not in self.data:
            self.more()
        piece, self.data = self.data.split(mark, 1)
        return piece

    def rest(self):
        try:
            while True:
                self.more()
        except (EOFError, ConnectionError, socket.timeout):
            return self.data

    def answer(self, is_head):
        head = self.until(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100"):
            head = self.until(b"\r\n\r\n")
        first, *lines = head.decode("latin1").split("\r\n")
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        chunks = None
        if is_head or first.split()[1] == "204":
            body = b""
        elif "chunked" in headers.get("transfer-encoding", ""):
            chunks = []
            while size := int(self.until(b"\r\n").split(b";")[0], 16):
                chunks.append(self.take(size + 2)[:-2])
            body = b"".join(chunks)
        elif "content-length" in headers:
            body = self.take(int(headers["content-length"]))
        else:
            body = self.rest()
        return int(first.split()[1]), headers, body, chunks


def http_bytes(case):
    """The request of a case as bytes."""
    if "raw" in case:
        return case["raw"].encode("latin1")
    lines = ["%s %s HTTP/1.1" % (case["method"], case["path"]), "Host: localhost"]
    lines += ["%s: %s" % item for item in case.get("headers", {}).items()]
    if "chunked_body" in case:
        lines.append("Transfer-Encoding: chunked")
        pieces = [piece.encode() for piece in case["chunked_body"]]
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        body = base64.b64decode(case["body_b64"]) if "body_b64" in case else case.get("body", "").encode()
        given = any(name.lower() == "content-length" for name in case.get("headers", {}))
        if not given and (body or case["method"] == "POST"):
            lines.append("Content-Length: %d" % len(body))
    return "\r\n".join(lines).encode("latin1") + b"\r\n\r\n" + body


class Http:
    """One connection for each request, as the recorded answers were made."""

    def __init__(self, port):
        self.port = port

    def __call__(self, case):
        with socket.create_connection(("127.0.0.1", self.port), timeout=case.get("timeout_s", 15)) as connection:
            try:
                connection.sendall(http_bytes(case))
                if "close_after_ms" in case:
                    time.sleep(case["close_after_ms"] / 1000)
                    return {"status": None}
                status, headers, body, chunks = Reader(connection).answer(case["method"] == "HEAD")
            except (EOFError, ConnectionError):
                return {"status": 0}
            except socket.timeout:
                return {"status": -1}
        out = {"status": status, "response_headers": {k: headers[k] for k in KEPT_HEADERS if k in headers}}
        if chunks is not None:
            out["chunks"] = len(chunks)
        out["response_b64"] = base64.b64encode(body).decode()
        return out


class Grpc:
    """All rpcs of the inference service; requests in protobuf's JSON form or as raw bytes."""

    def __init__(self, port):
        size = [("grpc.max_send_message_length", 2**31 - 1), ("grpc.max_receive_message_length", 2**31 - 1)]
        self.channel = grpc.insecure_channel("127.0.0.1:%d" % port, options=size)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def close(self):
        self.channel.close()

    @staticmethod
    def plain(message):
        return json_format.MessageToDict(message, preserving_proto_field_name=True)

    def __call__(self, case):
        options = {"timeout": case.get("timeout_s", 15), "metadata": [tuple(m) for m in case.get("metadata", [])]}
        if "compression" in case:
            options["compression"] = getattr(grpc.Compression, case["compression"])
        if case["rpc"] == "ModelStreamInfer":
            return self.stream(case, options)
        if "request_b64" in case:
            call = self.channel.unary_unary(case["rpc"], request_serializer=bytes, response_deserializer=bytes)
            request = base64.b64decode(case["request_b64"])
        else:
            call = getattr(self.stub, case["rpc"])
            request = json_format.ParseDict(case.get("request", {}), getattr(service_pb2, case["rpc"] + "Request")())
        future = call.future(request, **options)
        if "cancel_after_ms" in case:
            time.sleep(case["cancel_after_ms"] / 1000)
            future.cancel()
        code = future.code().name
        if code != "OK":
            return {"code": code, "message": future.details()}
        reply = future.result()
        return {"code": code, "reply": base64.b64encode(reply).decode() if isinstance(reply, bytes) else self.plain(reply)}

    def stream(self, case, options):
        def feed():
            for request in case["requests"]:
                if "wait_ms" in request:
                    time.sleep(request["wait_ms"] / 1000)
                else:
                    yield json_format.ParseDict(request, service_pb2.ModelInferRequest())
        call = self.stub.ModelStreamInfer(feed(), **options)
        if "cancel_after_ms" in case:
            threading.Timer(case["cancel_after_ms"] / 1000, call.cancel).start()
        out = {"replies": []}
        try:
            for reply in call:
                out["replies"].append(self.plain(reply))
        except grpc.RpcError:
            pass
        out["code"] = call.code().name
        if out["code"] != "OK":
            out["message"] = call.details()
        return out


def run_case(send, case):
    """The answer to a case, and those to the cases that run beside it (`with`)."""
    beside = case.get("with", [])
    answers = [None] * len(beside)

    def one(i):
        time.sleep(beside[i].get("at_ms", 0) / 1000)
        answers[i] = send(beside[i])

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(beside))]
    for thread in threads:
        thread.start()
    time.sleep(case.get("at_ms", 0) / 1000)
    answer = send(case)
    for thread in threads:
        thread.join()
    time.sleep(case.get("then_wait_ms", 0) / 1000)
    return answer, answers


def load_cases(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]
