"""Rules of RFC 9113 (HTTP/2) and RFC 7541 (HPACK) for frames that a client may or may not send, on the gRPC port of `nereid
serve models/quickstart`. The cases follow the list of h2spec; each is named by its section and written here from the RFCs.

usage: http2_cases.py BUILD_DIR [CASE]"""
import os
import socket
import struct
import sys
import tempfile

import robustness
from robustness_grpc import (ACK, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, SETTINGS, call_headers, frame,
                             header_block)

PRIORITY, RST_STREAM, PUSH_PROMISE, GOAWAY, WINDOW_UPDATE, CONTINUATION = 2, 3, 5, 7, 8, 9
PADDED, WITH_PRIORITY = 0x8, 0x20
NO_ERROR, PROTOCOL, FLOW_CONTROL, STREAM_CLOSED, FRAME_SIZE, REFUSED, COMPRESSION = 0, 1, 3, 5, 6, 7, 9
HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 4, 5
MESSAGE = bytes(5)  # of ServerLive: empty
PATH = "/inference.GRPCInferenceService/ServerLive"
PSEUDO = [(":method", "POST"), (":scheme", "http"), (":path", PATH), (":authority", "x")]
REGULAR = [("content-type", "application/grpc"), ("te", "trailers")]
BLOCK = header_block(*PSEUDO, *REGULAR)
HALF = BLOCK[:20]
ALIVE = bytes.fromhex("00000000020801")


def headers(block=BLOCK, flags=END_HEADERS, stream=1):
    return frame(HEADERS, block, flags, stream)


def request(*pairs, stream=1):
    """Headers of exactly these pairs, and the message."""
    return headers(header_block(*pairs), stream=stream) + frame(DATA, MESSAGE, END_STREAM, stream)


def call(stream=1):
    return request(*PSEUDO, *REGULAR, stream=stream)


def setting(*pairs):
    return frame(SETTINGS, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def number(value):
    return struct.pack(">I", value)


class Client:
    """A connection, with the server's frames as words until it is silent or closes."""

    def __init__(self, port, hello=PREFACE + frame(SETTINGS)):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.data = b""
        self.send(hello)

    def send(self, data):
        try:
            self.socket.sendall(data)
        except OSError:
            pass  # closed for a fault in an earlier piece

    def frame(self):
        """(kind, flags, stream, payload), or None at the end of the connection."""
        while len(self.data) < 9 or len(self.data) < 9 + int.from_bytes(self.data[:3], "big"):
            try:
                piece = self.socket.recv(65536)
            except ConnectionError:
                piece = b""
            if not piece:
                return None
            self.data += piece
        size = int.from_bytes(self.data[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self.data[3:9])
        payload, self.data = self.data[9:9 + size], self.data[9 + size:]
        return kind, flags, stream, payload

    def answer(self, stream):
        """The first end: "answered", ("reset", code), ("goaway", code) or "closed"."""
        while got := self.frame():
            kind, flags, of, payload = got
            if kind == GOAWAY and struct.unpack(">I", payload[4:8])[0] != NO_ERROR:
                return "goaway", struct.unpack(">I", payload[4:8])[0]
            if kind == RST_STREAM and of == stream and struct.unpack(">I", payload)[0] != NO_ERROR:
                return "reset", struct.unpack(">I", payload)[0]
            if kind == DATA and of == stream and payload == ALIVE:
                return "answered"
            if kind == HEADERS and of == stream and flags & END_STREAM:
                return "answered"  # with a status alone
            if kind == PING and flags & ACK:
                return "pinged"
        return "closed"

    def pings(self):
        """Whether the connection still works."""
        self.send(frame(PING, b"abcdefgh"))
        while got := self.frame():
            if got[0] == PING and got[1] & ACK and got[3] == b"abcdefgh":
                return True
        return False

    def close(self):
        self.socket.close()


def fails_connection(*codes):
    """GOAWAY with one of these codes and the end, or at once the end, which the RFC lets a server choose."""
    return lambda outcome, client: (outcome == "closed" or outcome[0] == "goaway" and outcome[1] in codes) and client.frame() is None


def fails_stream(*codes):
    """The stream, or the whole connection, is refused with one of these codes."""
    def holds(outcome, client):
        if outcome == "closed" or outcome[0] == "goaway" and outcome[1] in codes:
            return True
        return outcome[0] == "reset" and outcome[1] in codes and client.pings()
    return holds


def works(outcome, client):
    return outcome == "answered" and client.pings()


CASES = {
    "3.4: another preface": (None, fails_connection(PROTOCOL), b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n" + frame(SETTINGS)),
    "3.4: no SETTINGS behind the preface": (frame(PING, bytes(8)), fails_connection(PROTOCOL), PREFACE),
    "4.1: an unknown type": (frame(0x16, bytes(8)) + call(), works),
    "4.1: unknown flags": (frame(PING, bytes(8), 0x16) + call(), lambda outcome, client: outcome == "pinged"),
    "4.1: the reserved bit": (frame(WINDOW_UPDATE, number(1 << 31 | 1), 0, 1 << 31) + call(), works),
    "4.2: DATA of the greatest size": (headers() + frame(DATA, b"\0\0\0\x3f\xfb" + bytes(16379), END_STREAM, 1),
                                       lambda outcome, client: outcome in ("answered",) and client.pings()),
    "4.2: a larger DATA frame": (headers() + frame(DATA, bytes(16385), END_STREAM, 1), fails_stream(FRAME_SIZE)),
    "4.2: a larger HEADERS frame": (headers(BLOCK + header_block(*[("x", "a" * 100)] * 170)), fails_connection(FRAME_SIZE)),
    "4.3: a broken header block": (headers(b"\x40"), fails_connection(COMPRESSION)),
    "4.3: PRIORITY within a header block": (headers(HALF, 0) + frame(PRIORITY, bytes(5), 0, 1), fails_connection(PROTOCOL)),
    "4.3: HEADERS of another stream within a header block": (headers(HALF, 0) + headers(stream=3), fails_connection(PROTOCOL)),
    "5.1: idle, DATA": (frame(DATA, b"x", END_STREAM, 1), fails_connection(PROTOCOL, STREAM_CLOSED)),
    "5.1: idle, RST_STREAM": (frame(RST_STREAM, number(8), 0, 1), fails_connection(PROTOCOL)),
    "5.1: idle, WINDOW_UPDATE": (frame(WINDOW_UPDATE, number(1), 0, 1), fails_connection(PROTOCOL)),
    "5.1: idle, CONTINUATION": (frame(CONTINUATION, BLOCK, END_HEADERS, 1), fails_connection(PROTOCOL)),
    "5.1: half closed, DATA": (headers(flags=END_HEADERS | END_STREAM) + frame(DATA, b"x", END_STREAM, 1),
                               lambda outcome, client: outcome == "answered" or fails_stream(STREAM_CLOSED)(outcome, client)),
    "5.1: half closed, CONTINUATION": (headers(flags=END_HEADERS | END_STREAM) + frame(CONTINUATION, BLOCK, END_HEADERS, 1),
                                       lambda outcome, client: outcome == "answered" or fails_connection(STREAM_CLOSED, PROTOCOL)(
                                           outcome, client)),
    "5.1: closed by reset, CONTINUATION": (headers() + frame(RST_STREAM, number(8), 0, 1) +
                                           frame(CONTINUATION, BLOCK, END_HEADERS, 1), fails_connection(STREAM_CLOSED, PROTOCOL)),
    "5.1: closed by reset, WINDOW_UPDATE is allowed": (headers() + frame(RST_STREAM, number(8), 0, 1) +
                                                       frame(WINDOW_UPDATE, number(1), 0, 1) + call(3), works, None, 3),
    "5.1.1: an even stream": (headers(stream=2), fails_connection(PROTOCOL), None, 2),
    "5.3.1: HEADERS that depend on themselves": (headers(number(1) + b"\x0f" + BLOCK, END_HEADERS | WITH_PRIORITY) +
                                                 frame(DATA, MESSAGE, END_STREAM, 1),
                                                 lambda outcome, client: works(outcome, client) or fails_stream(PROTOCOL)(outcome, client)),
    "5.4.1: an error closes the connection": (frame(DATA, b"x", 0, 0), fails_connection(PROTOCOL)),
    "5.5: an unknown frame within a header block": (headers(HALF, 0) + frame(0x16, bytes(8), 0, 1), fails_connection(PROTOCOL)),
    "6.1: DATA of stream 0": (frame(DATA, b"x", END_STREAM, 0), fails_connection(PROTOCOL)),
    "6.1: too much padding": (headers() + frame(DATA, b"\x06" + MESSAGE, END_STREAM | PADDED, 1), fails_connection(PROTOCOL)),
    "6.1: padding": (headers() + frame(DATA, b"\x03" + MESSAGE + bytes(3), END_STREAM | PADDED, 1), works),
    "6.2: HEADERS of stream 0": (headers(stream=0), fails_connection(PROTOCOL)),
    "6.2: too much padding": (headers(b"\xff" + BLOCK[:50], END_HEADERS | PADDED), fails_connection(PROTOCOL)),
    "6.3: PRIORITY of stream 0": (frame(PRIORITY, bytes(4) + b"\1", 0, 0), fails_connection(PROTOCOL)),
    "6.3: a short PRIORITY": (frame(PRIORITY, bytes(4), 0, 1) + call(), lambda outcome, client: works(outcome, client) or fails_stream(
        FRAME_SIZE)(outcome, client)),
    "6.4: RST_STREAM of stream 0": (frame(RST_STREAM, number(8), 0, 0), fails_connection(PROTOCOL)),
    "6.4: a short RST_STREAM": (headers() + frame(RST_STREAM, bytes(3), 0, 1), fails_connection(FRAME_SIZE)),
    "6.5: ACK with a payload": (frame(SETTINGS, bytes(6), ACK), fails_connection(FRAME_SIZE)),
    "6.5: SETTINGS of a stream": (frame(SETTINGS, b"", 0, 1), fails_connection(PROTOCOL)),
    "6.5: a length that 6 does not divide": (frame(SETTINGS, bytes(5)), fails_connection(FRAME_SIZE)),
    "6.5.2: ENABLE_PUSH 2": (setting((ENABLE_PUSH, 2)), fails_connection(PROTOCOL)),
    "6.5.2: INITIAL_WINDOW_SIZE 2^31": (setting((INITIAL_WINDOW_SIZE, 1 << 31)), fails_connection(FLOW_CONTROL)),
    "6.5.2: MAX_FRAME_SIZE 2^14 - 1": (setting((MAX_FRAME_SIZE, (1 << 14) - 1)), fails_connection(PROTOCOL)),
    "6.5.2: MAX_FRAME_SIZE 2^24": (setting((MAX_FRAME_SIZE, 1 << 24)), fails_connection(PROTOCOL)),
    "6.5.2: an unknown setting": (setting((0xff, 1)) + call(), works),
    "6.5.3: settings are acknowledged": (setting((INITIAL_WINDOW_SIZE, 100)) + call(), works),
    "6.7: an answer to a PING is not answered": (frame(PING, b"invalidd", ACK) + call(), works),
    "6.7: PING of a stream": (frame(PING, bytes(8), 0, 1), fails_connection(PROTOCOL)),
    "6.7: a short PING": (frame(PING, bytes(6)), fails_connection(FRAME_SIZE)),
    "6.8: GOAWAY of a stream": (frame(GOAWAY, bytes(8), 0, 1), fails_connection(PROTOCOL)),
    "6.9: an increment of 0": (frame(WINDOW_UPDATE, number(0)), fails_connection(PROTOCOL)),
    "6.9: an increment of 0 for a stream": (headers() + frame(WINDOW_UPDATE, number(0), 0, 1), fails_stream(PROTOCOL)),
    "6.9: a short WINDOW_UPDATE": (frame(WINDOW_UPDATE, bytes(3)), fails_connection(FRAME_SIZE)),
    "6.9.1: a window beyond 2^31 - 1": (frame(WINDOW_UPDATE, number(0x7fffffff)) * 2, fails_connection(FLOW_CONTROL)),
    "6.9.1: a stream's window beyond 2^31 - 1": (headers() + frame(WINDOW_UPDATE, number(0x7fffffff), 0, 1) * 2,
                                                 fails_stream(FLOW_CONTROL)),
    "6.9.2: a window made larger later": (setting((INITIAL_WINDOW_SIZE, 0)) + call() + setting((INITIAL_WINDOW_SIZE, 100)), works),
    "6.10: several CONTINUATIONs": (headers(BLOCK[:20], 0) + frame(CONTINUATION, BLOCK[20:40], 0, 1) +
                                    frame(CONTINUATION, BLOCK[40:], END_HEADERS, 1) + frame(DATA, MESSAGE, END_STREAM, 1), works),
    "6.10: DATA within a header block": (headers(HALF, 0) + frame(DATA, b"x", 0, 1), fails_connection(PROTOCOL)),
    "6.10: CONTINUATION of stream 0": (headers(HALF, 0) + frame(CONTINUATION, BLOCK[20:], END_HEADERS, 0), fails_connection(PROTOCOL)),
    "6.10: CONTINUATION behind a whole header block": (headers() + frame(CONTINUATION, BLOCK, END_HEADERS, 1),
                                                       fails_connection(PROTOCOL)),
    "7: an unknown code in GOAWAY": (frame(GOAWAY, bytes(4) + number(0xff)) + frame(PING, b"x" * 8),
                                     lambda outcome, client: outcome in ("pinged", "closed")),
    "7: an unknown code in RST_STREAM": (headers() + frame(RST_STREAM, number(0xff), 0, 1) + call(3), works, None, 3),
    "8.1: trailers that do not end the stream": (headers() + headers(header_block(("x", "y"))), fails_stream(PROTOCOL)),
    "8.2: a header name in capitals": (request(*PSEUDO, *REGULAR, ("X-Test", "a")), fails_stream(PROTOCOL)),
    "8.2.2: connection-specific": (request(*PSEUDO, *REGULAR, ("connection", "keep-alive")), fails_stream(PROTOCOL)),
    "8.2.2: te other than trailers": (request(*PSEUDO, ("content-type", "application/grpc"), ("te", "gzip")), fails_stream(PROTOCOL)),
    "8.3: an unknown pseudo-header": (request(*PSEUDO, (":test", "ok"), *REGULAR), fails_stream(PROTOCOL)),
    "8.3: a pseudo-header of responses": (request(*PSEUDO, (":status", "200"), *REGULAR), fails_stream(PROTOCOL)),
    "8.3: a pseudo-header in trailers": (headers() + frame(DATA, MESSAGE, 0, 1) + headers(
        header_block((":method", "POST")), END_HEADERS | END_STREAM), fails_stream(PROTOCOL)),
    "8.3: a pseudo-header behind others": (request(*PSEUDO[:3], *REGULAR, PSEUDO[3]), fails_stream(PROTOCOL)),
    "8.3.1: an empty :path": (request(*PSEUDO[:2], (":path", ""), *REGULAR), fails_stream(PROTOCOL)),
    **{f"8.3.1: no {name}": (request(*(pair for pair in PSEUDO if pair[0] != name), *REGULAR), fails_stream(PROTOCOL))
       for name in (":method", ":scheme", ":path")},
    **{f"8.3.1: {pair[0]} twice": (request(*PSEUDO, pair, *REGULAR), fails_stream(PROTOCOL)) for pair in PSEUDO[:3]},
    "8.1.1: content-length beyond the data": (request(*PSEUDO, *REGULAR, ("content-length", "6")), fails_stream(PROTOCOL)),
    "8.1.1: content-length below two frames of data": (headers(header_block(*PSEUDO, *REGULAR, ("content-length", "4"))) + frame(
        DATA, MESSAGE[:3], 0, 1) + frame(DATA, MESSAGE[3:], END_STREAM, 1), fails_stream(PROTOCOL)),
    "8.4: PUSH_PROMISE of a client": (headers() + frame(PUSH_PROMISE, number(2) + BLOCK, END_HEADERS, 1), fails_connection(PROTOCOL)),
    "HPACK 2.3.3: an index beyond both tables": (headers(BLOCK + b"\xc6"), fails_connection(COMPRESSION)),
    "HPACK 4.2: a table size at the end": (headers(BLOCK + b"\x20"), fails_connection(COMPRESSION)),
    "HPACK 5.2: padding of 8 bits": (headers(BLOCK + b"\0\x01x\x82\x1f\xff"), fails_connection(COMPRESSION)),
    "HPACK 5.2: padding of zeros": (headers(BLOCK + b"\0\x01x\x81\x18"), fails_connection(COMPRESSION)),
    "HPACK 5.2: EOS within a text": (headers(BLOCK + b"\0\x01x\x84\xff\xff\xff\xff"), fails_connection(COMPRESSION)),
    "HPACK 6.1: index 0": (headers(BLOCK + b"\x80"), fails_connection(COMPRESSION)),
    "HPACK 6.3: a table larger than allowed": (headers(b"\x3f\xe1\xff\xff\x07" + BLOCK), fails_connection(COMPRESSION)),
}


def too_many_streams(port):
    """5.1.2: more streams than the server's limit are refused, the others stay."""
    client = Client(port)
    limit = 0
    while not limit:
        kind, flags, _, payload = client.frame()
        if kind == SETTINGS and not flags & ACK:
            limit = dict(struct.unpack(">HI", payload[i:i + 6]) for i in range(0, len(payload), 6))[3]
    assert 1 <= limit <= 10000, limit
    client.send(b"".join(headers(stream=2 * i + 1) for i in range(limit + 1)))
    outcome = client.answer(2 * limit + 1)
    assert outcome in (("reset", REFUSED), ("reset", PROTOCOL), ("goaway", PROTOCOL)), outcome
    client.close()


def smaller_stream(port):
    """5.1.1: a stream with a smaller number than an earlier one is no request. (nghttp2 keeps no record of streams that have
    ended, so it does not call this a connection error: it ignores the frames.)"""
    client = Client(port)
    client.send(call(5))
    assert client.answer(5) == "answered"
    client.send(call(3) + frame(PING, b"abcdefgh"))
    while (got := client.frame()) and not (got[0] == PING and got[1] & ACK):
        assert got[2] != 3 or got[0] == RST_STREAM, f"stream 3 got {got}"
    client.close()


def small_window(port):
    """6.9.1: with a window of one byte the server sends no more than that at a time."""
    client = Client(port, PREFACE + setting((INITIAL_WINDOW_SIZE, 1)) + call())
    message = b""
    while len(message) < len(ALIVE):
        got = client.frame()
        assert got is not None and got[0] != GOAWAY, got
        if got[0] == DATA:
            assert len(got[3]) == 1, got
            message += got[3]
            client.send(frame(WINDOW_UPDATE, number(1), 0, 1))
    assert message == ALIVE, message
    client.close()


def run_case(port, name, sent, holds, hello=None, stream=1):
    client = Client(port, PREFACE + frame(SETTINGS) if hello is None else hello)
    try:
        client.send(sent or b"")
        outcome = client.answer(stream)
        return "" if holds(outcome, client) else f"{name}: {outcome}"
    except TimeoutError:
        return f"{name}: the server said nothing for 20 s"
    finally:
        client.close()


def main():
    binary = os.path.join(sys.argv[1], "bin", "nereid")
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory() as folder:
        server = robustness.Server(binary, folder)
        try:
            cases = {name: case for name, case in CASES.items() if wanted in name}
            faults = [fault for name, case in cases.items() if (fault := run_case(server.grpc_port, name, *case))]
            assert not faults, "\n".join(faults)
            for check in (too_many_streams, smaller_stream, small_window):
                check(server.grpc_port)
        finally:
            server.process.terminate()
            code = server.process.wait(60)
        assert code == 0, f"the server ended with code {code}"
    print(f"http2_cases: {len(cases) + 3} cases, all passed")


if __name__ == "__main__":
    main()
