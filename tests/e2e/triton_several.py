"""More than one: two LLM models in one server, and two servers behind a proxy that deals connections in turn."""
import itertools
import os
import re
import socket
import threading

from triton_server import CLIENTS, MODEL, PROMPT, TOOLS, WORK, Server, client, copy_model, repository

SECOND = "tensorrt_llm_2"


def two_models():
    """7: the benchmark deals its requests to both models, which give the same tokens."""
    folder = repository("two_models")
    copy_model(folder, "tensorrt_llm", SECOND)
    with Server(folder) as server:
        answers = set()
        for model in ("tensorrt_llm", SECOND):
            out = client(CLIENTS, "inflight_batcher_llm_client.py", "-u", server.grpc, "--model-name", model,
                         "--tokenizer-dir", MODEL, "--text", PROMPT)
            answers.add(re.search(r"^Output sequence:  \[.+\]$", out, re.M)[0])
        assert len(answers) == 1, answers
        for protocol, address in (("http", server.http), ("grpc", server.grpc)):
            before = [server.total("nv_inference_count", model=model) for model in ("tensorrt_llm", SECOND)]
            out = client(TOOLS, "benchmark_core_model.py", "-i", protocol, "-u", address, "--max-input-len=500",
                         "--tensorrt-llm-model-name", "tensorrt_llm", "--tensorrt-llm-model-name", SECOND, "--num-requests",
                         "20", "token-norm-dist", "--input-mean", "16", "--input-stdev", "2", "--output-mean", "8",
                         "--output-stdev", "1")
            assert re.search(r"Total requests +\| +20\.00 ", out), out
            # Ten requests to warm up and twenty that count, half of them for each model.
            after = [server.total("nv_inference_count", model=model) for model in ("tensorrt_llm", SECOND)]
            assert [b - a for a, b in zip(before, after)] == [15, 15], (before, after)
        for family in ("nv_trt_llm_general_metrics", "nv_llm_input_token_len_count"):
            models = {dict(labels)["model"] for name, labels in server.metrics() if name == family}
            assert models == {"tensorrt_llm", SECOND}, (family, models)


class Proxy:
    """Passes bytes between clients and the servers of a list, which take turns."""

    def __init__(self, addresses):
        self.turns = itertools.cycle(addresses)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            host, port = next(self.turns).split(":")
            far = socket.create_connection((host, int(port)))
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=(source, target), daemon=True).start()

    @staticmethod
    def pump(source, target):
        try:
            while piece := source.recv(65536):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self):
        self.listener.close()


def behind_a_proxy():
    """Two servers on one repository take turns; clients notice nothing, over HTTP and on gRPC streams."""
    folder = repository("proxied", decoupled_mode="true")
    with Server(folder) as first, Server(folder, log_path=os.path.join(WORK, "proxied_2.log")) as second:
        http, grpc = Proxy([first.http, second.http]), Proxy([first.grpc, second.grpc])
        body = {"text_input": PROMPT, "max_tokens": 16, "end_id": -1}
        replies = [first.get("/v2/models/ensemble/generate", body, http.address) for _ in range(6)]
        assert replies[0][0] == 200 and len(set(replies)) == 1, replies
        texts = [client(CLIENTS, "end_to_end_grpc_client.py", "-u", grpc.address, "-S", "-o", "16", "--end-id", "-1", "-p",
                        PROMPT) for _ in range(2)]
        assert texts[0] == texts[1], texts
        for server in (first, second):
            assert server.total("nv_inference_request_success", model="ensemble") == 4
        http.close()
        grpc.close()
