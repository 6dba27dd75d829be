#include "backend/tensorrtllm/metric_set.h"

#include "backend/common/triton.h"

namespace nereid::backend {

MetricSet::~MetricSet() {
  for (auto* metric : metrics_) {
    if (metric != nullptr) TRITONSERVER_ErrorDelete(TRITONSERVER_MetricDelete(metric));
  }
  for (auto* family : families_) TRITONSERVER_ErrorDelete(TRITONSERVER_MetricFamilyDelete(family));
}

size_t MetricSet::skip() {
  metrics_.push_back(nullptr);
  return metrics_.size() - 1;
}

size_t MetricSet::add(TRITONSERVER_MetricKind kind, const char* family, const char* help,
                      const MetricLabels& labels, const std::vector<double>& buckets) {
  const size_t index = skip();
  TRITONSERVER_MetricFamily* f = nullptr;
  if (Status s = take(TRITONSERVER_MetricFamilyNew(&f, kind, family, help)); !s.ok()) return index;
  families_.push_back(f);
  std::vector<TRITONSERVER_Parameter*> parameters;
  for (const auto& [name, value] : labels) {
    parameters.push_back(
        TRITONSERVER_ParameterNew(name.c_str(), TRITONSERVER_PARAMETER_STRING, value.c_str()));
  }
  TRITONSERVER_MetricArgs* args = nullptr;
  Status status;
  if (!buckets.empty()) {
    status = take(TRITONSERVER_MetricArgsNew(&args));
    if (status.ok()) {
      status = take(TRITONSERVER_MetricArgsSetHistogram(args, buckets.data(), buckets.size()));
    }
  }
  if (status.ok()) {
    status = take(TRITONSERVER_MetricNewWithArgs(
        &metrics_.back(), f, const_cast<const TRITONSERVER_Parameter**>(parameters.data()),
        parameters.size(), args));
  }
  if (args != nullptr) TRITONSERVER_ErrorDelete(TRITONSERVER_MetricArgsDelete(args));
  for (auto* p : parameters) TRITONSERVER_ParameterDelete(p);
  if (!status.ok()) log_warning(fmt::format("metric {}: {}", family, message(status)));
  return index;
}

void MetricSet::set(size_t index, double value) {
  if (metrics_[index] == nullptr) return;
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricSet(metrics_[index], value));
}

void MetricSet::increment(size_t index, double value) {
  if (metrics_[index] == nullptr || value <= 0) return;
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricIncrement(metrics_[index], value));
}

void MetricSet::observe(size_t index, double value) {
  if (metrics_[index] == nullptr) return;
  TRITONSERVER_ErrorDelete(TRITONSERVER_MetricObserve(metrics_[index], value));
}

}  // namespace nereid::backend
