// CacheEvents: a bounded queue that drops its oldest.
#include "sched/cache_events.h"

#include <iterator>
#include <utility>

namespace nereid::sched {

void CacheEvents::created(int32_t device_blocks, int32_t host_blocks) {
  if (!enabled()) return;
  add({.kind = KvCacheEvent::Kind::kCreated, .num_blocks_per_level = {device_blocks, host_blocks}});
}

void CacheEvents::stored(const Node& node, const Node& parent, std::span<const TokenId> tokens) {
  if (!enabled()) return;
  KvCacheEvent event{.kind = KvCacheEvent::Kind::kStored,
                     .block_hashes = {node.key},
                     .tokens = {tokens.begin(), tokens.end()},
                     .priority = node.retention.priority};
  if (parent.num_tokens > 0) event.parent_hash = parent.key;
  add(std::move(event));
}

void CacheEvents::removed(std::span<const RemovedNode> nodes) {
  if (!enabled() || nodes.empty()) return;
  KvCacheEvent event{.kind = KvCacheEvent::Kind::kRemoved};
  for (const RemovedNode& node : nodes) event.block_hashes.push_back(node.key);
  add(std::move(event));
}

void CacheEvents::updated(const Node& node, int32_t level) {
  if (!enabled()) return;
  add({.kind = KvCacheEvent::Kind::kUpdated,
       .block_hashes = {node.key},
       .level = level,
       .priority = node.retention.priority});
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
