// Metrics of the tensorrt_llm model.
#include "backend/tensorrtllm/metrics.h"

#include <chrono>

#include "backend/common/triton.h"
#include "base/clock.h"

namespace nereid::backend {
namespace {

// In the order in which the constructor adds them.
enum Index : size_t {
  kActive,
  kMax,
  kScheduled,
  kContext,
  kWaiting,
  kMemoryCpu,
  kMemoryGpu,
  kMemoryPinned,
  kBlocksMax,
  kBlocksFree,
  kBlocksUsed,
  kBlockTokens,
  kBlocksReused,
  kBlockFraction,
  kContextTokens,
  kGenerationRequests,
  kMicroBatch,
  kPaused,
  kTimestamp,
  kIteration,
  kPromptTokens,
  kGeneratedTokens,
  kOutputLength,
  kInputLength,
  kFirstToken,
  kPerToken,
  kQueueTime,
  kStepTime
};

const std::vector<double> kTokenBuckets = {10, 50, 100, 500, 1000};
const std::vector<double> kSecondsBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                             0.25,  0.5,    1,     2.5,  5,     10,   30};

}  // namespace

ModelMetrics::ModelMetrics(const std::string& model, int64_t version)
    : model_(model), version_(std::to_string(version)) {
  const auto gauges = [&](const char* family, const char* help, const char* label,
                          std::initializer_list<const char*> values) {
    for (const char* v : values) add(TRITONSERVER_METRIC_KIND_GAUGE, family, help, label, v);
  };
  gauges("nv_trt_llm_request_metrics", "TRT LLM request metrics", "request_type",
         {"active", "max", "scheduled", "context", "waiting"});
  gauges("nv_trt_llm_runtime_memory_metrics", "TRT LLM runtime memory metrics", "memory_type",
         {"cpu", "gpu", "pinned"});
  gauges("nv_trt_llm_kv_cache_block_metrics", "TRT LLM KV cache block metrics",
         "kv_cache_block_type", {"max", "free", "used", "tokens_per", "reused", "fraction"});
  gauges("nv_trt_llm_inflight_batcher_metrics", "TRT LLM inflight_batcher-specific metrics",
         "inflight_batcher_specific_metric",
         {"total_context_tokens", "generation_requests", "micro_batch_id", "paused_requests"});
  gauges("nv_trt_llm_general_metrics", "General TRT LLM metrics", "general_type",
         {"timestamp", "iteration_counter"});
  for (const char* kind : {"prompt", "generated"}) {
    add(TRITONSERVER_METRIC_KIND_COUNTER, "nereid_tokens_total", "Tokens computed since start",
        "kind", kind);
  }
  add(TRITONSERVER_METRIC_KIND_HISTOGRAM, "nv_llm_output_token_len", "TRT LLM response metrics",
      "response_metric_type", "total_output_tokens", kTokenBuckets);
  add(TRITONSERVER_METRIC_KIND_HISTOGRAM, "nv_llm_input_token_len", "TRT LLM response metrics",
      "response_metric_type", "total_input_tokens", kTokenBuckets);
  const auto latency = [&](const char* family, const char* help) {
    add(TRITONSERVER_METRIC_KIND_HISTOGRAM, family, help, nullptr, nullptr, kSecondsBuckets);
  };
  latency("nereid_time_to_first_token_seconds", "From arrival to the first token");
  latency("nereid_time_per_output_token_seconds", "Mean time between tokens of a request");
  latency("nereid_queue_seconds", "From arrival to the first step");
  latency("nereid_step_seconds", "Duration of steps, sampled");
}

ModelMetrics::~ModelMetrics() {
  for (auto* metric : metrics_) {
    if (metric != nullptr) TRITONSERVER_ErrorDelete(TRITONSERVER_MetricDelete(metric));
  }
  for (auto* family : families_) TRITONSERVER_ErrorDelete(TRITONSERVER_MetricFamilyDelete(family));
}

size_t ModelMetrics::add(TRITONSERVER_MetricKind kind, const char* family, const char* help,
                         const char* label, const char* value, const std::vector<double>& buckets) {
  metrics_.push_back(nullptr);
  TRITONSERVER_MetricFamily* f = nullptr;
  if (Status s = take(TRITONSERVER_MetricFamilyNew(&f, kind, family, help)); !s.ok()) {
    return metrics_.size() - 1;
  }
  families_.push_back(f);
  std::vector<TRITONSERVER_Parameter*> labels;
  const auto text = [&](const char* name, const char* v) {
    labels.push_back(TRITONSERVER_ParameterNew(name, TRITONSERVER_PARAMETER_STRING, v));
  };
  text("model", model_.c_str());
  text("version", version_.c_str());
  if (label != nullptr) text(label, value);
  TRITONSERVER_MetricArgs* args = nullptr;
  Status status;
  if (!buckets.empty()) {
    status = take(TRITONSERVER_MetricArgsNew(&args));
    if (status.ok()) {
      status = take(TRITONSERVER_MetricArgsSetHistogram(args, buckets.data(), buckets.size()));
    }
  }
  if (status.ok()) {
    status = take(TRITONSERVER_MetricNewWithArgs(
        &metrics_.back(), f, const_cast<const TRITONSERVER_Parameter**>(labels.data()),
        labels.size(), args));
  }
  if (args != nullptr) TRITONSERVER_ErrorDelete(TRITONSERVER_MetricArgsDelete(args));
  for (auto* p : labels) TRITONSERVER_ParameterDelete(p);
  if (!status.ok()) log_warning(fmt::format("metric {}: {}", family, message(status)));
  return metrics_.size() - 1;
}

void ModelMetrics::set(size_t index, double value) {
  if (metrics_[index] == nullptr) return;
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricSet(metrics_[index], value));
}

void ModelMetrics::increment(size_t index, double value) {
  if (metrics_[index] == nullptr || value <= 0) return;
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricIncrement(metrics_[index], value));
}

void ModelMetrics::observe(size_t index, double value) {
  if (metrics_[index] == nullptr) return;
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricObserve(metrics_[index], value));
}

void ModelMetrics::publish(const ExecutorStats& s) {
  const auto of = [](int64_t v) { return static_cast<double>(v); };
  const int64_t used = s.kv_blocks_total - s.kv_blocks_free;
  set(kActive, of(s.num_active + s.num_waiting));
  set(kMax, of(s.max_batch_size));
  set(kScheduled, of(s.num_active));
  set(kContext, s.num_active > 0 ? of(s.last_step_context_requests) : 0);
  set(kWaiting, of(s.num_waiting));
  set(kBlocksMax, of(s.kv_blocks_total));
  set(kBlocksFree, of(s.kv_blocks_free));
  set(kBlocksUsed, of(used));
  set(kBlockTokens, of(s.kv_tokens_per_block));
  set(kBlocksReused, of(s.kv_blocks_reused));
  set(kBlockFraction, s.kv_blocks_total > 0 ? of(used) / of(s.kv_blocks_total) : 0);
  set(kContextTokens, s.num_active > 0 ? of(s.last_step_context_tokens) : 0);
  set(kGenerationRequests, s.num_active > 0 ? of(s.last_step_generation_requests) : 0);
  set(kPaused, of(s.num_preemptions));
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  set(kTimestamp, of(micros.count()));
  set(kIteration, of(s.num_steps));
  increment(kPromptTokens, of(s.prompt_tokens - last_.prompt_tokens));
  increment(kGeneratedTokens, of(s.generated_tokens - last_.generated_tokens));
  if (s.num_steps > last_.num_steps) observe(kStepTime, s.last_step_seconds);
  last_ = s;
}

void ModelMetrics::finished(const Response& r, int64_t num_tokens_sent) {
  const int32_t num_output_tokens = r.outputs[0].num_output_tokens;
  observe(kInputLength, r.num_input_tokens);
  observe(kOutputLength, static_cast<double>(num_tokens_sent));
  const RequestMetrics& m = r.metrics;
  const Time never{};
  if (m.first_scheduled != never) observe(kQueueTime, seconds(m.first_scheduled - m.arrival));
  if (m.first_token == never) return;
  observe(kFirstToken, seconds(m.first_token - m.arrival));
  if (num_output_tokens > 1) {
    observe(kPerToken, seconds(m.last_token - m.first_token) / (num_output_tokens - 1));
  }
}

}  // namespace nereid::backend
