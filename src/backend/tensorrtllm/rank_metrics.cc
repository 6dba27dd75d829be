#include "backend/tensorrtllm/rank_metrics.h"

#include "base/gpus.h"

namespace nereid::backend {

// Series 2 * i and 2 * i + 1 are those of rank i.
void RankMetrics::publish(std::span<const RankStats> ranks) {
  for (size_t i = last_.size(); i < ranks.size(); ++i) {
    MetricLabels labels = {{"model", model_},
                           {"version", std::to_string(version_)},
                           {"rank", std::to_string(ranks[i].rank)},
                           {"device", ranks[i].device}};
    if (const std::string uuid = gpu_uuid(ranks[i].device); !uuid.empty())
      labels.push_back({"gpu_uuid", uuid});
    set_.add(TRITONSERVER_METRIC_KIND_COUNTER, "nereid_rank_steps_total",
             "Steps that the rank has executed", labels);
    set_.add(TRITONSERVER_METRIC_KIND_COUNTER, "nereid_rank_exchange_seconds_total",
             "Time of these steps in the exchange with other ranks, waits for them included (on "
             "GPUs: of starting it)",
             labels);
    last_.push_back({});
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    set_.increment(2 * i, static_cast<double>(ranks[i].num_steps - last_[i].num_steps));
    set_.increment(2 * i + 1, ranks[i].exchange_seconds - last_[i].exchange_seconds);
    last_[i] = ranks[i];
  }
}

}  // namespace nereid::backend
