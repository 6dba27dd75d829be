// The nv_inference_* and nv_cache_*_per_model series of a model version. Counting is a relaxed
// atomic add; all else happens when the page is read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/metrics/metrics_config.h"

namespace prometheus {
struct MetricFamily;
}

namespace nereid::server {

class ModelMetrics {
 public:
  enum Counter : size_t {
    kSuccess,
    kRejected,  // failures, in the order of FailureReason
    kCanceled,
    kBackend,
    kOther,
    kInferences,
    kExecutions,
    kRequestUs,  // from here on only with counter_latencies
    kQueueUs,
    kInputUs,
    kInferUs,
    kOutputUs,
    kCacheHits,  // from here on only for models with a response cache
    kCacheHitUs,
    kCacheMisses,
    kCacheMissUs,
    kNumCounters
  };
  enum Summary : size_t {
    kRequestSummary,
    kQueueSummary,
    kInputSummary,
    kInferSummary,
    kOutputSummary,
    kHitSummary,
    kMissSummary,
    kNumSummaries
  };

  struct Spec {
    std::map<std::string, std::string> labels;
    bool is_cached = false, is_decoupled = false;
    std::vector<double> first_response_buckets;  // ms, ascending
  };
  // Versions that overlap while a model is replaced share their series, so counters continue.
  static std::shared_ptr<ModelMetrics> get(const Spec& spec, const MetricsConfig& config);
  ~ModelMetrics();

  void add(Counter counter, uint64_t n) {
    if (counts_) counters_[counter].fetch_add(n, std::memory_order_relaxed);
  }
  void pending(int64_t delta) { pending_.fetch_add(delta, std::memory_order_relaxed); }
  void loaded(double seconds) { load_seconds_.store(seconds, std::memory_order_relaxed); }

  bool has_summaries() const { return summaries_[kQueueSummary] != nullptr; }
  void observe(Summary summary, double microseconds);
  bool has_first_response() const { return first_response_ != nullptr; }
  void first_response(double milliseconds);

 private:
  friend class ModelMetricsPage;
  struct Quantiles;  // hides prometheus-cpp
  struct Buckets;
  ModelMetrics(const Spec& spec, const MetricsConfig& config);

  const std::map<std::string, std::string> labels_;
  const bool counts_, is_cached_;
  std::array<std::atomic<uint64_t>, kNumCounters> counters_{};
  std::atomic<int64_t> pending_{0};
  std::atomic<double> load_seconds_{0};
  std::array<std::unique_ptr<Quantiles>, kNumSummaries> summaries_;  // null: not kept
  std::unique_ptr<Buckets> first_response_;
};

// Appends the families of all models, in the order of the stock server's page.
void collect_model_metrics(std::vector<prometheus::MetricFamily>& page);

}  // namespace nereid::server
