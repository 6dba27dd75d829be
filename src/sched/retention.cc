// Retention by position, and the queue of expiries.
#include "sched/retention.h"

#include <algorithm>

namespace nereid::sched {

Retention retention_at(const KvCacheRetentionConfig* config, int32_t num_prompt, int32_t position) {
  Retention retention;
  if (config == nullptr) return retention;
  if (position >= num_prompt) {
    retention.priority = config->decode_priority;
    retention.duration = config->decode_duration;
  } else {
    for (const auto& range : config->token_ranges) {
      if (position < range.token_start || position >= range.token_end.value_or(num_prompt))
        continue;
      retention.priority = range.priority;
      retention.duration = range.duration;
    }
  }
  retention.priority = std::clamp(retention.priority, 0, kMaxRetention);
  return retention;
}

int32_t ExpiryQueue::pop(Time now) {
  if (queue_.empty() || queue_.begin()->first > now) return -1;
  return queue_.extract(queue_.begin()).value().second;
}

}  // namespace nereid::sched
