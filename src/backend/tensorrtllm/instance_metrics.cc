#include "backend/tensorrtllm/instance_metrics.h"

namespace nereid::backend {

// Series 3 * i to 3 * i + 2 are those of instance i.
void InstanceMetrics::publish(std::span<const InstanceStats> instances) {
  for (size_t i = last_.size(); i < instances.size(); ++i) {
    const MetricLabels labels = {{"model", model_},
                                 {"version", std::to_string(version_)},
                                 {"instance", std::to_string(instances[i].instance)}};
    set_.add(TRITONSERVER_METRIC_KIND_GAUGE, "nereid_instance_healthy",
             "1, and 0 while the instance of the model has failed and is not opened again", labels);
    set_.add(TRITONSERVER_METRIC_KIND_GAUGE, "nereid_instance_requests",
             "Requests that were sent to the instance and have not ended", labels);
    set_.add(TRITONSERVER_METRIC_KIND_COUNTER, "nereid_instance_restarts_total",
             "Times that the instance was opened again after a failure", labels);
    last_.push_back({});
  }
  for (size_t i = 0; i < instances.size(); ++i) {
    const InstanceStats& now = instances[i];
    set_.set(3 * i, now.is_healthy ? 1 : 0);
    set_.set(3 * i + 1, static_cast<double>(now.num_requests));
    set_.increment(3 * i + 2, static_cast<double>(now.num_restarts - last_[i].num_restarts));
    last_[i] = now;
  }
}

}  // namespace nereid::backend
