// BlockPool: who holds which block. What blocks contain is in block_cache.cc.
#include "sched/block_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nereid::sched {

BlockPool::BlockPool(const PoolConfig& config)
    : config_(config),
      tokens_per_block_(config.tokens_per_block),
      blocks_(static_cast<size_t>(config.num_blocks) + config.num_host_blocks),
      device_(0, config.num_blocks),
      host_(config.num_blocks, config.num_host_blocks),
      tree_(config.tokens_per_block,
            config.enable_reuse ? config.num_blocks + config.num_host_blocks : 0),
      events_(config.event_buffer_size) {
  NEREID_CHECK(config.num_blocks > 0 && config.num_host_blocks >= 0);
  NEREID_CHECK(config.tokens_per_block > 0 && config.event_buffer_size >= 0);
  events_.created(config.num_blocks, config.num_host_blocks);
}

bool BlockPool::admit(BlockTable& table, const PrefixHit& hit, const Contents& contents,
                      int32_t num_tokens, int32_t headroom) {
  NEREID_CHECK(table.blocks.empty() && num_tokens >= hit.num_tokens);
  int64_t idle = 0, away = 0;
  for (BlockId id : hit.blocks) {
    away += on_host(id);
    idle += !on_host(id) && blocks_[id].refs == 0;
  }
  const int64_t fresh = blocks_for(num_tokens) - static_cast<int64_t>(hit.blocks.size()) + away;
  if (idle + fresh + headroom > num_free()) return false;
  // The whole hit is out of the lists before anything is taken, or taking could evict it.
  for (BlockId id : hit.blocks) on_host(id) ? unlink(id) : hold(id);
  const BlockId partial = hit.partial.valid() ? take_partial(hit.partial.id) : kNoBlock;
  for (size_t i = 0; i < hit.blocks.size(); ++i) {
    const NodeId node = blocks_[hit.blocks[i]].node;
    if (on_host(hit.blocks[i])) onboard(node);
    retain(node, retention_at(contents.retention, contents.num_prompt,
                              static_cast<int32_t>(i) * tokens_per_block_));
    table.blocks.push_back(tree_[node].block);
  }
  table.num_published = static_cast<int32_t>(hit.blocks.size());
  table.last = hit.last;
  if (partial != kNoBlock) table.blocks.push_back(partial);
  stats_.reused += hit.num_reused();
  stats_.missed += hit.num_missed;
  NEREID_CHECK(reserve(table, hit.num_tokens, num_tokens));
  return true;
}

// A fresh block with the contents of `node`. When its own block is the only free one left, that one
// becomes it.
BlockId BlockPool::take_partial(NodeId node) {
  const BlockId from = tree_[node].block;
  if (!on_host(from) && blocks_[from].refs == 0 && num_free() == 1) {
    ++stats_.alloc_total;
    ++stats_.alloc_new;
    hold(from);
    forget(node);
    return from;
  }
  on_host(from) ? unlink(from) : hold(from);
  const BlockId to = take();
  copies_.push_back({.from = from, .to = to});
  ++stats_.copied;
  ++stats_.alloc_new;
  on_host(from) ? link(from) : unhold(from);
  return to;
}

bool BlockPool::reserve(BlockTable& table, int32_t first_written, int32_t num_tokens) {
  const auto needed = static_cast<size_t>(blocks_for(num_tokens));
  const size_t kept = std::min(needed, table.blocks.size());
  const auto first = static_cast<size_t>(first_written / tokens_per_block_);
  size_t fresh = needed - kept;
  for (size_t i = first; i < kept; ++i) fresh += blocks_[table.blocks[i]].refs > 1;
  if (fresh > static_cast<size_t>(num_free())) return false;
  stats_.alloc_new += static_cast<int64_t>(fresh);
  for (size_t i = first; i < kept; ++i) make_writable(table, i, first_written);
  while (table.blocks.size() < needed) table.blocks.push_back(take());
  return true;
}

void BlockPool::make_writable(BlockTable& table, size_t index, int32_t first_written) {
  NEREID_CHECK(index >= static_cast<size_t>(table.num_published));
  const BlockId id = table.blocks[index];
  const int32_t num_kept = first_written - static_cast<int32_t>(index) * tokens_per_block_;
  if (blocks_[id].refs > 1) {
    const BlockId copy = take();
    if (num_kept > 0) {
      copies_.push_back({.from = id, .to = copy});
      ++stats_.copied;
    }
    blocks_[copy].suspect = blocks_[id].suspect;
    unhold(id);
    table.blocks[index] = copy;
  } else if (blocks_[id].node != kNoNode && tree_[blocks_[id].node].num_tokens > num_kept) {
    forget(blocks_[id].node);
  }
}

BlockTable BlockPool::fork(const BlockTable& table, int32_t num_tokens) {
  const auto size = static_cast<size_t>(blocks_for(num_tokens));
  NEREID_CHECK(size <= table.blocks.size());
  BlockTable child{.blocks = {table.blocks.begin(), table.blocks.begin() + size},
                   .num_published = std::min(table.num_published, num_tokens / tokens_per_block_),
                   .num_passed = table.num_passed,
                   .has_holes = table.has_holes,
                   .last = table.last};
  for (BlockId id : child.blocks)
    if (id != kNoBlock) hold(id);
  if (!tree_.alive(table.last) || child.num_published == 0) {
    child.num_published = 0;
    child.last = {};
  } else {
    NodeId node = table.last.id;
    for (int32_t i = table.num_published; i > child.num_published; --i) node = tree_[node].parent;
    child.last = tree_.ref(node);
  }
  return child;
}

void BlockPool::drop_front(BlockTable& table, int32_t num_positions, int32_t sink) {
  const int32_t end =
      std::min(num_positions / tokens_per_block_, static_cast<int32_t>(table.blocks.size()));
  for (int32_t i = std::max(blocks_for(sink), table.num_passed); i < end; ++i) {
    unhold(std::exchange(table.blocks[i], kNoBlock));
    table.has_holes = true;
  }
  table.num_passed = std::max(table.num_passed, end);
}

void BlockPool::release(BlockTable& table, Release how) {
  if (how == Release::kOffload) offload_table(table);
  for (size_t i = table.blocks.size(); i-- > 0;) {
    const BlockId id = table.blocks[i];
    if (id == kNoBlock) continue;
    if (how == Release::kForget) {
      blocks_[id].suspect = true;
      if (blocks_[id].node != kNoNode) forget(blocks_[id].node);
    }
    unhold(id);
  }
  table = {};
}

// The victim, held once. What it contained moves to the host pool or is forgotten.
BlockId BlockPool::take() {
  const BlockId id = device_.victim();
  NEREID_CHECK(id != kNoBlock);
  if (const NodeId node = blocks_[id].node; node != kNoNode) {
    const int32_t priority = tree_[node].retention.priority;
    if (priority >= config_.offload_min_priority) offload(node, priority);
    if (blocks_[id].node != kNoNode) forget(node);
  }
  hold(id);
  ++stats_.alloc_total;
  return id;
}

void BlockPool::hold(BlockId id) {
  NEREID_CHECK(!on_host(id));
  if (blocks_[id].refs++ == 0) unlink(id);
}

void BlockPool::unhold(BlockId id) {
  NEREID_CHECK(blocks_[id].refs > 0);
  if (--blocks_[id].refs > 0) return;
  blocks_[id].suspect = false;
  link(id);
}

void BlockPool::check(int64_t num_held) const {
  device_.check();
  host_.check();
  tree_.check();
  int64_t refs = 0;
  int32_t held = 0, stored = 0;
  size_t expiring = 0;
  for (BlockId id = 0; id < static_cast<BlockId>(blocks_.size()); ++id) {
    const Block& block = blocks_[id];
    const EvictionLists& level = on_host(id) ? host_ : device_;
    refs += block.refs;
    held += block.refs > 0;
    NEREID_CHECK(block.refs >= 0 && level.contains(id) == (block.refs == 0));
    NEREID_CHECK(block.refs > 0 || !block.suspect);
    NEREID_CHECK(block.refs == 0 || !on_host(id));
    int list = EvictionLists::kEmpty;
    if (block.node != kNoNode) {
      const Node& node = tree_[block.node];
      ++stored;
      NEREID_CHECK(node.serial != 0 && node.block == id && !block.suspect);
      list = EvictionLists::list_for(node.retention.priority);
      const bool expires = block.refs == 0 && node.retention.duration.has_value();
      NEREID_CHECK(expires == (node.expiry != Time::max()));
      expiring += expires;
    }
    NEREID_CHECK(block.refs > 0 || level.list_of(id) == list);
  }
  NEREID_CHECK(refs == num_held);
  NEREID_CHECK(num_free() + held == num_blocks() && host_.size() == num_host_blocks());
  NEREID_CHECK(stored == tree_.num_blocks() && expiring == expiries_.size());
}

}  // namespace nereid::sched
