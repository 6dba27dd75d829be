// Counters of one model version: the statistics extension's and the nv_inference_* metrics.
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

// Nanoseconds on the steady clock, as a backend reports them. Without an execution (ensembles,
// cache hits) the last four are 0 or stand for sums.
struct RequestTimes {
  uint64_t start = 0, exec_start = 0, compute_start = 0, compute_end = 0, exec_end = 0;
};

// Nanoseconds that the steps of an ensemble's request spent in each stage; they may run at the same
// time.
class StageSums {
 public:
  void add(const RequestTimes& step);  // any thread
  // The stages one after the other from `start` on.
  RequestTimes as_times(uint64_t start) const;

 private:
  std::atomic<uint64_t> queue_{0}, input_{0}, infer_{0}, output_{0};
};

// One response of a decoupled model. output_start 0: an empty response.
struct ResponseTimes {
  uint64_t start = 0, output_start = 0, end = 0;
  enum class Kind { kSuccess, kFail, kCancel } kind = Kind::kSuccess;
};

// Memory that a model or an instance says it uses.
struct MemoryUse {
  std::string type;
  int64_t id = 0;
  uint64_t byte_size = 0;
};

// All calls are thread safe.
class ModelStatistics {
 public:
  // Without metrics only the statistics extension's counters are kept. `is_cached`: the response
  // cache answers for the model.
  ModelStatistics(const MetricsConfig& metrics, const ModelConfig& model, int64_t version,
                  bool is_cached);

  // A request that the model executed.
  void success(uint64_t inferences, const RequestTimes& times);
  // A request that the response cache answered; `lookup_ns` of its time went there.
  void cache_hit(uint64_t start_ns, uint64_t queue_ns, uint64_t lookup_ns);
  // Time of a lookup without success and of the insertion that follows.
  void cache_miss(uint64_t ns);
  void failure(FailureReason reason, uint64_t start_ns);
  void execution(uint64_t batch_size, const RequestTimes& times);
  void response(uint64_t index, const ResponseTimes& times);
  // A decoupled model sent the first response to a request of `start_ns`.
  bool wants_first_response() const {
    return metrics_ != nullptr && metrics_->has_first_response();
  }
  void first_response(uint64_t start_ns);
  void pending(int64_t delta);
  void loaded(double seconds);
  void set_memory(const void* owner, std::vector<MemoryUse> uses);  // instead of its last report

  // The members of one entry of "model_stats" after name and version.
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

  std::shared_ptr<ModelMetrics> metrics_;  // null: switched off
};

}  // namespace nereid::server
