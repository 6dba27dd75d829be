// Retention of cached blocks: priority and duration by position.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.h"
#include "nereid/request.h"

namespace nereid::sched {

inline constexpr int32_t kMaxRetention = 100;  // priorities are 0..100

// Retention of one block. Its duration starts when its last holder releases it.
struct Retention {
  int32_t priority = KvCacheRetentionConfig::kDefaultRetention;
  std::optional<Duration> duration;  // after it: the default priority; unset: unlimited

  bool operator==(const Retention&) const = default;
};

// Retention of the block whose first position is `position`; null `config`: defaults. Ranges apply
// to the prompt, decode values to generated tokens.
Retention retention_at(const KvCacheRetentionConfig* config, int32_t num_prompt, int32_t position);

// Blocks by the time at which their retention falls back to the default priority.
class ExpiryQueue {
 public:
  void add(Time when, int32_t block) { queue_.emplace(when, block); }
  void remove(Time when, int32_t block) { queue_.erase({when, block}); }
  void clear() { queue_.clear(); }
  size_t size() const { return queue_.size(); }

  // Removes and returns one expired block; -1: none.
  int32_t pop(Time now);

 private:
  std::set<std::pair<Time, int32_t>> queue_;
};

}  // namespace nereid::sched
