// Changes of the prefix cache as events for clients that mirror it.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "nereid/stats.h"
#include "sched/prefix_tree.h"

namespace nereid::sched {

// Keeps the newest `limit` events. Limit 0: nothing is built.
class CacheEvents {
 public:
  explicit CacheEvents(int32_t limit) : limit_(static_cast<size_t>(limit)) {}

  bool enabled() const { return limit_ > 0; }
  // Event: cache group `group` with its sizes.
  void created(size_t group, const BlockGroupConfig& config);
  // `priority`: of the node's block in the group.
  void stored(size_t group, const Node& node, const Node& parent, std::span<const TokenId> tokens,
              int32_t priority);
  void removed(size_t group, std::vector<BlockKey> keys);  // no event for an empty list
  void updated(size_t group, const Node& node, int32_t level, int32_t priority);

  std::vector<KvCacheEvent> take();  // all kept events, oldest first

 private:
  void add(KvCacheEvent event);

  size_t limit_;
  uint64_t next_id_ = 0;
  std::deque<KvCacheEvent> events_;
};

}  // namespace nereid::sched
