"""Writes nereid.json, the Grafana dashboard, from the table below. usage: make_dashboard.py > nereid.json"""
import json

SERVER = 'instance=~"$instance"'
MODEL = SERVER + ', model=~"$model"'
ENGINE = SERVER + ', model=~"$engine"'
VLLM = SERVER + ', model_name=~"$engine"'
PERCENT = {"unit": "percentunit", "max": 1}


def grouped(by):
    return f"sum by ({by}) " if by else "sum "


def rate(counter, selector, by=""):
    return f"{grouped(by)}(rate({counter}{{{selector}}}[$__rate_interval]))"


def gauge(name, selector, by=""):
    return f"{grouped(by)}({name}{{{selector}}})"


def ratio(part, whole, selector, by=""):
    """A gap, not a zero, where nothing happened."""
    return f"{rate(part, selector, by)} / ({rate(whole, selector, by)} > 0)"


def mean(histogram, selector):
    return ratio(histogram + "_sum", histogram + "_count", selector)


def quantiles(histogram, selector=VLLM):
    """With the mean, which is exact: below its first bucket a histogram's quantiles are only interpolated."""
    buckets = rate(histogram + "_bucket", selector, "le")
    return [(mean(histogram, selector), "mean")] + [
        (f"histogram_quantile({p / 100}, {buckets})", f"p{p}") for p in (50, 95, 99)]


def lengths(kind):
    name = f"vllm:request_{kind}_tokens"
    return [(mean(name, VLLM), f"{kind}, mean"),
            (f"histogram_quantile(0.95, {rate(name + '_bucket', VLLM, 'le')})", f"{kind}, p95")]


def phase(name):
    return ratio(f"nv_inference_{name}_duration_us", "nv_inference_request_success", MODEL)


def batcher(kind):
    return gauge("nv_trt_llm_inflight_batcher_metrics", f'{ENGINE}, inflight_batcher_specific_metric="{kind}"')


# (row, [(title, unit or field settings, [(query, legend)], description)])
ROWS = [
    ("Requests", [
        ("Requests", "reqps", [(rate("nv_inference_request_success", MODEL, "model"), "{{model}}")],
         "Finished requests; an ensemble counts beside its steps."),
        ("Failures", "reqps", [(rate("nv_inference_request_failure", MODEL, "reason"), "{{reason}}")],
         "Failed requests of the chosen models."),
        ("Pending", "short", [(gauge("nv_inference_pending_request_count", MODEL, "model"), "{{model}}")],
         "Requests that wait for an instance."),
        ("HTTP answers", "reqps", [(rate("nereid_http_responses_total", SERVER, "code"), "{{code}}")],
         "Answers on the HTTP port by class of status code."),
        ("Mean time of a request", "µs", [
            (ratio("nv_inference_request_duration_us", "nv_inference_request_success", MODEL, "model"), "{{model}}")],
         "From arrival to the last response."),
        ("Mean time by phase", "µs", [
            (phase("queue"), "queue"), (phase("compute_input"), "input"), (phase("compute_infer"), "infer"),
            (phase("compute_output"), "output")],
         "Mean over all requests of the chosen models: choose one model to see its own."),
        ("Inferences per execution", "short", [
            (ratio("nv_inference_count", "nv_inference_exec_count", MODEL, "model"), "{{model}}")],
         "The mean batch that a model ran; in-flight batching is under Engine."),
        ("Lost clients", "reqps", [
            (rate("nereid_http_disconnects_total", SERVER), "HTTP, left"),
            (rate("nereid_http_connections_refused_total", SERVER), "HTTP, refused"),
            (rate("nereid_grpc_calls_cancelled_total", SERVER), "gRPC, cancelled"),
            (rate("nereid_grpc_connections_refused_total", SERVER), "gRPC, refused")],
         "Clients that left before their answer was complete, and connections over the limit."),
    ]),
    ("Generation", [
        ("Time to first token", "s", quantiles("vllm:time_to_first_token_seconds"), "From arrival."),
        ("Between tokens", "s", quantiles("vllm:inter_token_latency_seconds"),
         "Quantiles below 10 ms are interpolated; the mean is exact."),
        ("Whole request", "s", quantiles("vllm:e2e_request_latency_seconds"),
         "From arrival to the last token. Quantiles below 0.3 s are interpolated; the mean is exact."),
        ("Queue", "s", [(mean("vllm:request_queue_time_seconds", VLLM), "mean")],
         "From arrival to the first step. The mean only: the histogram's first bucket ends at 0.3 s."),
        ("Tokens", "suffix: tok/s", [(rate("vllm:prompt_tokens_total", VLLM), "prompt"),
                                     (rate("vllm:generation_tokens_total", VLLM), "generated")],
         "Prompt tokens include those found in the prefix cache."),
        ("Ended by", "reqps", [(rate("vllm:request_success_total", VLLM, "finished_reason"), "{{finished_reason}}")],
         "Why requests ended."),
        ("Tokens of a request", "short", lengths("prompt") + lengths("generation"), "Lengths of finished requests."),
        ("Time for an output token", "s", quantiles("vllm:request_time_per_output_token_seconds"),
         "Each request's own mean. Quantiles below 10 ms are interpolated; the mean is exact."),
    ]),
    ("Engine", [
        ("Requests in the engine", "short", [(gauge("vllm:num_requests_running", VLLM), "running"),
                                             (gauge("vllm:num_requests_waiting", VLLM), "waiting")],
         "At the moment of the scrape."),
        ("Requests of the last step", "short", [
            (gauge("nv_trt_llm_request_metrics", ENGINE + ', request_type="context"'), "reading the prompt"),
            (batcher("generation_requests"), "generating"), (batcher("paused_requests"), "paused")],
         "Paused: for want of KV blocks."),
        ("Step", "s", quantiles("nereid_step_seconds", ENGINE), "Duration of steps, sampled."),
        ("Pauses", "ops", [(rate("vllm:num_preemptions_total", VLLM), "paused")], "Requests paused to free KV blocks."),
        ("KV cache in use", PERCENT, [(f"max by (model_name) (vllm:kv_cache_usage_perc{{{VLLM}}})", "{{model_name}}")],
         "The fullest of the chosen servers."),
        ("KV blocks in use", "short", [
            (gauge("nv_trt_llm_kv_cache_block_metrics", ENGINE + ', kv_cache_block_type="used"', "model"),
             "{{model}}")],
         "All chosen servers together."),
        ("Prefix cache hits", PERCENT, [
            (ratio("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total", VLLM), "hits")],
         "Part of the prompt tokens that the prefix cache had."),
        ("Runtime memory", "bytes", [
            (gauge("nv_trt_llm_runtime_memory_metrics", ENGINE, "memory_type"), "{{memory_type}}")],
         "Memory of the engine by kind."),
    ]),
    ("Host", [
        ("Host CPU", PERCENT, [(f"nv_cpu_utilization{{{SERVER}}}", "{{instance}}")],
         "All cores of the host, 100 % = all busy."),
        ("Server CPU", "suffix: cores", [
            (f"rate(process_cpu_seconds_total{{{SERVER}}}[$__rate_interval])", "{{instance}}")],
         "Cores that the server keeps busy."),
        ("Host memory", PERCENT, [
            (f"nv_cpu_memory_used_bytes{{{SERVER}}} / nv_cpu_memory_total_bytes{{{SERVER}}}", "{{instance}}")],
         "Memory in use on the host."),
        ("Server memory", "bytes", [(f"process_resident_memory_bytes{{{SERVER}}}", "{{instance}}")],
         "Resident memory of the server, mapped weights included."),
        ("Connections", "short", [
            (gauge("nereid_http_connections", SERVER), "HTTP"),
            (gauge("nereid_http_requests_active", SERVER), "HTTP, busy"),
            (gauge("nereid_grpc_connections", SERVER), "gRPC"),
            (gauge("nereid_grpc_calls_active", SERVER), "gRPC, busy")],
         "Open connections, and requests being answered."),
        ("GPU", PERCENT, [(f"nv_gpu_utilization{{{SERVER}}}", "{{gpu_uuid}}")], "Empty without a GPU."),
        ("GPU memory", PERCENT, [
            (f"nv_gpu_memory_used_bytes{{{SERVER}}} / nv_gpu_memory_total_bytes{{{SERVER}}}", "{{gpu_uuid}}")],
         "Empty without a GPU."),
        ("GPU power", "watt", [(f"nv_gpu_power_usage{{{SERVER}}}", "{{gpu_uuid}}")], "Empty without a GPU."),
    ]),
]
SOURCE = {"type": "prometheus", "uid": "${source}"}


def panels():
    out, y = [], 0
    for title, row in ROWS:
        out.append({"type": "row", "title": title, "collapsed": False, "panels": [], "id": len(out) + 1,
                    "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        y += 1
        for i, (name, unit, queries, description) in enumerate(row):
            field = unit if isinstance(unit, dict) else {"unit": unit}
            out.append({
                "type": "timeseries", "title": name, "description": description, "id": len(out) + 1,
                "datasource": SOURCE,
                "gridPos": {"h": 7, "w": 6, "x": 6 * (i % 4), "y": y + 7 * (i // 4)},
                "fieldConfig": {"defaults": {**field, "min": 0, "custom": {"showPoints": "auto"}}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
                            "tooltip": {"mode": "multi", "sort": "none"}},
                "targets": [{"refId": chr(65 + n), "datasource": SOURCE, "range": True, "expr": expr,
                             "legendFormat": legend} for n, (expr, legend) in enumerate(queries)]})
        y += 7 * ((len(row) + 3) // 4)
    return out


def variable(name, label, query):
    """A list of label values, all of them chosen at first; models loaded later count as chosen too."""
    return {"name": name, "type": "query", "label": label, "datasource": SOURCE, "query": query, "includeAll": True,
            "allValue": ".+", "multi": True, "refresh": 2, "sort": 1, "current": {"text": ["All"], "value": ["$__all"]}}


print(json.dumps({
    "title": "nereid", "uid": "nereid", "schemaVersion": 39, "refresh": "10s", "tags": ["nereid", "triton", "llm"],
    "time": {"from": "now-1h", "to": "now"},
    "templating": {"list": [
        {"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"},
        variable("instance", "Server", "label_values(nv_inference_request_success, instance)"),
        variable("model", "Model", f"label_values(nv_inference_request_success{{{SERVER}}}, model)"),
        variable("engine", "Engine", f"label_values(vllm:num_requests_running{{{SERVER}}}, model_name)")]},
    "panels": panels()}, indent=1))
