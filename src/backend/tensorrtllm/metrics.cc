// Metrics of the tensorrt_llm model.
#include "backend/tensorrtllm/metrics.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/chrono.h>

#include "backend/common/triton.h"
#include "base/clock.h"

namespace nereid::backend {

// In the order in which the constructor adds them.
enum ModelMetrics::Index : size_t {
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
  kGenerationRequests,  // static: generation tokens
  kMicroBatch,          // static: empty generation slots
  kPaused,              // static: none
  kTimestamp,
  kIteration,
  kTransferTime,
  kTransfers,
  kPromptTokens,
  kGeneratedTokens,
  kOutputLength,
  kInputLength,
  kStepTime
};

namespace {

const std::vector<double> kLengthBuckets = {10, 50, 100, 500, 1000};
const std::vector<double> kSecondsBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                             0.25,  0.5,    1,     2.5,  5,     10,   30};

}  // namespace

ModelMetrics::ModelMetrics(const std::string& model, int64_t version, bool is_static)
    : is_static_(is_static), vllm_(model, version) {
  const auto add = [&](TRITONSERVER_MetricKind kind, const char* family, const char* help,
                       const char* label, const char* value,
                       const std::vector<double>& buckets = {}) {
    MetricLabels labels = {{"model", model}, {"version", std::to_string(version)}};
    if (label != nullptr) labels.emplace_back(label, value);
    set_.add(kind, family, help, labels, buckets);
  };
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
  if (is_static) {
    gauges("nv_trt_llm_v1_metrics", "TRT LLM v1-specific metrics", "v1_specific_metric",
           {"total_context_tokens", "total_generation_tokens", "empty_generation_slots"});
    set_.skip();
  } else {
    gauges("nv_trt_llm_inflight_batcher_metrics", "TRT LLM inflight_batcher-specific metrics",
           "inflight_batcher_specific_metric",
           {"total_context_tokens", "generation_requests", "micro_batch_id", "paused_requests"});
  }
  gauges("nv_trt_llm_general_metrics", "General TRT LLM metrics", "general_type",
         {"timestamp", "iteration_counter"});
  for (const char* figure : {"kv_cache_transfer_ms", "request_count"}) {
    add(TRITONSERVER_METRIC_KIND_COUNTER, "nv_trt_llm_disaggregated_serving_metrics",
        "TRT LLM disaggregated serving metrics", "disaggregated_serving_type", figure);
  }
  for (const char* kind : {"prompt", "generated"}) {
    add(TRITONSERVER_METRIC_KIND_COUNTER, "nereid_tokens_total", "Tokens computed since start",
        "kind", kind);
  }
  add(TRITONSERVER_METRIC_KIND_HISTOGRAM, "nv_llm_output_token_len", "TRT LLM response metrics",
      "response_metric_type", "total_output_tokens", kLengthBuckets);
  add(TRITONSERVER_METRIC_KIND_HISTOGRAM, "nv_llm_input_token_len", "TRT LLM response metrics",
      "response_metric_type", "total_input_tokens", kLengthBuckets);
  add(TRITONSERVER_METRIC_KIND_HISTOGRAM, "nereid_step_seconds", "Duration of steps, sampled",
      nullptr, nullptr, kSecondsBuckets);
}

void ModelMetrics::set(size_t index, double value) {
  values_.resize(std::max(values_.size(), index + 1));
  values_[index] = value;
  set_.set(index, value);
}

void ModelMetrics::publish(const ExecutorStats& s, const IterationStats* last_step) {
  const bool is_same = !values_.empty() && s.num_steps == last_.num_steps &&
                       s.num_active == last_.num_active && s.num_waiting == last_.num_waiting &&
                       s.kv_blocks_free == last_.kv_blocks_free;
  if (is_same && last_step == nullptr) return;  // idle: the last figures and their time stay
  const auto of = [](int64_t v) { return static_cast<double>(v); };
  if (last_step != nullptr) last_step_ = *last_step;
  const int64_t used = s.kv_blocks_total - s.kv_blocks_free;
  const bool is_busy = s.num_active > 0;  // the figures of the last step hold while one runs
  set(kActive, of(s.num_active + s.num_waiting));
  set(kMax, of(s.max_batch_size));
  set(kScheduled, of(s.num_active));
  set(kContext, is_busy ? of(s.last_step_context_requests) : 0);
  set(kWaiting, of(s.num_waiting));
  set(kMemoryCpu, of(last_step_.cpu_mem_usage));
  set(kMemoryGpu, of(last_step_.gpu_mem_usage));
  set(kMemoryPinned, of(last_step_.pinned_mem_usage));
  set(kBlocksMax, of(s.kv_blocks_total));
  set(kBlocksFree, of(s.kv_blocks_free));
  set(kBlocksUsed, of(used));
  set(kBlockTokens, of(s.kv_tokens_per_block));
  set(kBlocksReused, of(s.kv_blocks_reused));
  set(kBlockFraction, s.kv_blocks_total > 0 ? of(used) / of(s.kv_blocks_total) : 0);
  set(kContextTokens, is_busy ? of(s.last_step_context_tokens) : 0);
  if (is_static_) {
    set(kGenerationRequests, is_busy ? of(s.last_step_generation_tokens) : 0);
    set(kMicroBatch, of(s.max_batch_size - s.num_active));
  } else {
    set(kGenerationRequests, is_busy ? of(s.last_step_generation_requests) : 0);
    set(kMicroBatch, 0);
    set(kPaused, is_busy ? of(last_step_.num_paused_requests) : 0);
  }
  const auto at = std::chrono::system_clock::now();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch());
  set(kTimestamp, of(micros.count()));
  set(kIteration, of(s.num_steps));
  set_.increment(kPromptTokens, of(s.prompt_tokens - last_.prompt_tokens));
  set_.increment(kGeneratedTokens, of(s.generated_tokens - last_.generated_tokens));
  if (s.num_steps > last_.num_steps) set_.observe(kStepTime, s.last_step_seconds);
  vllm_.publish(last_, s);
  last_ = s;
  timestamp_ = fmt::format("{:%m-%d-%Y %H:%M:%S}.{:06}", fmt::gmtime(micros.count() / 1000000),
                           micros.count() % 1000000);
  if (TRITONSERVER_LogIsEnabled(TRITONSERVER_LOG_VERBOSE)) log_verbose(figures());
}

// So that scripts can compare both.
std::string ModelMetrics::figures() const {
  std::string line = "{";
  const auto number = [&](const char* key, double value) {
    line += fmt::format(
        "{}\"{}\":{}", line.size() > 1 ? "," : "", key,
        std::trunc(value) == value ? fmt::format("{:.0f}", value) : fmt::format("{:.6f}", value));
  };
  number("Active Request Count", values_[kActive]);
  number("Iteration Counter", values_[kIteration]);
  number("Max Request Count", values_[kMax]);
  number("Runtime CPU Memory Usage", values_[kMemoryCpu]);
  number("Runtime GPU Memory Usage", values_[kMemoryGpu]);
  number("Runtime Pinned Memory Usage", values_[kMemoryPinned]);
  line += fmt::format(",\"Timestamp\":\"{}\"", timestamp_);
  number("Context Requests", values_[kContext]);
  if (is_static_) {
    number("Scheduled Requests", values_[kScheduled]);
    number("Total Context Tokens", values_[kContextTokens]);
    number("Total Generation Tokens", values_[kGenerationRequests]);
    number("Empty Generation Slots", values_[kMicroBatch]);
  } else {
    number("Generation Requests", values_[kGenerationRequests]);
    number("MicroBatch ID", values_[kMicroBatch]);
    number("Paused Requests", values_[kPaused]);
    number("Scheduled Requests", values_[kScheduled]);
    number("Total Context Tokens", values_[kContextTokens]);
  }
  number("Waiting Requests", values_[kWaiting]);
  number("Free KV cache blocks", values_[kBlocksFree]);
  number("Max KV cache blocks", values_[kBlocksMax]);
  number("Tokens per KV cache block", values_[kBlockTokens]);
  number("Used KV cache blocks", values_[kBlocksUsed]);
  number("Reused KV cache blocks", values_[kBlocksReused]);
  number("Fraction used KV cache blocks", values_[kBlockFraction]);
  number("KV cache transfer time", 0);
  number("Request count", 0);
  return line + "}";
}

void ModelMetrics::finished(const Response& r, int64_t num_tokens_sent) {
  set_.observe(kInputLength, r.num_input_tokens);
  set_.observe(kOutputLength, static_cast<double>(num_tokens_sent));
}

}  // namespace nereid::backend
