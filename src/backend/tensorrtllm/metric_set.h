// A handful of series of the server's metrics C API, by index.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "triton/core/tritonserver.h"

namespace nereid::backend {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Thread safe once filled. What the server refuses is left out: its calls then do nothing.
class MetricSet {
 public:
  MetricSet() = default;
  ~MetricSet();
  MetricSet(const MetricSet&) = delete;
  MetricSet& operator=(const MetricSet&) = delete;

  // `buckets`: ascending upper bounds, for histograms only. Indices count from 0.
  size_t add(TRITONSERVER_MetricKind kind, const char* family, const char* help,
             const MetricLabels& labels, const std::vector<double>& buckets = {});
  size_t skip();  // an index without a series

  void set(size_t index, double value);        // gauge
  void increment(size_t index, double value);  // counter; 0 and less are ignored
  void observe(size_t index, double value);    // histogram

 private:
  std::vector<TRITONSERVER_MetricFamily*> families_;
  std::vector<TRITONSERVER_Metric*> metrics_;  // null: refused or skipped
};

}  // namespace nereid::backend
