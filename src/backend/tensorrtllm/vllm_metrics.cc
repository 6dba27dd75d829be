#include "backend/tensorrtllm/vllm_metrics.h"

#include <algorithm>
#include <numeric>

#include "base/clock.h"

namespace nereid::backend {

// Series in the order in which the constructor adds them.
enum VllmMetrics::Index : size_t {
  kRunning,
  kWaiting,
  kCacheUsage,
  kGpuCacheUsage,
  kPreemptions,
  kPromptTokens,
  kGenerationTokens,
  kPrefixQueries,
  kPrefixHits,
  kTests,
  kDrafts,
  kAcceptedDrafts,
  kStopped,
  kLength,
  kAborted,
  kFirstToken,
  kInterToken,
  kPerToken,
  kMeanPerToken,
  kEndToEnd,
  kQueue,
  kInference,
  kPrefill,
  kDecode,
  kRequestPrompt,
  kRequestGeneration
};

namespace {

const std::vector<double> kFirstTokenBuckets = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                                0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                                20,    40,    80,   160,  640,  2560};
const std::vector<double> kTokenTimeBuckets = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
const std::vector<double> kRequestBuckets = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                             30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kCountBuckets = {1,   2,    5,    10,   20,    50,    100,   200,
                                           500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

int64_t num_tests(const ExecutorStats& stats) {
  int64_t sum = 0;
  for (const DraftStats* s : {&stats.request_drafts, &stats.proposer_drafts})
    sum += std::accumulate(s->tests_by_accepted.begin(), s->tests_by_accepted.end(), int64_t{0});
  return sum;
}

}  // namespace

VllmMetrics::VllmMetrics(const std::string& model, int64_t version) {
  const MetricLabels labels = {
      {"engine", "0"}, {"model_name", model}, {"version", std::to_string(version)}};
  const auto gauge = [&](const char* name, const char* help) {
    set_.add(TRITONSERVER_METRIC_KIND_GAUGE, name, help, labels);
  };
  const auto counter = [&](const char* name, const char* help) {
    set_.add(TRITONSERVER_METRIC_KIND_COUNTER, name, help, labels);
  };
  const auto histogram = [&](const char* name, const char* help, const std::vector<double>& b) {
    set_.add(TRITONSERVER_METRIC_KIND_HISTOGRAM, name, help, labels, b);
  };
  gauge("vllm:num_requests_running", "Requests in the running batch");
  gauge("vllm:num_requests_waiting", "Requests that wait to be scheduled");
  gauge("vllm:kv_cache_usage_perc", "Used part of the KV cache, 1 = all");
  gauge("vllm:gpu_cache_usage_perc", "Used part of the KV cache, 1 = all (older name)");
  counter("vllm:num_preemptions_total", "Requests paused to free KV cache");
  counter("vllm:prompt_tokens_total", "Prompt tokens, those found in the prefix cache included");
  counter("vllm:generation_tokens_total", "Generated tokens");
  counter("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache");
  counter("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache");
  counter("vllm:spec_decode_num_drafts_total", "Steps of sequences with draft tokens");
  counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens that were tested");
  counter("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens that were drawn as well");
  for (const char* reason : {"stop", "length", "abort"}) {
    MetricLabels with_reason = labels;
    with_reason.emplace_back("finished_reason", reason);
    set_.add(TRITONSERVER_METRIC_KIND_COUNTER, "vllm:request_success_total",
             "Requests that ended with a result", with_reason);
  }
  histogram("vllm:time_to_first_token_seconds", "From arrival to the first token",
            kFirstTokenBuckets);
  histogram("vllm:inter_token_latency_seconds", "Between tokens of a request", kTokenTimeBuckets);
  histogram("vllm:time_per_output_token_seconds", "Between tokens of a request (older name)",
            kTokenTimeBuckets);
  histogram("vllm:request_time_per_output_token_seconds",
            "Mean time between the tokens of a request", kTokenTimeBuckets);
  histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token", kRequestBuckets);
  histogram("vllm:request_queue_time_seconds", "From arrival to the first step", kRequestBuckets);
  histogram("vllm:request_inference_time_seconds", "From the first step to the last token",
            kRequestBuckets);
  histogram("vllm:request_prefill_time_seconds", "From the first step to the first token",
            kRequestBuckets);
  histogram("vllm:request_decode_time_seconds", "From the first token to the last",
            kRequestBuckets);
  histogram("vllm:request_prompt_tokens", "Prompt tokens of a request", kCountBuckets);
  histogram("vllm:request_generation_tokens", "Generated tokens of a request", kCountBuckets);
}

void VllmMetrics::publish(const ExecutorStats& before, const ExecutorStats& now) {
  const auto of = [](int64_t v) { return static_cast<double>(v); };
  const double usage = now.kv_blocks_total > 0
                           ? of(now.kv_blocks_total - now.kv_blocks_free) / of(now.kv_blocks_total)
                           : 0;
  tokens_per_block_ = now.kv_tokens_per_block;
  set_.set(kRunning, of(now.num_active));
  set_.set(kWaiting, of(now.num_waiting));
  set_.set(kCacheUsage, usage);
  set_.set(kGpuCacheUsage, usage);
  set_.increment(kPreemptions, of(now.num_preemptions - before.num_preemptions));
  set_.increment(kTests, of(num_tests(now) - num_tests(before)));
  set_.increment(kDrafts, of(now.num_drafts - before.num_drafts));
  set_.increment(kAcceptedDrafts, of(now.num_accepted_drafts - before.num_accepted_drafts));
  set_.increment(kGenerationTokens, of(now.generated_tokens - before.generated_tokens));
}

void VllmMetrics::next_token(double seconds) {
  set_.observe(kInterToken, seconds);
  set_.observe(kPerToken, seconds);
}

void VllmMetrics::finished(const Response& r, int64_t num_generated, bool is_streamed) {
  const SequenceOutput& output = r.outputs[0];
  switch (output.finish_reason) {
    case FinishReason::kEndId:
    case FinishReason::kStopWords:
      set_.increment(kStopped, 1);
      break;
    case FinishReason::kLength:
      set_.increment(kLength, 1);
      break;
    default:
      set_.increment(kAborted, 1);
  }
  set_.observe(kRequestPrompt, r.num_input_tokens);
  set_.observe(kRequestGeneration, static_cast<double>(num_generated));
  const RequestMetrics& m = r.metrics;
  // Hits are at most the prompt without its last token, which is always computed; the last block
  // found may fit only in part.
  const int64_t hits = std::min<int64_t>(m.reused_blocks * tokens_per_block_.load(),
                                         std::max(r.num_input_tokens - 1, 0));
  set_.increment(kPromptTokens, r.num_input_tokens);
  set_.increment(kPrefixQueries, r.num_input_tokens);
  set_.increment(kPrefixHits, static_cast<double>(hits));
  const Time never{};
  if (m.first_scheduled == never) return;
  set_.observe(kQueue, seconds(m.first_scheduled - m.arrival));
  if (m.first_token == never) return;
  set_.observe(kFirstToken, seconds(m.first_token - m.arrival));
  set_.observe(kEndToEnd, seconds(m.last_token - m.arrival));
  set_.observe(kInference, seconds(m.last_token - m.first_scheduled));
  set_.observe(kPrefill, seconds(m.first_token - m.first_scheduled));
  set_.observe(kDecode, seconds(m.last_token - m.first_token));
  if (output.num_output_tokens < 2) return;
  const double mean = seconds(m.last_token - m.first_token) / (output.num_output_tokens - 1);
  set_.observe(kMeanPerToken, mean);
  if (is_streamed) return;
  // Tokens of a request that did not stream have no times: each counts with the mean, so rates
  // and sums are right.
  for (int32_t i = 1; i < output.num_output_tokens; ++i) next_token(mean);
}

}  // namespace nereid::backend
