"""Idle and slow clients on the gRPC port, with HTTP/2 written by hand: what a client library would never send."""
import os
import socket
import struct
import time

SLOW = os.environ.get("NEREID_E2E_SLOW") == "1"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
INITIAL_WINDOW_SIZE = 4  # a setting
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind, payload=b"", flags=0, stream=0):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


HELLO = PREFACE + frame(SETTINGS)


def header_block(*pairs):
    """HPACK without tables and without Huffman: every header literal."""
    return b"".join(b"\0" + b"".join(struct.pack("B", len(text)) + text.encode() for text in pair) for pair in pairs)


def call_headers(method, headers=()):
    block = header_block((":method", "POST"), (":scheme", "http"), (":path", "/inference.GRPCInferenceService/" + method),
                         (":authority", "x"), ("content-type", "application/grpc"), ("te", "trailers"), *headers)
    return frame(HEADERS, block, END_HEADERS, 1)


class Connection:
    """A socket that has sent the HTTP/2 preface; frames come out one by one."""

    def __init__(self, port, first=HELLO):
        self.socket = socket.create_connection(("127.0.0.1", port), 60)
        self.data = b""
        if first:
            self.socket.sendall(first)

    def take(self, size):
        while len(self.data) < size:
            piece = self.socket.recv(65536)
            if not piece:
                raise EOFError("the server closed the connection")
            self.data += piece
        piece, self.data = self.data[:size], self.data[size:]
        return piece

    def frame(self):
        """(kind, flags, stream, payload)"""
        size, kind, flags, stream = struct.unpack(">IBBI", b"\0" + self.take(9))
        return kind, flags, stream, self.take(size)

    def until(self, kind, flags=None):
        while True:
            got = self.frame()
            if got[0] == kind and (flags is None or got[1] & flags):
                return got[3]

    def ping(self):
        self.socket.sendall(frame(PING, b"abcdefgh"))
        assert self.until(PING, ACK) == b"abcdefgh"

    def close(self):
        self.socket.close()


def is_live(port):
    """A ServerLive call on a connection of its own."""
    connection = Connection(port, HELLO + call_headers("ServerLive") + frame(DATA, bytes(5), END_STREAM, 1))
    message = connection.until(DATA)
    connection.close()
    return message == b"\0\0\0\0\2\x08\1"


def call(port, method, message):
    """A unary call with a message of any length; returns when it has ended, however it did."""
    send(port, method, struct.pack(">BI", 0, len(message)) + message)


def send(port, method, body, headers=(), limit=60):
    """A call with messages that have their prefixes. Returns how it ended: "answered" (headers that end the stream), "reset" or
    "closed"; TimeoutError after `limit` seconds."""
    connection, end = Connection(port, HELLO + call_headers(method, headers)), time.monotonic() + limit
    windows, initial, at = {0: 65535, 1: 65535}, 65535, 0
    try:
        while True:
            size = min(16384, len(body) - at, *windows.values())
            connection.socket.settimeout(max(end - time.monotonic(), 0.001))
            if size > 0:
                connection.socket.sendall(frame(DATA, body[at:at + size], END_STREAM if at + size == len(body) else 0, 1))
                at += size
                windows = {stream: window - size for stream, window in windows.items()}
                continue
            kind, flags, stream, payload = connection.frame()
            if kind == WINDOW_UPDATE:
                windows[stream] += struct.unpack(">I", payload)[0]
            elif kind == SETTINGS and not flags & ACK:
                for i in range(0, len(payload), 6):
                    number, value = struct.unpack(">HI", payload[i:i + 6])
                    if number == INITIAL_WINDOW_SIZE:
                        windows[1] += value - initial
                        initial = value
                connection.socket.sendall(frame(SETTINGS, b"", ACK))
            elif kind == DATA and payload:
                update = struct.pack(">I", len(payload))
                connection.socket.sendall(frame(WINDOW_UPDATE, update) + frame(WINDOW_UPDATE, update, 0, 1))
            elif kind in (RESET, GOAWAY):
                return "reset"
            elif kind == HEADERS and flags & END_STREAM:
                return "answered"
    except (EOFError, ConnectionError):
        return "closed"
    finally:
        connection.close()


def check_idle(server, count):
    """Connections that have sent their preface and nothing since; some are asked whether they still work."""
    before = server.rss()
    connections = [Connection(server.grpc_port) for _ in range(count)]
    for connection in connections[::10]:
        connection.ping()
    server.wait_for("nereid_grpc_connections", count)
    assert is_live(server.grpc_port)
    for connection in connections[::100]:
        connection.ping()
    used = (server.rss() - before) / count
    print(f"   {count} idle gRPC connections: {used / 1024:.1f} KiB each")
    for connection in connections:
        connection.close()
    assert SLOW or used < 32 * 1024, f"{used} bytes of memory for an idle gRPC connection"


def given_up(connection):
    """Whether the server has closed; what it has to say is read first."""
    connection.socket.setblocking(False)
    try:
        while connection.socket.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def dribble(connection, byte):
    try:
        connection.socket.send(byte)
    except OSError:
        pass


def check_slow(server, count=100):
    """Hellos and headers that come byte by byte are given up; messages that never end delay no other client."""
    # One header whose value has 15,000 bytes, of which some come.
    headers = struct.pack(">I", 15006)[1:] + struct.pack(">BBI", HEADERS, END_HEADERS, 1) + b"\0\1x\x7f\x99\x74"
    message = call_headers("ModelInfer") + frame(DATA, struct.pack(">BI", 0, 100000), 0, 1)
    hellos = [Connection(server.grpc_port, b"") for _ in range(count)]
    waiting = hellos + [Connection(server.grpc_port, HELLO + headers) for _ in range(count)]
    endless = [Connection(server.grpc_port, HELLO + message) for _ in range(count)]
    opened = waiting + endless
    for at in range(1000):  # minutes, for the slowest builds
        for connection in hellos:
            dribble(connection, PREFACE[at:at + 1] if at < len(PREFACE) - 1 else b"")
        for connection in opened[count:]:
            dribble(connection, b"a")
        assert is_live(server.grpc_port)
        time.sleep(0.4)
        waiting = [connection for connection in waiting if not given_up(connection)]
        if not waiting:
            break
    assert not waiting, f"{len(waiting)} slow gRPC clients are still connected"
    for connection in opened:
        connection.close()
