
// The live view: the server's metrics every two seconds, while the view is open.

const kEverySeconds = 2, kKeptSeconds = 300, kLatencySeconds = 60;

const batcher = (name) => ["nv_trt_llm_inflight_batcher_metrics", { inflight_batcher_specific_metric: name }];
const gauge = (label, name, wanted) => ({ label, of: (_, now) => now.sum(name, wanted) });
const counter = (label, name, wanted) => ({ label, of: (before, now) => rate(before, now, name, wanted) });
const latency = (label, name, q) => ({ label, of: (_, now) => quantile(liveView.sampleOf(now.time - kLatencySeconds), now, name, q) });

// 100 * part / whole of growths; null where the whole does not grow.
const share = (label, part, whole) => ({
  label,
  of(before, now) {
    const all = rate(before, now, ...whole);
    return all ? (100 * (rate(before, now, ...part) ?? 0)) / all : null;
  },
});

function chartsOfServer() {
  const drafts = ["vllm:spec_decode_num_draft_tokens_total"], accepted = ["vllm:spec_decode_num_accepted_tokens_total"];
  return [
    { title: "Tokens a second", series: [counter("generated", "nereid_tokens_total", { kind: "generated" }),
      counter("prompt", "nereid_tokens_total", { kind: "prompt" })] },
    { title: "Sequences", series: [gauge("running", "vllm:num_requests_running"), gauge("waiting", "vllm:num_requests_waiting"),
      gauge("paused", ...batcher("paused_requests"))] },
    { title: "KV cache, blocks by tier", series: [gauge("device, used", "nereid_kv_blocks", { tier: "device", state: "used" }),
      gauge("device, free", "nereid_kv_blocks", { tier: "device", state: "free" }),
      gauge("host, used", "nereid_kv_blocks", { tier: "host", state: "used" }), gauge("host, free", "nereid_kv_blocks", { tier: "host", state: "free" })] },
    { title: "Prompt tokens found in the prefix cache", unit: "%", most: 100,
      series: [share("found", ["vllm:prefix_cache_hits_total"], ["vllm:prefix_cache_queries_total"])] },
    { title: "Time to first token, last minute", unit: "s", series: [latency("median", "vllm:time_to_first_token_seconds", 0.5),
      latency("95%", "vllm:time_to_first_token_seconds", 0.95), latency("99%", "vllm:time_to_first_token_seconds", 0.99)] },
    { title: "Time between tokens, last minute", unit: "s", series: [latency("median", "vllm:inter_token_latency_seconds", 0.5),
      latency("95%", "vllm:inter_token_latency_seconds", 0.95), latency("99%", "vllm:inter_token_latency_seconds", 0.99)] },
    { title: "Time of a request, last minute", unit: "s", series: [latency("median", "vllm:e2e_request_latency_seconds", 0.5),
      latency("95%", "vllm:e2e_request_latency_seconds", 0.95), latency("99%", "vllm:e2e_request_latency_seconds", 0.99)] },
    { title: "Accepted draft tokens", unit: "%", most: 100, series: [share("accepted", accepted, drafts)] },
    { title: "Memory", unit: "B", series: [gauge("process", "process_resident_memory_bytes"), gauge("held for clients", "nereid_client_bytes"),
      gauge("GPU", "nv_gpu_memory_used_bytes")] },
    { title: "Steps a second", series: [{ label: "steps", of: (before, now) => rate(before, now, "nv_trt_llm_general_metrics", { general_type: "iteration_counter" }) }] },
  ];
}

const liveView = {
  samples: [],
  charts: [],
  ranks: new Map(),  // rank -> Chart
  timer: null,
  abort: null,

  // The newest sample that is not younger than `time`, else the oldest.
  sampleOf(time) {
    return this.samples.findLast((sample) => sample.time <= time) ?? this.samples[0];
  },
  // A chart for each rank that a model runs on.
  rankCharts(sample) {
    for (const { labels } of sample.entries("nereid_rank_steps_total")) {
      if (this.ranks.has(labels.rank)) continue;
      const wanted = { rank: labels.rank }, exchange = "nereid_rank_exchange_seconds_total";
      const chart = new Chart({ title: `Rank ${labels.rank} (${labels.device})`, unit: "", series: [
        counter("steps a second", "nereid_rank_steps_total", wanted),
        { label: "% of time in the exchange", of: (before, now) => { const part = rate(before, now, exchange, wanted); return part === null ? null : 100 * part; } }] });
      this.ranks.set(labels.rank, chart);
      byId("charts").append(chart.node);
    }
  },
  add(sample) {
    sample.model = byId("live-model").value;
    const before = this.samples.at(-1);
    this.samples.push(sample);
    while (this.samples[0].time < sample.time - kKeptSeconds) this.samples.shift();
    this.rankCharts(sample);
    for (const chart of [...this.charts, ...this.ranks.values()]) chart.add(before, sample);
    this.table();
  },
  // The charts anew, of another model.
  replay() {
    const old = this.samples;
    this.samples = [];
    for (const chart of [...this.charts, ...this.ranks.values()]) chart.clear();
    for (const sample of old) this.add(sample);
  },
  table() {
    const rows = [...this.charts, ...this.ranks.values()].filter((chart) => !chart.node.hidden)
      .flatMap((chart) => chart.last().map(([label, value]) => el("tr", {}, el("th", { scope: "row" }, `${chart.title}: ${label}`), el("td", {}, value))));
    byId("figures").replaceChildren(el("tbody", {}, ...rows));
  },
  showModels(sample) {
    const ids = ["", ...sample.models()], shown = [...byId("live-model").options].map((option) => option.value);
    if (ids.join("\n") === shown.join("\n")) return;
    const chosen = byId("live-model").value;
    byId("live-model").replaceChildren(...ids.map((id) => el("option", { value: id }, id || "all")));
    byId("live-model").value = ids.includes(chosen) ? chosen : "";
  },
  async poll() {
    try {
      const response = await request("metrics", { signal: this.abort.signal });
      const sample = new Sample(await response.text(), performance.now() / 1000);
      this.showModels(sample);
      this.add(sample);
      await modelViews.poll(sample.models(), sample.model, this.abort.signal);
      byId("live-state").textContent = "";
    } catch (error) {
      if (error.name === "AbortError") return;
      byId("live-state").textContent = error.message;
      if (error.status === 401) return this.stop();
    }
    if (this.abort) this.timer = setTimeout(() => this.poll(), 1000 * kEverySeconds);
  },
  start() {
    if (this.abort) return;
    if (this.charts.length === 0) {
      this.charts = chartsOfServer().map((options) => new Chart(options));
      byId("charts").append(...this.charts.map((chart) => chart.node));
    }
    this.abort = new AbortController();
    this.poll();
  },
  stop() {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = null;
  },
};
