// Counters of one model version, for the statistics extension and the nv_inference_* metrics.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/config/model_config.h"
#include "server/metrics/model_metrics.h"

namespace nereid::server {

enum class FailureReason { kRejected, kCanceled, kBackend, kOther };

// Times of a request on the steady clock, ns, as a backend reports them. For ensembles the last
// four are sums of the steps, for cache hits 0.
struct RequestTimes {
  uint64_t start = 0, exec_start = 0, compute_start = 0, compute_end = 0, exec_end = 0;
};

// Sums over the steps of an ensemble's request, ns per stage; steps may overlap.
class StageSums {
 public:
  void add(const RequestTimes& step);  // any thread
  // The stages laid end to end from `start` on.
  RequestTimes as_times(uint64_t start) const;

 private:
  std::atomic<uint64_t> queue_{0}, input_{0}, infer_{0}, output_{0};
};

// Times of one response of a decoupled model. output_start 0: an empty response.
struct ResponseTimes {
  uint64_t start = 0, output_start = 0, end = 0;
  enum class Kind { kSuccess, kFail, kCancel } kind = Kind::kSuccess;
};

// Memory use reported by a model or an instance.
struct MemoryUse {
  std::string type;
  int64_t id = 0;
  uint64_t byte_size = 0;
};

// All calls are thread safe.
class ModelStatistics {
 public:
  // Without metrics only the counters of the statistics extension are kept. `is_cached`: the model
  // uses the response cache.
  ModelStatistics(const MetricsConfig& metrics, const ModelConfig& model, int64_t version,
                  bool is_cached);

  // Counts an executed request.
  void success(uint64_t inferences, const RequestTimes& times);
  // Counts a request answered by the response cache; `lookup_ns` is the lookup's share of its time.
  void cache_hit(uint64_t start_ns, uint64_t queue_ns, uint64_t lookup_ns);
  // Counts a lookup that missed: the time of the lookup and of the insertion.
  void cache_miss(uint64_t ns);
  void failure(FailureReason reason, uint64_t start_ns);
  void execution(uint64_t batch_size, const RequestTimes& times);
  void response(uint64_t index, const ResponseTimes& times);
  // Whether a histogram of first-response times is kept; first_response() then counts the first
  // response to a request of `start_ns`.
  bool has_first_response_times() const {
    return metrics_ != nullptr && metrics_->has_first_response();
  }
  void first_response(uint64_t start_ns);
  void pending(int64_t delta);
  void loaded(double seconds);
  // Replaces the owner's last report.
  void set_memory(const void* owner, std::vector<MemoryUse> uses);

  // Appends the members of an entry of "model_stats" behind name and version.
  void append_json(json::object& out) const;

 private:
  struct Duration {
    uint64_t count = 0, ns = 0;
    void add(uint64_t from, uint64_t to) {
      ++count;
      if (to > from) ns += to - from;
    }
    json::object to_json() const { return {{"count", count}, {"ns", ns}}; }
  };
  struct Batch {
    Duration input, infer, output;
  };
  struct Responses {
    Duration infer, output, success, fail, empty, cancel;
  };

  void count(ModelMetrics::Counter counter, uint64_t n);
  void observe(ModelMetrics::Summary summary, uint64_t ns);

  mutable std::mutex mutex_;
  uint64_t last_inference_ms_ = 0;  // wall clock
  uint64_t inferences_ = 0, executions_ = 0;
  Duration success_, fail_, queue_, input_, infer_, output_, hit_, miss_;
  std::map<uint64_t, Batch> batches_;        // by batch size
  std::map<uint64_t, Responses> responses_;  // by index within the request

  std::map<const void*, std::vector<MemoryUse>> memory_;

  std::shared_ptr<ModelMetrics> metrics_;  // null: metrics are off
};

}  // namespace nereid::server
