"""Throughput and latency of this server beside a stock Triton 2.51 on the same machine: one repository, one identity
backend loaded in both, perf_analyzer, rounds that alternate between the servers. One connection also beside
`replay_server`, which answers without doing anything: the bound that client, kernel and wake-ups set.

usage: run.py [--build DIR] [--backends DIR] [--protocols http,grpc] [--connections 1,16,64] [--rounds N] [--seconds S]

Installs nvidia-pytriton (which carries the stock server) and tritonclient (which carries perf_analyzer) from PyPI into
build/stock-venv and build/bench-venv; perf_analyzer needs the distribution's libb64. The server under test is
`nereid tritonserver`, or --server."""
import argparse
import csv
import glob
import json
import os
import socket
import statistics
import subprocess
import sys
import sysconfig
import time
import urllib.request

CONFIG = """backend: "identity"
max_batch_size: 0
input { name: "INPUT0" data_type: TYPE_INT32 dims: [ 16 ] }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: [ 16 ] }
instance_group { kind: KIND_CPU count: 2 }
"""


def ensure_venv(folder, *packages):
    """site-packages of a virtual environment that has `packages`."""
    site = os.path.join(folder, "lib", "python%d.%d" % sys.version_info[:2], "site-packages")
    if not os.path.exists(os.path.join(folder, "bench_ready")):
        print("installing", *packages, "into", folder, flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([os.path.join(folder, "bin", "pip"), "install", "-q", "--disable-pip-version-check", *packages],
                       check=True)
        open(os.path.join(folder, "bench_ready"), "w").close()
    return site


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A running server."""

    def __init__(self, name, command, environment, log, max_connections=1000):
        self.name, self.http, self.grpc, metrics = name, free_port(), free_port(), free_port()
        self.max_connections = max_connections
        ports = {"http": self.http, "grpc": self.grpc, "metrics": metrics}
        self.log = open(log, "w")
        self.process = subprocess.Popen([part.format(**ports) for part in command], env=environment, stdout=self.log,
                                        stderr=subprocess.STDOUT)
        for _ in range(600):
            assert self.process.poll() is None, f"{name} ended early, see {log}"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.http}/v2/models/identity/ready", timeout=5)
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{name} does not get ready, see {log}")

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


def pinned(cpus, command):
    return ["taskset", "-c", cpus, *command] if cpus else command


def measure(server, analyzer, protocol, connections, seconds, work):
    """infer/s, p50 and p99 in microseconds, CPU microseconds of the server for each request."""
    table = os.path.join(work, "perf.csv")
    port = server.http if protocol == "http" else server.grpc
    command = [analyzer["binary"], "-m", "identity", "-u", f"127.0.0.1:{port}", "-i", protocol,
               "--concurrency-range", str(connections), "--measurement-interval", str(int(seconds * 1000)),
               "--percentile", "99", "-s", "999", "-r", "3", "-f", table]
    if protocol == "grpc" and connections >= 16:
        command.append("-a")
    command = pinned(analyzer["cpus"], command)
    before = server.cpu_seconds()
    begin = requests(server)
    done = subprocess.run(command, env=analyzer["environment"], capture_output=True, text=True, timeout=300)
    if done.returncode != 0 and not os.path.exists(table):
        raise RuntimeError(done.stdout + done.stderr)
    with open(table) as file:
        row = next(csv.DictReader(file))
    os.remove(table)
    cpu = 1e6 * (server.cpu_seconds() - before) / max(1, requests(server) - begin)
    return {"rate": float(row["Inferences/Second"]), "p50": float(row["p50 latency"]),
            "p99": float(row["p99 latency"]), "cpu": cpu}


def requests(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http}/v2/models/identity/stats") as reply:
        return json.load(reply)["model_stats"][0]["inference_stats"]["success"]["count"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--server", help="command of the server under test; {http}, {grpc}, {metrics}, {repository}, "
                                         "{backends} are filled in")
    parser.add_argument("--backends", metavar="DIR",
                        help="backend folder with another identity backend than ours, such as upstream's")
    parser.add_argument("--stock-venv", default="build/stock-venv")
    parser.add_argument("--clients-venv", default="build/bench-venv")
    parser.add_argument("--server-cpus", help="CPUs that each server may use, like 0,1; all of them by default")
    parser.add_argument("--client-cpus", help="CPUs of perf_analyzer")
    parser.add_argument("--protocols", default="http,grpc")
    parser.add_argument("--connections", default="1,16,64")
    parser.add_argument("--spin", type=int, default=0, metavar="US",
                        help="replay_server looks for a request for so long before it sleeps")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.15,
                        help="a window of perf_analyzer, whose own work grows with the square of a window's requests")
    options = parser.parse_args()

    stock_site = ensure_venv(options.stock_venv, "nvidia-pytriton==0.7.0", "numpy<2")
    client_site = ensure_venv(options.clients_venv, "tritonclient[http,grpc]==2.49.0", "nvidia-cuda-runtime-cu12")
    analyzer = {"cpus": options.client_cpus, "binary": os.path.join(options.clients_venv, "bin", "perf_analyzer"),
                "environment": dict(os.environ, LD_LIBRARY_PATH=os.path.join(client_site, "nvidia/cuda_runtime/lib"))}
    os.chmod(analyzer["binary"], 0o755)

    work = os.path.abspath(os.path.join(options.build, "server_overhead"))
    repository = os.path.join(work, "repository")
    os.makedirs(os.path.join(repository, "identity", "1"), exist_ok=True)
    with open(os.path.join(repository, "identity", "config.pbtxt"), "w") as file:
        file.write(CONFIG)
    backends = os.path.abspath(options.backends or os.path.join(options.build, "bench_backends"))
    for needed in (os.path.join(backends, "identity", "*.so"), os.path.join(options.build, "bin", "replay_server")):
        assert glob.glob(needed), f"{needed} is missing: cmake --build {options.build} --target triton_identity replay_server"

    flags = ["--model-repository=" + repository, "--backend-directory=" + backends, "--http-port={http}"]
    more = ["--grpc-port={grpc}", "--metrics-port={metrics}"]
    ours = [os.path.join(options.build, "bin", "nereid"), "tritonserver", *flags, *more]
    if options.server:
        ours = options.server.replace("{repository}", repository).replace("{backends}", backends).split()
    stock_root = os.path.join(stock_site, "pytriton", "tritonserver")
    libraries = [os.path.join(stock_site, "nvidia_pytriton.libs"), sysconfig.get_config_var("LIBDIR")]
    stock = Server("stock", pinned(options.server_cpus, [os.path.join(stock_root, "bin", "tritonserver"), *flags, *more]),
                   dict(os.environ, LD_LIBRARY_PATH=":".join(libraries)), os.path.join(work, "stock.log"))
    ours = Server("nereid", pinned(options.server_cpus, ours), dict(os.environ), os.path.join(work, "nereid.log"))
    replay = Server("replay", pinned(options.server_cpus, [os.path.join(options.build, "bin", "replay_server"), "{http}",
                                                           str(ours.http), "{grpc}", str(ours.grpc), str(options.spin)]),
                    dict(os.environ), os.path.join(work, "replay.log"), max_connections=1)
    try:
        compare([stock, ours, replay], analyzer, options, work)
    finally:
        for server in (replay, stock, ours):
            server.stop()


def compare(servers, analyzer, options, work):
    head = f"{'infer/s':>9} {'p50 us':>9} {'p99 us':>9} {'CPU us/req':>12}"
    print(f"{'':>14} | {'stock':^42} | {'nereid':^42} | {'nereid to stock':^20} | {'replay: infer/s, p50':^20}")
    print(f"{'connections':>14} | {head} | {head} | {'infer/s':>9} {'p99':>9}")
    for protocol in options.protocols.split(","):
        for connections in map(int, options.connections.split(",")):
            asked = [s for s in servers if connections <= s.max_connections]
            rounds = {server.name: [] for server in asked}
            for number in range(options.rounds):
                for server in (asked if number % 2 == 0 else asked[::-1]):
                    rounds[server.name].append(
                        measure(server, analyzer, protocol, connections, options.seconds, work))
            median = {name: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
                      for name, rows in rounds.items()}
            a, b = median["stock"], median["nereid"]
            cells = [f"{m['rate']:9.0f} {m['p50']:9.0f} {m['p99']:9.0f} {m['cpu']:12.1f}" for m in (a, b)]
            bound = median.get("replay")
            print(f"{protocol + ' ' + str(connections):>14} | {cells[0]} | {cells[1]} | "
                  f"{b['rate'] / a['rate']:8.2f}x {b['p99'] / a['p99']:8.2f}x | "
                  + (f"{bound['rate']:9.0f} {bound['p50']:9.0f}" if bound else ""), flush=True)


if __name__ == "__main__":
    main()
