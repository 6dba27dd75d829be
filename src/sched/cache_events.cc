// CacheEvents: a bounded queue that drops the oldest event.
#include "sched/cache_events.h"

#include <iterator>
#include <utility>

namespace nereid::sched {

void CacheEvents::created(size_t group, const BlockGroupConfig& config) {
  if (!enabled()) return;
  add({.kind = KvCacheEvent::Kind::kCreated,
       .num_blocks_per_level = {config.num_blocks, config.num_host_blocks},
       .group = static_cast<int32_t>(group),
       .window = config.window});
}

void CacheEvents::stored(size_t group, const Node& node, const Node& parent,
                         std::span<const TokenId> tokens, int32_t priority) {
  if (!enabled()) return;
  KvCacheEvent event{.kind = KvCacheEvent::Kind::kStored,
                     .block_hashes = {node.key},
                     .tokens = {tokens.begin(), tokens.end()},
                     .priority = priority,
                     .group = static_cast<int32_t>(group)};
  if (parent.num_tokens > 0) event.parent_hash = parent.key;
  add(std::move(event));
}

void CacheEvents::removed(size_t group, std::vector<BlockKey> keys) {
  if (!enabled() || keys.empty()) return;
  add({.kind = KvCacheEvent::Kind::kRemoved,
       .block_hashes = std::move(keys),
       .group = static_cast<int32_t>(group)});
}

void CacheEvents::updated(size_t group, const Node& node, int32_t level, int32_t priority) {
  if (!enabled()) return;
  add({.kind = KvCacheEvent::Kind::kUpdated,
       .block_hashes = {node.key},
       .level = level,
       .priority = priority,
       .group = static_cast<int32_t>(group)});
}

std::vector<KvCacheEvent> CacheEvents::take() {
  std::vector<KvCacheEvent> all(std::make_move_iterator(events_.begin()),
                                std::make_move_iterator(events_.end()));
  events_.clear();
  return all;
}

void CacheEvents::add(KvCacheEvent event) {
  if (events_.size() == limit_) events_.pop_front();
  event.event_id = next_id_++;
  events_.push_back(std::move(event));
}

}  // namespace nereid::sched
