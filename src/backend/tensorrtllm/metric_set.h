// A set of series of the server's custom metrics C API, addressed by index.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "triton/core/tritonserver.h"

namespace nereid::backend {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Thread safe once all series are added. A series that the server refuses is skipped: calls for
// it have no effect.
class MetricSet {
 public:
  MetricSet() = default;
  ~MetricSet();
  MetricSet(const MetricSet&) = delete;
  MetricSet& operator=(const MetricSet&) = delete;

  // `buckets`: ascending upper bounds, for histograms only. Returns the index, which counts from 0.
  size_t add(TRITONSERVER_MetricKind kind, const char* family, const char* help,
             const MetricLabels& labels, const std::vector<double>& buckets = {});
  size_t skip();  // adds an index without a series

  void set(size_t index, double value);        // gauges only
  void increment(size_t index, double value);  // counters only; values <= 0 are ignored
  void observe(size_t index, double value);    // histograms only

 private:
  std::vector<TRITONSERVER_MetricFamily*> families_;
  std::vector<TRITONSERVER_Metric*> metrics_;  // null: refused or skipped
};

}  // namespace nereid::backend
