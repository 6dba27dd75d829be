// Metrics of the tensorrt_llm model.
#include "backend/tensorrtllm/metrics.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/chrono.h>

#include "backend/common/triton.h"
#include "base/clock.h"

namespace nereid::backend {

// Series in the order in which the constructor adds them.
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
  kGenerationRequests,  // static batching: generation tokens
  kMicroBatch,          // static batching: empty generation slots
  kPaused,              // static batching: not present
  kTimestamp,
  kIteration,
  kTransferTime,
  kTransfers,
  kPromptTokens,
  kGeneratedTokens,
  kOutputLength,
  kInputLength,
  kStepTime,
  kHealthy,
  kRequestDrafts,  // accepted drafts
  kRequestRejected,
  kRequestLengths,
  kProposerDrafts  // accepted; then rejected and lengths, as above
};

namespace {

const std::vector<double> kLengthBuckets = {10, 50, 100, 500, 1000};
const std::vector<double> kDraftBuckets = {0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24};
const std::vector<double> kSecondsBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                             0.25,  0.5,    1,     2.5,  5,     10,   30};

int64_t microseconds_of(std::chrono::system_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::microseconds>(at.time_since_epoch()).count();
}

// Formats microseconds since the epoch as "MM-DD-YYYY HH:MM:SS.ffffff", UTC.
std::string time_text(int64_t micros) {
  return fmt::format("{:%m-%d-%Y %H:%M:%S}.{:06}", fmt::gmtime(micros / 1000000), micros % 1000000);
}

}  // namespace

ModelMetrics::ModelMetrics(const std::string& model, int64_t version, bool is_static,
                           std::string_view proposer)
    : is_static_(is_static),
      vllm_(model, version),
      lora_(model, version),
      ranks_(model, version),
      experts_(model, version),
      tiers_(model, version) {
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
  add(TRITONSERVER_METRIC_KIND_GAUGE, "nereid_device_healthy",
      "1, and 0 once the device has failed or hangs", nullptr, nullptr);
  for (const std::string_view source : {std::string_view("request"), proposer}) {
    if (source.empty()) continue;
    const MetricLabels labels = {
        {"model", model}, {"version", std::to_string(version)}, {"proposer", std::string(source)}};
    for (const char* result : {"accepted", "rejected"}) {
      MetricLabels with_result = labels;
      with_result.emplace_back("result", result);
      set_.add(TRITONSERVER_METRIC_KIND_COUNTER, "nereid_draft_tokens_total",
               "Draft tokens that were tested, by their source", with_result);
    }
    set_.add(TRITONSERVER_METRIC_KIND_HISTOGRAM, "nereid_accepted_draft_length",
             "Accepted drafts of a sequence in a step, where it had any", labels, kDraftBuckets);
  }
}

void ModelMetrics::set(size_t index, double value) {
  values_.resize(std::max(values_.size(), index + 1));
  values_[index] = value;
  set_.set(index, value);
}

std::vector<std::string> ModelMetrics::publish(const ExecutorStats& s,
                                               std::span<const IterationStats> steps,
                                               bool makes_lines, std::span<const RankStats> ranks,
                                               std::span<const ExpertLoad> experts) {
  lora_.publish(s.adapters);
  ranks_.publish(ranks);
  experts_.publish(experts);
  tiers_.publish(s);
  const bool is_same = !values_.empty() && s.num_steps == last_.num_steps &&
                       s.num_active == last_.num_active && s.num_waiting == last_.num_waiting &&
                       s.kv_blocks_free == last_.kv_blocks_free;
  if (is_same && steps.empty()) return {};  // idle: the last values and their time stay
  std::vector<std::string> lines;
  for (const IterationStats& step : steps) {
    // The snapshot may have been newer than its steps: such a step was already reported.
    const bool is_reported = step.iter <= last_.num_steps || step.iter >= s.num_steps;
    if (makes_lines && !is_reported) lines.push_back(figures(step));
  }
  const auto of = [](int64_t v) { return static_cast<double>(v); };
  if (!steps.empty()) last_step_ = steps.back();
  const int64_t used = s.kv_blocks_total - s.kv_blocks_free;
  const bool is_busy = s.num_active > 0;  // the values of the last step stand while a step runs
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
  const int64_t micros = microseconds_of(std::chrono::system_clock::now());
  set(kTimestamp, of(micros));
  set(kIteration, of(s.num_steps));
  set(kHealthy, s.device_is_healthy ? 1 : 0);
  set_.increment(kPromptTokens, of(s.prompt_tokens - last_.prompt_tokens));
  set_.increment(kGeneratedTokens, of(s.generated_tokens - last_.generated_tokens));
  if (s.num_steps > last_.num_steps) set_.observe(kStepTime, s.last_step_seconds);
  publish_drafts(kRequestDrafts, last_.request_drafts, s.request_drafts);
  if (!s.proposer.empty())
    publish_drafts(kProposerDrafts, last_.proposer_drafts, s.proposer_drafts);
  vllm_.publish(last_, s);
  last_ = s;
  timestamp_ = time_text(micros);
  if (makes_lines) lines.push_back(figures());
  return lines;
}

// Publishes the three series from `index` on: accepted, rejected, lengths.
void ModelMetrics::publish_drafts(size_t index, const DraftStats& before, const DraftStats& now) {
  const int64_t accepted = now.num_accepted - before.num_accepted;
  const int64_t tested = now.num_drafts - before.num_drafts;
  set_.increment(index, static_cast<double>(accepted));
  set_.increment(index + 1, static_cast<double>(tested - accepted));
  for (size_t length = 0; length < now.tests_by_accepted.size(); ++length)
    for (int64_t i = before.tests_by_accepted[length]; i < now.tests_by_accepted[length]; ++i)
      set_.observe(index + 2, static_cast<double>(length));
}

std::string ModelMetrics::figures(const IterationStats& step) const {
  const auto of = [](int64_t v) { return static_cast<double>(v); };
  std::vector<double> v(kIteration + 1);
  v[kActive] = step.num_active_requests + step.num_queued_requests;
  v[kMax] = step.max_num_active_requests;
  v[kScheduled] = step.num_active_requests;
  v[kContext] = step.num_context_requests;
  v[kWaiting] = step.num_queued_requests;
  v[kMemoryCpu] = of(step.cpu_mem_usage);
  v[kMemoryGpu] = of(step.gpu_mem_usage);
  v[kMemoryPinned] = of(step.pinned_mem_usage);
  v[kBlocksMax] = of(step.kv_max_blocks);
  v[kBlocksFree] = of(step.kv_free_blocks);
  v[kBlocksUsed] = of(step.kv_used_blocks);
  v[kBlockTokens] = of(step.kv_tokens_per_block);
  v[kBlocksReused] = of(step.kv_reused_blocks);
  v[kBlockFraction] = step.kv_max_blocks > 0 ? of(step.kv_used_blocks) / of(step.kv_max_blocks) : 0;
  v[kContextTokens] = step.num_ctx_tokens;
  // Static batching: each request samples one token.
  v[kGenerationRequests] = step.num_gen_requests;
  v[kMicroBatch] = is_static_ ? step.max_num_active_requests - step.num_active_requests : 0;
  v[kPaused] = step.num_paused_requests;
  v[kIteration] = of(step.iter);
  return line(v, time_text(microseconds_of(step.timestamp)));
}

// One line of JSON with the metrics' names, so that scripts can compare both.
std::string ModelMetrics::line(const std::vector<double>& values,
                               const std::string& timestamp) const {
  std::string text = "{";
  const auto number = [&](const char* key, double value) {
    text += fmt::format(
        "{}\"{}\":{}", text.size() > 1 ? "," : "", key,
        std::trunc(value) == value ? fmt::format("{:.0f}", value) : fmt::format("{:.6f}", value));
  };
  number("Active Request Count", values[kActive]);
  number("Iteration Counter", values[kIteration]);
  number("Max Request Count", values[kMax]);
  number("Runtime CPU Memory Usage", values[kMemoryCpu]);
  number("Runtime GPU Memory Usage", values[kMemoryGpu]);
  number("Runtime Pinned Memory Usage", values[kMemoryPinned]);
  text += fmt::format(",\"Timestamp\":\"{}\"", timestamp);
  number("Context Requests", values[kContext]);
  if (is_static_) {
    number("Scheduled Requests", values[kScheduled]);
    number("Total Context Tokens", values[kContextTokens]);
    number("Total Generation Tokens", values[kGenerationRequests]);
    number("Empty Generation Slots", values[kMicroBatch]);
  } else {
    number("Generation Requests", values[kGenerationRequests]);
    number("MicroBatch ID", values[kMicroBatch]);
    number("Paused Requests", values[kPaused]);
    number("Scheduled Requests", values[kScheduled]);
    number("Total Context Tokens", values[kContextTokens]);
  }
  number("Waiting Requests", values[kWaiting]);
  number("Free KV cache blocks", values[kBlocksFree]);
  number("Max KV cache blocks", values[kBlocksMax]);
  number("Tokens per KV cache block", values[kBlockTokens]);
  number("Used KV cache blocks", values[kBlocksUsed]);
  number("Reused KV cache blocks", values[kBlocksReused]);
  number("Fraction used KV cache blocks", values[kBlockFraction]);
  number("KV cache transfer time", 0);
  number("Request count", 0);
  return text + "}";
}

void ModelMetrics::finished(const Response& r, int64_t num_tokens_sent) {
  set_.observe(kInputLength, r.num_input_tokens);
  set_.observe(kOutputLength, static_cast<double>(num_tokens_sent));
}

}  // namespace nereid::backend
