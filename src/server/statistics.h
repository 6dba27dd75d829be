// Counters of one model version, published as the nv_inference_* metrics.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/metrics.h"

namespace nereid::server {

enum class FailureReason { kRejected, kCanceled, kBackend, kOther };

// Nanoseconds on the steady clock, as a backend reports them.
struct RequestTimes {
  uint64_t start = 0, exec_start = 0, compute_start = 0, compute_end = 0, exec_end = 0;
};

class ModelStatistics {
 public:
  // Without metrics every call does nothing.
  static StatusOr<std::unique_ptr<ModelStatistics>> create(
      bool metrics, const std::string& model, int64_t version,
      const std::map<std::string, std::string>& tags);

  void success(uint64_t inferences, const RequestTimes& times);
  void failure(FailureReason reason);
  void execution();
  void pending(double delta);
  void loaded(double seconds);

 private:
  Status add(const std::string& family, const std::string& help, const Labels& labels,
             TRITONSERVER_MetricKind kind = TRITONSERVER_METRIC_KIND_COUNTER);
  void increment(size_t index, double value);

  std::vector<std::unique_ptr<MetricFamily>> families_;
  std::vector<std::unique_ptr<Metric>>
      metrics_;  // in the order of Index; destroyed before families_
};

}  // namespace nereid::server
