"""Writes nereid.json, the Grafana dashboard, from the table below. usage: make_dashboard.py > nereid.json"""
import json

MODEL = 'model=~"$model"'
NAME = 'model_name=~"$model"'


def rate(counter, selector=MODEL, by=""):
    return f"sum{' by (' + by + ')' if by else ''} (rate({counter}{{{selector}}}[$__rate_interval]))"


def mean_us(counter):
    return f"{rate(counter)} / clamp_min({rate('nv_inference_request_success')}, 1e-9)"


def quantiles(histogram, selector=NAME):
    return [(f"histogram_quantile({q}, sum by (le) (rate({histogram}_bucket{{{selector}}}[$__rate_interval])))", f"p{p}")
            for p, q in ((50, 0.5), (95, 0.95), (99, 0.99))]


# (row, [(title, unit, [(query, legend)])])
ROWS = [
    ("Requests", [
        ("Requests", "reqps", [(rate("nv_inference_request_success", by="model"), "{{model}}")]),
        ("Failures", "reqps", [(rate("nv_inference_request_failure", by="model, reason"), "{{model}} {{reason}}")]),
        ("Pending", "short", [(f"sum by (model) (nv_inference_pending_request_count{{{MODEL}}})", "{{model}}")]),
        ("Mean time by phase", "µs", [
            (mean_us("nv_inference_request_duration_us"), "request"),
            (mean_us("nv_inference_queue_duration_us"), "queue"),
            (mean_us("nv_inference_compute_input_duration_us"), "input"),
            (mean_us("nv_inference_compute_infer_duration_us"), "infer"),
            (mean_us("nv_inference_compute_output_duration_us"), "output")]),
        ("Executions and inferences", "ops", [(rate("nv_inference_exec_count"), "executions"),
                                              (rate("nv_inference_count"), "inferences")]),
        ("HTTP answers", "reqps", [("sum by (code) (rate(nereid_http_responses_total[$__rate_interval]))", "{{code}}")]),
    ]),
    ("Generation", [
        ("Time to first token", "s", quantiles("vllm:time_to_first_token_seconds")),
        ("Between tokens", "s", quantiles("vllm:inter_token_latency_seconds")),
        ("Whole request", "s", quantiles("vllm:e2e_request_latency_seconds")),
        ("Queue", "s", quantiles("vllm:request_queue_time_seconds")),
        ("Tokens", "ops", [(rate("vllm:prompt_tokens_total", NAME), "prompt"),
                           (rate("vllm:generation_tokens_total", NAME), "generated")]),
        ("Ended by", "reqps", [(rate("vllm:request_success_total", NAME, "finished_reason"), "{{finished_reason}}")]),
        ("Lengths (p95)", "short", [quantiles("vllm:request_prompt_tokens")[1], quantiles("vllm:request_generation_tokens")[1]]),
        ("Time for an output token", "s", quantiles("vllm:request_time_per_output_token_seconds")),
    ]),
    ("Engine", [
        ("Requests in the engine", "short", [(f"sum(vllm:num_requests_running{{{NAME}}})", "running"),
                                             (f"sum(vllm:num_requests_waiting{{{NAME}}})", "waiting")]),
        ("KV cache in use", "percentunit", [(f"max(vllm:kv_cache_usage_perc{{{NAME}}})", "used")]),
        ("KV blocks", "short", [(f"sum by (kv_cache_block_type) (nv_trt_llm_kv_cache_block_metrics{{{MODEL}}})",
                                 "{{kv_cache_block_type}}")]),
        ("Prefix cache hits", "percentunit", [
            (f"{rate('vllm:prefix_cache_hits_total', NAME)} / clamp_min({rate('vllm:prefix_cache_queries_total', NAME)}, 1e-9)",
             "hits")]),
        ("Pauses", "ops", [(rate("vllm:num_preemptions_total", NAME), "paused")]),
        ("Step", "s", quantiles("nereid_step_seconds", MODEL)),
        ("Batch", "short", [
            (f"sum by (request_type) (nv_trt_llm_request_metrics{{{MODEL}}})", "{{request_type}}"),
            (f"sum by (inflight_batcher_specific_metric) (nv_trt_llm_inflight_batcher_metrics{{{MODEL}}})",
             "{{inflight_batcher_specific_metric}}")]),
        ("Runtime memory", "bytes", [(f"sum by (memory_type) (nv_trt_llm_runtime_memory_metrics{{{MODEL}}})",
                                      "{{memory_type}}")]),
    ]),
    ("Host", [
        ("CPU", "percentunit", [("nv_cpu_utilization", "host"),
                                ("rate(process_cpu_seconds_total[$__rate_interval])", "server (1 = one core)")]),
        ("Memory", "bytes", [("nv_cpu_memory_used_bytes", "host used"), ("nv_cpu_memory_total_bytes", "host total"),
                             ("process_resident_memory_bytes", "server")]),
        ("Connections", "short", [("nereid_http_connections", "HTTP"), ("nereid_http_requests_active", "HTTP, busy"),
                                  ("nereid_grpc_connections", "gRPC"), ("nereid_grpc_calls_active", "gRPC, busy")]),
        ("GPU", "percentunit", [("nv_gpu_utilization", "{{gpu_uuid}}"),
                                ("nv_gpu_memory_used_bytes / nv_gpu_memory_total_bytes", "{{gpu_uuid}} memory")]),
        ("GPU power", "watt", [("nv_gpu_power_usage", "{{gpu_uuid}}")]),
    ]),
]


def panels():
    out, y = [], 0
    for title, row in ROWS:
        out.append({"type": "row", "title": title, "collapsed": False, "panels": [], "id": len(out) + 1,
                    "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        y += 1
        for i, (name, unit, queries) in enumerate(row):
            out.append({
                "type": "timeseries", "title": name, "id": len(out) + 1, "datasource": {"type": "prometheus", "uid": "${source}"},
                "gridPos": {"h": 7, "w": 6, "x": 6 * (i % 4), "y": y + 7 * (i // 4)},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0, "custom": {"showPoints": "never"}}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
                "targets": [{"refId": chr(65 + n), "expr": expr, "legendFormat": legend}
                            for n, (expr, legend) in enumerate(queries)]})
        y += 7 * ((len(row) + 3) // 4)
    return out


print(json.dumps({
    "title": "nereid", "uid": "nereid", "schemaVersion": 39, "refresh": "10s", "tags": ["nereid", "triton", "llm"],
    "time": {"from": "now-1h", "to": "now"},
    "templating": {"list": [
        {"name": "source", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {"name": "model", "type": "query", "label": "Model", "datasource": {"type": "prometheus", "uid": "${source}"},
         "query": "label_values(nv_inference_request_success, model)", "includeAll": True, "multi": True, "refresh": 2,
         "current": {"text": "All", "value": "$__all"}}]},
    "panels": panels()}, indent=1))
