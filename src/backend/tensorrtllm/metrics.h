// Metrics of a model: the nv_trt_llm_* and nv_llm_* families, and those with vLLM's names.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/tensorrtllm/lora_metrics.h"
#include "backend/tensorrtllm/metric_set.h"
#include "backend/tensorrtllm/rank_metrics.h"
#include "backend/tensorrtllm/vllm_metrics.h"
#include "nereid/executor.h"

namespace nereid::backend {

// Thread safe. Without metrics in the server nothing is recorded.
class ModelMetrics {
 public:
  // `is_static`: static batching (V1), which has series of its own. `proposer`: see ExecutorStats.
  ModelMetrics(const std::string& model, int64_t version, bool is_static,
               std::string_view proposer = {});

  // Publishes a newer snapshot of the executor and its steps since the last call. Returns, if asked
  // for, a line of JSON for each step not reported yet, for the log; the last line has the
  // snapshot's values, which the metrics show. One caller at a time.
  std::vector<std::string> publish(const ExecutorStats& stats,
                                   std::span<const IterationStats> steps, bool makes_lines,
                                   std::span<const RankStats> ranks = {},
                                   std::span<const ExpertLoad> experts = {});
  // Counts a request that ended with a result. `num_tokens_sent`: the sum over its responses.
  void finished(const Response& final_response, int64_t num_tokens_sent);
  // Counts an item of a request's batch that ended with a result or sent its next token.
  void item_finished(const Response& final_response, int64_t num_generated, bool is_streamed) {
    vllm_.finished(final_response, num_generated, is_streamed);
  }
  void next_token(double seconds) { vllm_.next_token(seconds); }

  // All gauges and counters of the nv_trt_llm families as one line of JSON, as last published.
  std::string figures() const { return line(values_, timestamp_); }
  // figures() of one step.
  std::string figures(const IterationStats& step) const;

 private:
  enum Index : size_t;

  void publish_drafts(size_t index, const DraftStats& before, const DraftStats& now);
  void set(size_t index, double value);
  std::string line(const std::vector<double>& values, const std::string& timestamp) const;

  bool is_static_;
  MetricSet set_;
  VllmMetrics vllm_;
  LoraMetrics lora_;
  RankMetrics ranks_;
  ExpertMetrics experts_;
  TierMetrics tiers_;
  std::vector<double> values_;  // gauges as last set
  std::string timestamp_;       // "MM-DD-YYYY HH:MM:SS.ffffff", UTC
  ExecutorStats last_;
  IterationStats last_step_;
};

}  // namespace nereid::backend
