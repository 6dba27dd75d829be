// The process's Prometheus metrics. One registry per process because the C API's metric calls name
// no server.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "triton/core/tritonserver.h"

namespace nereid::server {

using Labels = std::map<std::string, std::string>;

class FamilyEntry;

// A named family; copies of the same kind, name and description share it. Thread safe.
class MetricFamily {
 public:
  static StatusOr<std::unique_ptr<MetricFamily>> create(TRITONSERVER_MetricKind kind,
                                                        const std::string& name,
                                                        const std::string& description);
  // Ends every metric of the family when this is the last handle; they then answer with an error.
  ~MetricFamily();
  TRITONSERVER_MetricKind kind() const;

 private:
  friend class Metric;
  explicit MetricFamily(std::shared_ptr<FamilyEntry> entry) : entry_(std::move(entry)) {}
  std::shared_ptr<FamilyEntry> entry_;
};

// One series; the same labels give the same series. Thread safe.
class Metric {
 public:
  // `buckets`: ascending upper bounds, for histograms only.
  static StatusOr<std::unique_ptr<Metric>> create(const MetricFamily& family, const Labels& labels,
                                                  const std::vector<double>& buckets = {});
  ~Metric();
  TRITONSERVER_MetricKind kind() const;
  Status increment(double value);  // counter (>= 0), gauge
  Status set(double value);        // gauge
  Status observe(double value);    // histogram
  StatusOr<double> value() const;  // counter, gauge

 private:
  Metric(std::shared_ptr<FamilyEntry> entry, Labels labels)
      : entry_(std::move(entry)), labels_(std::move(labels)) {}
  std::shared_ptr<FamilyEntry> entry_;
  Labels labels_;
};

// Prometheus text of everything registered.
std::string metrics_text();

}  // namespace nereid::server
