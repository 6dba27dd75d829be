"""Loads and unloads a second LLM model, every tenth time with a mistake in its configuration, while the ensemble streams:
streams give the lone text, no request is lost, and memory goes back to where it was.
usage: churn.py BUILD_DIR [--loads N]     --loads: 200 by default; the programs of BUILD_DIR/bin must be on the PATH"""
import argparse
import json
import os
import threading
import time

from triton_server import Server, copy_model, make_repository

SLOW = os.environ.get("NEREID_E2E_SLOW") == "1"
PROMPT = "What is machine learning?"
TOKENS = 24
COPY = "tensorrt_llm_copy"
MISTAKES = (("gpt_model_type", "INVALID", "Invalid gpt_model_type"), ("gpt_model_path", "/no/such/engine", "/no/such/engine"))


def stream_text(server):
    _, text = server.get("/v2/models/ensemble/generate_stream",
                         {"text_input": PROMPT, "max_tokens": TOKENS, "end_id": -1, "stream": True})
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert len(events) == TOKENS and not any("error" in event for event in events), text
    return "".join(event["text_output"] for event in events)


class Streams:
    """Clients that stream one text after the other until they are stopped."""

    def __init__(self, server, count=2):
        self.server, self.text = server, stream_text(server)
        self.done, self.failures, self.ending = 1, [], threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.work) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def work(self):
        try:
            while not self.ending.is_set():
                text = stream_text(self.server)
                assert text == self.text, "%r is not %r" % (text, self.text)
                with self.lock:
                    self.done += 1
        except BaseException as error:  # reported by the main thread
            self.failures.append(error)

    def stop(self):
        self.ending.set()
        for thread in self.threads:
            thread.join()
        if self.failures:
            raise self.failures[0]


def states(server):
    """{version: (state, reason)} of the copy."""
    status, text = server.get("/v2/repository/index", {})
    assert status == 200, text
    return {entry.get("version", ""): (entry.get("state", ""), entry.get("reason", "")) for entry in json.loads(text)
            if entry["name"] == COPY}


def ask_copy(server):
    body = {"inputs": [{"name": name, "datatype": "INT32", "shape": shape, "data": data} for name, shape, data in (
        ("input_ids", [1, 4], [5, 6, 7, 8]), ("input_lengths", [1, 1], [4]), ("request_output_len", [1, 1], [2]))],
        "outputs": [{"name": "output_ids"}, {"name": "sequence_length"}]}
    status, text = server.get("/v2/models/%s/infer" % COPY, body)
    assert status == 200, text
    return json.loads(text)["outputs"][0]["data"]


def load(server, wanted):
    status, text = server.get("/v2/repository/models/%s/load" % COPY, {})
    assert status == 200, text
    ids = ask_copy(server)
    assert wanted in (None, ids), (wanted, ids)
    return ids


def unload(server):
    status, text = server.get("/v2/repository/models/%s/unload" % COPY, {})
    assert status == 200, text
    while states(server) != {"1": ("UNAVAILABLE", "unloaded")}:
        time.sleep(0.01)


def load_badly(server, good, number):
    """Fails by one of two parameters, as a first load or as one over the model that runs, which then goes on."""
    key, value, words = MISTAKES[number % len(MISTAKES)]
    config = json.loads(json.dumps(good))
    config["parameters"][key]["string_value"] = value
    is_over = number % 4 < 2
    if is_over:
        ids = load(server, None)
    status, text = server.get("/v2/repository/models/%s/load" % COPY, {"parameters": {"config": json.dumps(config)}})
    assert status == 400 and words in text, (status, text)
    if is_over:
        assert ask_copy(server) == ids
        unload(server)
    else:
        assert words in states(server)["1"][1], states(server)
        assert server.get("/v2/models/%s/ready" % COPY)[0] == 400


def own_memory_mib(server):
    with open("/proc/%d/status" % server.process.pid, encoding="utf-8") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["RssAnon"].split()[0]) / 1024


def churn(folder, loads=200):
    make_repository(folder, bls=False, decoupled_mode="true")
    copy_model(folder, "tensorrt_llm", COPY, ("decoupled: true", "decoupled: false"))
    with Server(folder, "--model-control-mode=explicit", "--load-model=ensemble") as server:
        streams = Streams(server)
        try:
            ids = load(server, None)
            config = json.loads(server.get("/v2/models/%s/config" % COPY)[1])
            baseline, warm_up = None, loads * 3 // 10
            begin = time.monotonic()
            for number in range(loads):
                if number == warm_up:
                    baseline = own_memory_mib(server)
                unload(server)
                if number % 10 == 9:
                    load_badly(server, config, number // 10)
                load(server, ids)
            unload(server)
            seconds, grown = time.monotonic() - begin, own_memory_mib(server) - baseline
        finally:
            streams.stop()
        for model in ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing"):
            counted = server.total("nv_inference_request_success", model=model)
            assert counted >= streams.done, (model, counted, streams.done)
            assert server.total("nv_inference_request_failure", model=model) == 0, model
        assert server.total("nv_inference_request_success", model="ensemble") == streams.done
    print("churn: %d loads in %.1f s, %d streams beside them, %+.1f MiB" % (loads, seconds, streams.done, grown))
    # malloc's arenas are not all used in the first loads: a model's worth of memory in each settles after some 250.
    assert SLOW or grown < (16 if warm_up >= 300 else 96), "%.1f MiB more than after the warm-up" % grown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--loads", type=int, default=200)
    options = parser.parse_args()
    work = os.path.join(os.path.abspath(options.build), "e2e", "triton")
    os.makedirs(work, exist_ok=True)
    churn(os.path.join(work, "churn"), options.loads)


if __name__ == "__main__":
    main()
