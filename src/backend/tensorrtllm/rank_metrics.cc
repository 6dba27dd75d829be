#include "backend/tensorrtllm/rank_metrics.h"

#include <algorithm>

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

void TierMetrics::publish(const ExecutorStats& s) {
  size_t i = 0;
  const auto set = [&](const char* tier, const char* state, int64_t blocks) {
    if (i == num_series_) {
      set_.add(TRITONSERVER_METRIC_KIND_GAUGE, "nereid_kv_blocks",
               "Blocks of the KV cache; free ones may hold cached prefixes",
               {{"model", model_},
                {"version", std::to_string(version_)},
                {"tier", tier},
                {"state", state}});
      ++num_series_;
    }
    set_.set(i++, static_cast<double>(blocks));
  };
  set("device", "used", s.kv_blocks_total - s.kv_blocks_free);
  set("device", "free", s.kv_blocks_free);
  if (s.kv_host_blocks_total == 0) return;
  set("host", "used", s.kv_host_blocks_total - s.kv_host_blocks_free);
  set("host", "free", s.kv_host_blocks_free);
}

void ExpertMetrics::publish(std::span<const ExpertLoad> layers) {
  size_t i = 0;
  for (const ExpertLoad& layer : layers)
    for (size_t expert = 0; expert < layer.tokens.size(); ++expert, ++i) {
      if (i == last_.size()) {
        set_.add(TRITONSERVER_METRIC_KIND_COUNTER, "nereid_expert_tokens_total",
                 "Tokens for which the router of the layer has chosen the expert",
                 {{"model", model_},
                  {"version", std::to_string(version_)},
                  {"layer", std::to_string(layer.layer)},
                  {"expert", std::to_string(expert)}});
        last_.push_back(0);
      }
      // Counts begin again when an instance is opened again.
      const int64_t more = std::max<int64_t>(layer.tokens[expert] - last_[i], 0);
      set_.increment(i, static_cast<double>(more));
      last_[i] = layer.tokens[expert];
    }
}

}  // namespace nereid::backend
