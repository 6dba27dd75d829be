#!/usr/bin/env python3
"""An rpc that answers with its own message: this server's gRPC code beside libgrpc++'s, rounds by turns. Calls per second and
the server's CPU time for each call, medians; each connection has one call under way. The client is h2load.

usage: run.py [--build DIR] [--connections 1,16,64] [--bytes N] [--rounds N] [--calls N]

Needs the target grpc_echo and the distribution's packages libgrpc++-dev and nghttp2-client."""
import argparse
import os
import re
import socket
import statistics
import struct
import subprocess
import tempfile


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, name, binary, *more):
        self.name, self.port = name, free_port()
        self.process = subprocess.Popen([binary, str(self.port), *more], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n", name

    def cpu_seconds(self):
        with open("/proc/%d/stat" % self.process.pid) as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(server, h2load, message, connections, calls):
    """Calls per second, CPU microseconds of the server for each."""
    before = server.cpu_seconds()
    done = subprocess.run(
        [h2load, "-n", str(calls), "-c", str(connections), "-t", "1", "-m", "1", "-d", message,
         "-H", "content-type: application/grpc", "-H", "te: trailers",
         "http://127.0.0.1:%d/bench.Echo/Echo" % server.port], capture_output=True, text=True, check=True).stdout
    cpu = server.cpu_seconds() - before
    echoed = calls * os.path.getsize(message)
    assert "%d succeeded" % calls in done and "(%d) data" % echoed in done, done
    return float(re.search(r"([\d.]+) req/s", done)[1]), 1e6 * cpu / calls


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--connections", default="1,16,64")
    parser.add_argument("--bytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=20000, help="of a round")
    parser.add_argument("--threads", type=int, default=2, help="of our server; the library chooses its own")
    parser.add_argument("--library-flags", default="-lgrpc++ -lgrpc -lgpr -labsl_synchronization", help="of the compiler")
    parser.add_argument("--h2load", default="h2load")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as work:
        library = os.path.join(work, "library_server")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "library_server.cc")
        subprocess.run([os.environ.get("CXX", "c++"), "-O2", "-std=c++17", source, "-o", library, *options.library_flags.split()],
                       check=True)
        message = os.path.join(work, "message")
        with open(message, "wb") as file:
            file.write(struct.pack(">BI", 0, options.bytes) + b"x" * options.bytes)
        servers = [Server("nereid", os.path.join(options.build, "bin", "grpc_echo"), str(options.threads)),
                   Server("grpc++", library)]
        try:
            compare(servers, options.h2load, message, options)
        finally:
            for server in servers:
                server.process.kill()


def compare(servers, h2load, message, options):
    print("%11s | %21s | %21s | %s" % ("connections", *(s.name + ": calls/s, us" for s in servers), "calls, CPU"))
    for connections in map(int, options.connections.split(",")):
        rounds = {server.name: [] for server in servers}
        for number in range(options.rounds):
            for server in servers if number % 2 == 0 else servers[::-1]:
                rounds[server.name].append(measure(server, h2load, message, connections, options.calls))
        rates, cpus = zip(*([statistics.median(column) for column in zip(*rounds[s.name])] for s in servers))
        print("%11d | %12.0f %8.1f | %12.0f %8.1f | %.2fx %.2fx" % (
            connections, rates[0], cpus[0], rates[1], cpus[1], rates[0] / rates[1], cpus[0] / cpus[1]), flush=True)


if __name__ == "__main__":
    main()
