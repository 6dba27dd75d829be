"""Checks of the metrics page in the backend's CI: Triton's own families, token histograms, and the backend's series, which
must equal the statistics in the log."""
import datetime
import json
import re
import subprocess
import time

from triton_server import PROMPT, tokenize

BOUNDS = (10, 50, 100, 500, 1000)
MODELS = ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing")
# The pre- and postprocessing models count the reading of their tensors as computing, and the latter hands its one text over
# in less than a microsecond on a good day.
DURATIONS = {"request": MODELS, "queue": MODELS, "compute_input": ("ensemble", "tensorrt_llm"), "compute_infer": MODELS,
             "compute_output": ("ensemble", "preprocessing", "tensorrt_llm")}
# Statistics key -> label of its series.
COMMON = {
    "Active Request Count": ("request_type", "active"), "Max Request Count": ("request_type", "max"),
    "Scheduled Requests": ("request_type", "scheduled"), "Context Requests": ("request_type", "context"),
    "Waiting Requests": ("request_type", "waiting"), "Runtime CPU Memory Usage": ("memory_type", "cpu"),
    "Runtime GPU Memory Usage": ("memory_type", "gpu"), "Runtime Pinned Memory Usage": ("memory_type", "pinned"),
    "Max KV cache blocks": ("kv_cache_block_type", "max"), "Free KV cache blocks": ("kv_cache_block_type", "free"),
    "Used KV cache blocks": ("kv_cache_block_type", "used"),
    "Tokens per KV cache block": ("kv_cache_block_type", "tokens_per"),
    "Reused KV cache blocks": ("kv_cache_block_type", "reused"),
    "Fraction used KV cache blocks": ("kv_cache_block_type", "fraction"),
    "KV cache transfer time": ("disaggregated_serving_type", "kv_cache_transfer_ms"),
    "Request count": ("disaggregated_serving_type", "request_count"),
    "Iteration Counter": ("general_type", "iteration_counter"), "Timestamp": ("general_type", "timestamp"),
}
INFLIGHT = {
    "Total Context Tokens": ("inflight_batcher_specific_metric", "total_context_tokens"),
    "Generation Requests": ("inflight_batcher_specific_metric", "generation_requests"),
    "MicroBatch ID": ("inflight_batcher_specific_metric", "micro_batch_id"),
    "Paused Requests": ("inflight_batcher_specific_metric", "paused_requests"),
}
V1 = {
    "Total Context Tokens": ("v1_specific_metric", "total_context_tokens"),
    "Total Generation Tokens": ("v1_specific_metric", "total_generation_tokens"),
    "Empty Generation Slots": ("v1_specific_metric", "empty_generation_slots"),
}


class Histogram:
    """A token histogram ("input" or "output") as it was; `expect` compares what has come since."""

    def __init__(self, server, side):
        self.server, self.side = server, side
        self.before = self.read()

    def read(self):
        family = "nv_llm_%s_token_len" % self.side
        labels = {"model": "tensorrt_llm", "response_metric_type": "total_%s_tokens" % self.side}
        counts = [int(self.server.metric(family + "_bucket", le=str(le), **labels)) for le in (*BOUNDS, "+Inf")]
        return counts + [int(self.server.metric(family + "_count", **labels)),
                         int(float(self.server.metric(family + "_sum", **labels)))]

    def expect(self, lengths):
        """That requests of these token counts were observed, each in its buckets."""
        wanted = [sum(length <= bound for length in lengths) for bound in BOUNDS] + [len(lengths)] * 2 + [sum(lengths)]
        grown = [after - before for before, after in zip(self.before, self.read())]
        assert grown == wanted, (self.side, lengths, grown, wanted)


def base_metrics(server, beams=1):
    """5: the four models of an ensemble count alike, every duration is counted, and each request's tokens."""
    def of(family):
        return [server.total("nv_inference_" + family, model=model) for model in MODELS]

    def counts():
        return {family: of(family) for family in ("request_success", "count", "exec_count", "request_failure")}

    # Requests that the scenario before cancelled may still end.
    before, earlier = counts(), None
    while before != earlier:
        time.sleep(0.5)
        before, earlier = counts(), before
    inputs, outputs = Histogram(server, "input"), Histogram(server, "output")
    lengths = [8, 8, 8, 8, 24, 24, 60, 120]
    requests = len(lengths)
    processes = [subprocess.Popen(
        ["curl", "-sf", "-o", "/dev/null", "-X", "POST", "http://%s/v2/models/ensemble/generate" % server.http, "-d",
         json.dumps({"id": str(i), "text_input": PROMPT, "max_tokens": length, "beam_width": beams, "end_id": -1})])
        for i, length in enumerate(lengths)]
    for process in processes:
        assert process.wait(timeout=120) == 0
    for family in ("request_success", "count"):
        assert [b - a for a, b in zip(before[family], of(family))] == [requests] * 4, (family, of(family))
    assert of("request_failure") == before["request_failure"] and of("pending_request_count") == [0] * 4
    grown = [b - a for a, b in zip(before["exec_count"], of("exec_count"))]
    assert grown[0] == grown[2] == requests, grown
    for family, models in DURATIONS.items():
        sums = {model: server.total("nv_inference_%s_duration_us" % family, model=model) for model in models}
        assert all(value > 0 for value in sums.values()), (family, sums)
    names = {model: sorted(name for name, labels in server.metrics()
                           if name.startswith("nv_inference_") and ("model", model) in labels) for model in MODELS}
    assert all(names[model] == names["ensemble"] for model in MODELS), names
    inputs.expect([tokenize(server, PROMPT)] * requests)
    outputs.expect([length * beams for length in lengths])


def last_statistics(server):
    lines = [line for line in server.log().splitlines() if "Active Request Count" in line]
    assert lines, "no statistics in the log"
    return json.loads(lines[-1][lines[-1].index("{"):lines[-1].rindex("}") + 1].replace('\\"', '"'))


def custom_series(server):
    return {key: value for key, value in server.metrics().items() if key[0].startswith("nv_trt_llm")}


def custom_metrics(server, strategy):
    """10: the last statistics line of the log equals the metrics, series by series."""
    pairs = {**COMMON, **(V1 if strategy == "V1" else INFLIGHT)}
    statistics, series = None, {}
    while statistics != last_statistics(server) or statistics["Active Request Count"] != 0:  # until the server is idle
        statistics = last_statistics(server)
        time.sleep(0.4)
        series = custom_series(server)
    assert set(statistics) == set(pairs) and len(series) == len(pairs), (statistics, series)
    values = {}
    for (_, labels), value in series.items():
        assert {key for key, _ in labels} - {"model", "version"} and ("model", "tensorrt_llm") in labels, labels
        values[next(iter(label for label in labels if label[0] not in ("model", "version")))] = value
    for key, label in pairs.items():
        value = values[label]
        if key == "Fraction used KV cache blocks":
            assert float(value) == float(statistics[key]) == 0, (key, value, statistics[key])
            continue
        assert re.fullmatch(r"\d+", value), (key, value)
        if key == "Timestamp":
            at = datetime.datetime.strptime(statistics[key] + " +0000", "%m-%d-%Y %H:%M:%S.%f %z")
            assert abs(at.timestamp() - int(value) / 1e6) <= 1, (value, statistics[key])
            assert value[-6:] == statistics[key][-6:], (value, statistics[key])
        else:
            assert int(value) == int(statistics[key]), (key, value, statistics[key])
    assert int(values["kv_cache_block_type", "used"]) == 0 and int(values["request_type", "active"]) == 0, values
    assert not any("nv_trt_llm" in name for name, _ in server.metrics() if name.endswith("_bucket"))
