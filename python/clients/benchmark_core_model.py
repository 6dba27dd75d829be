#!/usr/bin/env python3
"""Load on the tensorrt_llm model with prompts of given lengths; prints throughput and latencies."""
import argparse
import csv
import json
import os
import queue
import sys
import threading
import time

import numpy as np

import triton_io
from triton_io import scalar, tensor

WARM_UPS = 10
WARM_UP_OUTPUT = 100
VOCABULARY = 2**31 - 1
HISTOGRAMS = {"example": {"input": [(64, 0.25), (128, 0.5), (256, 0.25)], "output": [(32, 0.25), (64, 0.5), (128, 0.25)]}}


def add_global_flags(parser, is_main):
    """Both before and after the workload's word; after it nothing has a default, so that the first ones stay."""
    def add(*names, **how):
        if not is_main:
            how.update(default=argparse.SUPPRESS, required=False)
        parser.add_argument(*names, **how)

    add("-v", "--verbose", action="store_true")
    add("-u", "--url", default=None, help="localhost:8000 for http, localhost:8001 for grpc")
    add("-i", "--protocol", choices=["http", "grpc"], default="http")
    add("--decoupled", action="store_true", help="the model is decoupled; grpc only")
    add("-t", "--stream-timeout", type=float, default=None)
    add("--tensorrt-llm-model-name", action="append", default=None)
    add("-c", "--concurrency", type=int, default=128)
    add("--max-input-len", type=int, default=2**30, help="longer prompts of a dataset are left out")
    add("--request-rate", "--request_rate", type=float, default=-1, help="per second; -1: all at once")
    add("--time-delay-dist", "--time_delay_dist", choices=["constant", "exponential_dist"], default="exponential_dist")
    add("--dump-perfetto-trace", action="store_true")
    add("--op-stats-csv", default=None)
    add("--exclude-input-in-output", action="store_true")
    add("--num-requests", "--num_requests", type=int, default=30000)
    add("--check-perf-json", default=None)
    add("--check-perf-key", default=None)
    add("--check-perf-atol", type=float, default=50)
    add("--check-perf-rtol", type=float, default=0.05)
    add("--test-llmapi", action="store_true", help="text in, text out: the llmapi model")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add_global_flags(parser, True)
    workloads = parser.add_subparsers(dest="workload", required=True)

    def workload(*names):
        sub = workloads.add_parser(names[0], aliases=names[1:])
        add_global_flags(sub, False)
        return sub.add_argument

    add = workload("dataset")
    add("--dataset", required=True, help="JSON list of objects with input, instruction, output")
    add("--tokenizer-dir", "--tokenizer_dir", required=True)
    add("--tokenizer-type", "--tokenizer_type", default="auto", choices=["auto", "t5", "llama"])
    add("--op-tokens-per-word", "--op_tokens_per_word", type=float, default=1.3)
    add = workload("token-norm-dist", "token_norm_dist")
    for name in ("input-mean", "input-stdev", "output-mean", "output-stdev"):
        add("--" + name, "--" + name.replace("-", "_"), type=int, required=True)
    add = workload("token-from-histogram", "token_from_histogram")
    add("--histogram-key", "--histogram_key", required=True, choices=sorted(HISTOGRAMS))
    flags = parser.parse_args()
    flags.workload = flags.workload.replace("_", "-")
    if flags.decoupled and flags.protocol != "grpc":
        sys.exit("Protocol must be set to 'grpc' when using '--decoupled'.")
    if flags.test_llmapi:
        sys.exit("--test-llmapi: the llmapi model is not served yet; leave it out")
    if flags.num_requests < 1:
        sys.exit("--num-requests: %d is not at least 1" % flags.num_requests)
    flags.url = flags.url or ("localhost:8000" if flags.protocol == "http" else "localhost:8001")
    flags.models = ["tensorrt_llm"] + [n for n in flags.tensorrt_llm_model_name or [] if n != "tensorrt_llm"]
    return flags


def dataset_prompts(flags):
    """(token ids, output length) of each usable row."""
    tokenizer = triton_io.Tokenizer(flags.tokenizer_dir)
    with open(flags.dataset, encoding="utf-8") as file:
        rows = json.load(file)
    prompts, words, tokens = [], 0, 0
    for row in rows[:flags.num_requests]:
        prompt = row["input"] + " " + row["instruction"]
        ids = tokenizer.encode(prompt)
        words += len(prompt.split())
        tokens += len(ids)
        if len(ids) <= flags.max_input_len:
            prompts.append((ids, max(1, int(len(row["output"].split()) * flags.op_tokens_per_word))))
    print("Tokenizer: Tokens per word = ", round(tokens / max(words, 1), 3))
    return prompts


def random_prompts(flags):
    draw = np.random.default_rng(0)

    def normal(mean, deviation):
        return np.maximum(1, np.rint(draw.normal(mean, deviation, flags.num_requests))).astype(int)

    def histogram(bins):
        values, shares = zip(*bins)
        return draw.choice(values, flags.num_requests, p=shares)

    if flags.workload == "token-norm-dist":
        inputs = normal(flags.input_mean, flags.input_stdev)
        outputs = normal(flags.output_mean, flags.output_stdev)
    else:
        inputs = histogram(HISTOGRAMS[flags.histogram_key]["input"])
        outputs = histogram(HISTOGRAMS[flags.histogram_key]["output"])
    inputs = np.minimum(inputs, flags.max_input_len)
    return [(draw.integers(0, VOCABULARY, int(n)).tolist(), int(m)) for n, m in zip(inputs, outputs)]


class Load:
    """Sends requests and collects when each was sent, answered and how long the answer was."""

    def __init__(self, flags):
        self.flags = flags
        if flags.protocol == "grpc":
            import tritonclient.grpc as module
        else:
            import tritonclient.http as module
        self.module = module
        self.client = None if flags.protocol == "http" else self.connect()
        self.replies = queue.Queue()

    def connect(self):
        return self.module.InferenceServerClient(self.flags.url, verbose=self.flags.verbose)

    def inputs(self, ids, output_len):
        m = self.module
        # Random ids are no text: nothing is to end them early.
        pad_id, end_id = (0, 1) if self.flags.workload != "dataset" else (0, -1)
        return [tensor(m, "input_ids", np.array([ids], dtype=np.int32)),
                scalar(m, "input_lengths", len(ids), np.int32),
                scalar(m, "request_output_len", output_len, np.int32),
                scalar(m, "end_id", end_id, np.int32),
                scalar(m, "pad_id", pad_id, np.int32),
                scalar(m, "exclude_input_in_output", self.flags.exclude_input_in_output, np.bool_)]

    def delay(self):
        if self.flags.request_rate <= 0:
            return 0
        mean = 1 / self.flags.request_rate
        return mean if self.flags.time_delay_dist == "constant" else np.random.exponential(mean)

    def run(self, prompts):
        """[(sent, answered, prompt tokens, output row tokens)] in seconds, one for each prompt."""
        run = self.run_http if self.flags.protocol == "http" else self.run_grpc
        return run(prompts)

    def run_grpc(self, prompts):
        sent, done = {}, {}

        def take(result, error):
            self.replies.put((time.time(), result, error))

        if self.flags.decoupled:
            self.client.start_stream(callback=take, stream_timeout=self.flags.stream_timeout)
        for number, (ids, length) in enumerate(prompts):
            sent[str(number)] = time.time()
            model = self.flags.models[number % len(self.flags.models)]
            send = self.client.async_stream_infer if self.flags.decoupled else self.client.async_infer
            arguments = {} if self.flags.decoupled else {"callback": take}
            send(model, self.inputs(ids, length), request_id=str(number), **arguments)
            time.sleep(self.delay())
        while len(done) < len(prompts):
            at, result, error = self.replies.get()
            if error is not None:
                raise triton_io.ServerError(error)
            response = result.get_response()
            done[response.id] = at, response.outputs[0].shape[2]
        if self.flags.decoupled:
            self.client.stop_stream()
        return [(sent[str(i)], *done[str(i)], len(ids)) for i, (ids, _) in enumerate(prompts)]

    def run_http(self, prompts):
        results = [None] * len(prompts)
        waiting = queue.Queue()

        def work():
            client = self.connect()  # HTTP clients belong to the thread that made them
            while (job := waiting.get()) is not None:
                number, sent, model = job
                try:
                    reply = client.infer(model, self.inputs(*prompts[number]), request_id=str(number))
                    response = reply.get_response()
                    assert response["id"] == str(number), "the answer's id is %s" % response["id"]
                    results[number] = (sent, time.time(), response["outputs"][0]["shape"][2], len(prompts[number][0]))
                except Exception as error:  # the main thread reports it
                    self.replies.put(error)

        threads = [threading.Thread(target=work) for _ in range(min(self.flags.concurrency, len(prompts)))]
        for thread in threads:
            thread.start()
        for number in range(len(prompts)):
            waiting.put((number, time.time(), self.flags.models[number % len(self.flags.models)]))
            time.sleep(self.delay())
        for _ in threads:
            waiting.put(None)
        for thread in threads:
            thread.join()
        if not self.replies.empty():
            raise triton_io.ServerError(self.replies.get())
        return results


def statistics(flags, results):
    sent = np.array([r[0] for r in results])
    answered = np.array([r[1] for r in results])
    prompt = np.array([r[3] for r in results])
    new = np.array([r[2] for r in results]) - (0 if flags.exclude_input_in_output else prompt)
    total = float(answered.max() - sent.min())
    latency = (answered - sent) * 1000
    return {
        "Requests/Sec": len(results) / total,
        "OP tokens/sec": float(new.sum()) / total,
        "Avg. latency (ms)": float(latency.mean()),
        "P99 latency (ms)": float(np.percentile(latency, 99)),
        "P90 latency (ms)": float(np.percentile(latency, 90)),
        "Avg. IP tokens per request": float(prompt.mean()),
        "Avg. OP tokens per request": float(new.mean()),
        "Avg. InFlight requests": float(latency.sum()) / 1000 / total,
        "Total latency (ms)": total * 1000,
        "Total requests": float(len(results)),
    }


def print_table(table):
    rows = [("Stat", "Value")] + [(name, "%.2f" % value) for name, value in table.items()]
    left, right = (max(len(row[i]) for row in rows) for i in (0, 1))
    line = "+%s+%s+" % ("-" * (left + 2), "-" * (right + 2))
    print(line)
    for number, row in enumerate(rows):
        print("| %s | %s |" % (row[0].center(left), row[1].center(right)))
        if number == 0:
            print(line)
    print(line)


def append_csv(path, table):
    renamed = {"Avg. IP tokens per request": "Avg. Input tokens per request",
               "Avg. OP tokens per request": "Avg. Output tokens per request"}
    is_new = not os.path.exists(path)
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow([renamed.get(name, name) for name in table])
        writer.writerow(["%.2f" % value for value in table.values()])


def dump_trace(results):
    events = [{"name": "request %d" % i, "ph": "X", "ts": r[0] * 1e6, "dur": (r[1] - r[0]) * 1e6, "pid": 1, "tid": i}
              for i, r in enumerate(results)]
    with open("prfetto_dump.json", "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events}, file)


def check_performance(flags, latency_ms):
    """Compares the total latency with a recorded one."""
    with open(flags.check_perf_json, encoding="utf-8") as file:
        expected = json.load(file)[flags.check_perf_key]
    allowed = flags.check_perf_atol + flags.check_perf_rtol * expected
    if latency_ms > expected + allowed:
        sys.exit("Total latency %.1f ms is more than %.1f + %.1f ms" % (latency_ms, expected, allowed))


def main():
    flags = parse_arguments()
    load = Load(flags)
    try:
        print("[INFO] Warm up for benchmarking.")
        warm_up = np.random.default_rng(1).integers(0, VOCABULARY, min(8, flags.max_input_len)).tolist()
        load.run([(warm_up, WARM_UP_OUTPUT)] * WARM_UPS)
        print(flags.workload)
        prompts = dataset_prompts(flags) if flags.workload == "dataset" else random_prompts(flags)
        print("[INFO] Start benchmarking on %d prompts." % len(prompts))
        results = load.run(prompts)
    except Exception as error:  # whatever the server, the network or the client library says
        print("Failed receiving responses: %s" % error)
        sys.exit(1)
    table = statistics(flags, results)
    print("[INFO] Total Latency: %.3f ms" % table["Total latency (ms)"])
    if flags.protocol == "grpc":
        print("[INFO] Total request latencies: %.3f ms" % (table["Avg. latency (ms)"] * len(results)))
    print_table(table)
    if flags.op_stats_csv:
        append_csv(flags.op_stats_csv, table)
    if flags.dump_perfetto_trace:
        dump_trace(results)
    if flags.check_perf_json:
        check_performance(flags, table["Total latency (ms)"])


if __name__ == "__main__":
    main()
