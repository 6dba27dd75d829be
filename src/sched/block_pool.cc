// BlockPool: reference counts, the free list that is also the LRU list, and the prefix index.
#include "sched/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace nereid::sched {

BlockPool::BlockPool(int32_t num_blocks, int32_t tokens_per_block, bool enable_reuse)
    : tokens_per_block_(tokens_per_block), enable_reuse_(enable_reuse) {
  NEREID_CHECK(num_blocks > 0 && tokens_per_block > 0);
  blocks_.resize(static_cast<size_t>(num_blocks) + 1);
  if (enable_reuse_) tokens_.resize(static_cast<size_t>(num_blocks) * tokens_per_block);
  const BlockId head = num_blocks;
  blocks_[head] = {.refs = 1, .prev = head, .next = head};
  for (BlockId id = 0; id < num_blocks; ++id) link_before(id, head);
}

PrefixHit BlockPool::match(std::span<const BlockKey> keys, std::span<const TokenId> tokens) const {
  PrefixHit hit;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto found = index_.find(keys[i]);
    if (found == index_.end() || !holds(found->second, hit.chain, tokens, i)) break;
    hit.blocks.push_back(found->second);
    hit.chain = blocks_[found->second].serial;
  }
  return hit;
}

bool BlockPool::admit(BlockTable& table, const PrefixHit& hit, int32_t num_tokens,
                      int32_t headroom) {
  NEREID_CHECK(table.blocks.empty());
  const auto idle = std::ranges::count_if(hit.blocks, [&](BlockId b) { return !blocks_[b].refs; });
  const int64_t fresh = blocks_for(num_tokens) - static_cast<int64_t>(hit.blocks.size());
  NEREID_CHECK(fresh >= 0);
  if (idle + fresh + headroom > num_free_) return false;
  // The hit is held before anything is taken, or taking could evict it.
  for (BlockId id : hit.blocks) hold(id);
  table.blocks = hit.blocks;
  table.num_published = static_cast<int32_t>(hit.blocks.size());
  table.chain = hit.chain;
  return reserve(table, num_tokens);
}

bool BlockPool::reserve(BlockTable& table, int32_t num_tokens) {
  const size_t needed = static_cast<size_t>(blocks_for(num_tokens));
  if (needed <= table.blocks.size()) return true;
  if (needed - table.blocks.size() > static_cast<size_t>(num_free_)) return false;
  while (table.blocks.size() < needed) table.blocks.push_back(take());
  return true;
}

void BlockPool::publish(BlockTable& table, std::span<const BlockKey> keys,
                        std::span<const TokenId> tokens, int32_t num_computed) {
  if (!enable_reuse_) return;
  const size_t full = std::min(keys.size(), static_cast<size_t>(num_computed / tokens_per_block_));
  NEREID_CHECK(full <= table.blocks.size() && full * tokens_per_block_ <= tokens.size());
  for (size_t i = table.num_published; i < full; ++i) {
    const auto found = index_.find(keys[i]);
    if (found != index_.end() && holds(found->second, table.chain, tokens, i)) {
      table.chain = blocks_[found->second].serial;
    } else {
      if (found != index_.end()) forget(found->second);  // unreachable since its parent went
      const BlockId id = table.blocks[i];
      Block& block = blocks_[id];
      NEREID_CHECK(block.serial == 0);
      block.key = keys[i];
      block.serial = ++last_serial_;
      block.parent = table.chain;
      std::ranges::copy(tokens.subspan(i * tokens_per_block_, tokens_per_block_),
                        tokens_.begin() + static_cast<ptrdiff_t>(id) * tokens_per_block_);
      index_[keys[i]] = id;
      table.chain = block.serial;
    }
    ++table.num_published;
  }
}

void BlockPool::release(BlockTable& table, bool forget_contents) {
  const BlockId head = num_blocks();
  for (size_t i = table.blocks.size(); i-- > 0;) {
    const BlockId id = table.blocks[i];
    if (forget_contents) forget(id);
    NEREID_CHECK(blocks_[id].refs > 0);
    if (--blocks_[id].refs > 0) continue;
    // A block that nobody can find goes first; what the cache may still use goes to the young end.
    link_before(id, blocks_[id].serial == 0 ? blocks_[head].next : head);
  }
  table = {};
}

void BlockPool::check(int64_t num_held) const {
  const BlockId head = num_blocks();
  int32_t free = 0;
  for (BlockId id = blocks_[head].next; id != head; id = blocks_[id].next) {
    NEREID_CHECK(blocks_[id].refs == 0 && blocks_[blocks_[id].next].prev == id);
    NEREID_CHECK(++free <= num_free_);
  }
  NEREID_CHECK(free == num_free_);
  int64_t refs = 0, held = 0;
  size_t published = 0;
  for (BlockId id = 0; id < head; ++id) {
    const Block& block = blocks_[id];
    refs += block.refs;
    held += block.refs > 0;
    if (block.serial == 0) continue;
    ++published;
    const auto found = index_.find(block.key);
    NEREID_CHECK(found != index_.end() && found->second == id);
  }
  NEREID_CHECK(free + held == head);
  NEREID_CHECK(refs == num_held);
  NEREID_CHECK(published == index_.size());
}

// The oldest free block; forgetting its key is the eviction.
BlockId BlockPool::take() {
  const BlockId id = blocks_[num_blocks()].next;
  forget(id);
  hold(id);
  return id;
}

void BlockPool::hold(BlockId id) {
  if (blocks_[id].refs++ == 0) unlink(id);
}

void BlockPool::unlink(BlockId id) {
  Block& block = blocks_[id];
  blocks_[block.prev].next = block.next;
  blocks_[block.next].prev = block.prev;
  --num_free_;
}

void BlockPool::link_before(BlockId id, BlockId next) {
  Block& block = blocks_[id];
  block.next = next;
  block.prev = blocks_[next].prev;
  blocks_[block.prev].next = id;
  blocks_[next].prev = id;
  ++num_free_;
}

void BlockPool::forget(BlockId id) {
  if (blocks_[id].serial == 0) return;
  index_.erase(blocks_[id].key);
  blocks_[id].serial = 0;
}

bool BlockPool::holds(BlockId id, uint64_t parent, std::span<const TokenId> tokens,
                      size_t index) const {
  const size_t size = static_cast<size_t>(tokens_per_block_);
  return blocks_[id].parent == parent &&
         std::ranges::equal(tokens.subspan(index * size, size),
                            std::span(tokens_).subspan(static_cast<size_t>(id) * size, size));
}

}  // namespace nereid::sched
