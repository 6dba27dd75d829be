#include "sched/encoder_cache.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace nereid::sched {

EncoderCache::EncoderCache(int32_t num_blocks, int32_t tokens_per_block)
    : num_blocks_(num_blocks), tokens_per_block_(tokens_per_block) {
  for (BlockId block = num_blocks; block-- > 0;) free_.push_back(block);
}

EncoderCache::Entry* EncoderCache::hold(std::string_view key, int32_t length, bool is_private) {
  NEREID_CHECK(length > 0);
  if (const auto found = by_key_.find(key); found != by_key_.end()) {
    Entry& entry = *found->second;
    NEREID_CHECK(entry.length == length);
    ++entry.num_holders;
    ++num_hits_;
    return &entry;
  }
  const auto count = static_cast<size_t>((length - 1) / tokens_per_block_ + 1);
  if (!make_room(count)) return nullptr;
  Entry& entry = entries_.emplace_back();
  entry.key = key;
  entry.length = length;
  entry.num_holders = 1;
  entry.is_private = is_private;
  entry.blocks.assign(free_.end() - static_cast<ptrdiff_t>(count), free_.end());
  free_.resize(free_.size() - count);
  by_key_.emplace(entry.key, std::prev(entries_.end()));
  ++num_misses_;
  return &entry;
}

// Drops results without a holder, oldest first, if that is enough.
bool EncoderCache::make_room(size_t num_blocks) {
  size_t available = free_.size();
  for (auto it = entries_.begin(); available < num_blocks && it != entries_.end(); ++it)
    if (it->num_holders == 0) available += it->blocks.size();
  if (available < num_blocks) return false;
  for (auto it = entries_.begin(); free_.size() < num_blocks;) {
    const auto entry = it++;
    if (entry->num_holders == 0) drop(entry);
  }
  return true;
}

void EncoderCache::drop(Entries::iterator entry) {
  free_.insert(free_.end(), entry->blocks.begin(), entry->blocks.end());
  if (!entry->is_forgotten) by_key_.erase(entry->key);
  entries_.erase(entry);
}

void EncoderCache::release(Entry& entry) {
  NEREID_CHECK(entry.num_holders > 0);
  if (--entry.num_holders > 0) return;
  const auto at =
      std::ranges::find_if(entries_, [&](const Entry& other) { return &other == &entry; });
  // A result that no step has computed is of no use to others.
  if (entry.is_forgotten || entry.is_private || !entry.is_computed) return drop(at);
  entries_.splice(entries_.end(), entries_, at);
}

void EncoderCache::forget_everything() {
  by_key_.clear();
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto entry = it++;
    entry->is_forgotten = true;
    if (entry->num_holders == 0) drop(entry);
  }
}

int32_t EncoderCache::num_holders() const {
  int32_t count = 0;
  for (const Entry& entry : entries_) count += entry.num_holders;
  return count;
}

void EncoderCache::check() const {
  std::vector<bool> seen(static_cast<size_t>(num_blocks_));
  const auto take = [&](BlockId block) {
    NEREID_CHECK(block >= 0 && block < num_blocks_ && !seen[static_cast<size_t>(block)]);
    seen[static_cast<size_t>(block)] = true;
  };
  for (const BlockId block : free_) take(block);
  for (const Entry& entry : entries_)
    for (const BlockId block : entry.blocks) take(block);
  NEREID_CHECK(std::ranges::find(seen, false) == seen.end());
}

}  // namespace nereid::sched
