// How long the prefix cache should keep each block of a request.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "base/clock.h"
#include "nereid/request.h"

namespace nereid::sched {

inline constexpr int32_t kMaxRetention = 100;  // priorities are 0..100

// How long one block is kept. Its duration begins when no sequence holds it any more.
struct Retention {
  int32_t priority = KvCacheRetentionConfig::kDefaultRetention;
  std::optional<Duration> duration;  // then the default priority; unset = for ever

  bool operator==(const Retention&) const = default;
};

// The retention of the block whose first position is `position`; `config` may be null: defaults.
// Ranges speak of the prompt; what was generated has the decode values.
Retention retention_at(const KvCacheRetentionConfig* config, int32_t num_prompt, int32_t position);

// Blocks whose contents fall back to the default priority at a time of their own.
class ExpiryQueue {
 public:
  void add(Time when, int32_t block) { queue_.emplace(when, block); }
  void remove(Time when, int32_t block) { queue_.erase({when, block}); }
  void clear() { queue_.clear(); }
  size_t size() const { return queue_.size(); }

  // Takes one whose time has come; -1: none.
  int32_t pop(Time now);

 private:
  std::set<std::pair<Time, int32_t>> queue_;
};

}  // namespace nereid::sched
