// Prometheus metrics defined by backends. One registry for the process: the C API's metric
// calls name no server.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "triton/core/tritonserver.h"

namespace prometheus {
struct MetricFamily;
}

namespace nereid::server {

using Labels = std::map<std::string, std::string>;

class FamilyEntry;
struct SharedSeries;

// A named family; handles of the same kind, name and description share it. Thread safe.
class MetricFamily {
 public:
  static StatusOr<std::unique_ptr<MetricFamily>> create(TRITONSERVER_MetricKind kind,
                                                        const std::string& name,
                                                        const std::string& description);
  // The last handle deletes every metric of the family; later calls for them return an error.
  ~MetricFamily();
  TRITONSERVER_MetricKind kind() const;

 private:
  friend class Metric;
  explicit MetricFamily(std::shared_ptr<FamilyEntry> entry) : entry_(std::move(entry)) {}
  std::shared_ptr<FamilyEntry> entry_;
};

// One series; equal labels name the same series. Thread safe.
class Metric {
 public:
  // Ascending upper bounds; nullopt unless a histogram.
  using Buckets = std::optional<std::vector<double>>;
  static StatusOr<std::unique_ptr<Metric>> create(const MetricFamily& family, const Labels& labels,
                                                  const Buckets& buckets = {});
  ~Metric();
  TRITONSERVER_MetricKind kind() const;
  Status increment(double value);  // counter (>= 0), gauge
  Status set(double value);        // gauge
  Status observe(double value);    // histogram
  StatusOr<double> value() const;  // counter, gauge

 private:
  Metric(std::shared_ptr<FamilyEntry> entry, Labels labels, SharedSeries* series)
      : entry_(std::move(entry)), labels_(std::move(labels)), series_(series) {}
  std::shared_ptr<FamilyEntry> entry_;
  Labels labels_;
  SharedSeries* series_;  // valid while the family exists
};

// Appends the custom families.
void collect_custom_metrics(std::vector<prometheus::MetricFamily>& page);

}  // namespace nereid::server
