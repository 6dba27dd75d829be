// BlockPool: references to blocks. Contents of blocks are in block_cache.cc.
#include "sched/block_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nereid::sched {

int64_t BlockTable::num_held() const {
  int64_t held = 0;
  for (const Group& group : groups)
    held += std::ranges::count_if(group.blocks, [](BlockId id) { return id != kNoBlock; });
  return held;
}

namespace {

int32_t total_blocks(const std::vector<BlockGroupConfig>& groups) {
  return groups.empty() ? 0 : groups[0].num_blocks + groups[0].num_host_blocks;
}

}  // namespace

BlockPool::BlockPool(const PoolConfig& config)
    : config_(config),
      tokens_per_block_(config.tokens_per_block),
      groups_(config.groups.begin(), config.groups.end()),
      tree_(config.groups.size(), config.tokens_per_block,
            config.enable_reuse ? total_blocks(config.groups) : 0),
      events_(config.event_buffer_size) {
  NEREID_CHECK(are_valid(config.groups));
  NEREID_CHECK(config.tokens_per_block > 0 && config.event_buffer_size >= 0);
  for (size_t g = 0; g < groups_.size(); ++g) events_.created(g, config.groups[g]);
}

bool BlockPool::admit(BlockTable& table, const PrefixHit& hit, const Contents& contents,
                      const std::vector<Reservation>& reservations) {
  NEREID_CHECK(table.empty() && reservations.size() == groups_.size());
  std::vector<NodeId> path;
  for (BlockId id : hit.blocks) path.push_back(groups_[0][id].node);
  for (size_t g = 0; g < groups_.size(); ++g)
    if (!has_room(g, path, hit, reservations[g])) return false;
  // All blocks of the hit leave the eviction lists before a block is taken, which could evict them.
  // The partly matching block stays listed: its bytes last until its group takes a block, and that
  // starts with its copy.
  GroupBlocks partial = kNoBlocks;
  if (hit.partial.valid()) partial = tree_[hit.partial.id].blocks;
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (size_t i = 0; i < path.size(); ++i) {
      if (!takes(g, i, hit.num_tokens)) continue;
      const BlockId id = tree_[path[i]].blocks[g];
      groups_[g].on_host(id) ? groups_[g].pin(id) : groups_[g].hold(id);
    }
  }
  table.groups.resize(groups_.size());
  table.num_published = static_cast<int32_t>(path.size());
  table.last = hit.last;
  stats_.reused += hit.num_reused();
  stats_.missed += hit.num_missed;
  for (size_t g = 0; g < groups_.size(); ++g) {
    admit_group(g, table, path, hit, partial[g], contents);
    NEREID_CHECK(num_missing(g, table, hit.num_tokens, reservations[g].num_tokens) <=
                 static_cast<size_t>(num_free(g)));
    grow(g, table, hit.num_tokens, reservations[g].num_tokens);
  }
  return true;
}

bool BlockPool::has_room(size_t g, std::span<const NodeId> path, const PrefixHit& hit,
                         const Reservation& reservation) const {
  NEREID_CHECK(reservation.num_tokens >= hit.num_tokens);
  const BlockGroup& group = groups_[g];
  int64_t idle = 0, away = 0;
  for (size_t i = 0; i < path.size(); ++i) {
    if (!takes(g, i, hit.num_tokens)) continue;
    const BlockId id = tree_[path[i]].blocks[g];
    away += group.on_host(id);
    idle += !group.on_host(id) && group[id].refs == 0;
  }
  const int64_t fresh =
      blocks_for(reservation.num_tokens) - static_cast<int64_t>(path.size()) + away;
  return idle + fresh + reservation.headroom <= num_free(g);
}

// Whether a table whose first `num_tokens` positions are a hit holds the group's block `block`.
// Group 0 holds all of them, so that the front of a prefix ages as its end does.
bool BlockPool::takes(size_t g, size_t block, int32_t num_tokens) const {
  const BlockGroupConfig& group = groups_[g].config();
  const auto index = static_cast<int32_t>(block);
  return g == 0 || index >= group.first_seen(num_tokens) / tokens_per_block_ ||
         index < blocks_for(group.sink);
}

// Gives `table` the hit's blocks; `partial`: the block whose leading tokens match, or kNoBlock.
void BlockPool::admit_group(size_t g, BlockTable& table, std::span<const NodeId> path,
                            const PrefixHit& hit, BlockId partial, const Contents& contents) {
  BlockTable::Group& own = table.groups[g];
  const BlockId copy = partial != kNoBlock ? take_partial(g, partial) : kNoBlock;
  for (size_t i = 0; i < path.size(); ++i) {
    if (!takes(g, i, hit.num_tokens)) {
      own.blocks.push_back(kNoBlock);
      own.num_passed = static_cast<int32_t>(i) + 1;
      own.has_holes = true;
      continue;
    }
    BlockId id = tree_[path[i]].blocks[g];
    if (groups_[g].on_host(id)) id = onboard(g, id);
    retain(g, id,
           retention_at(contents.retention, contents.num_prompt,
                        static_cast<int32_t>(i) * tokens_per_block_));
    own.blocks.push_back(id);
  }
  if (copy != kNoBlock) own.blocks.push_back(copy);
}

// A new block with the contents of `from`, or `from` itself if it is the only free one.
BlockId BlockPool::take_partial(size_t g, BlockId from) {
  BlockGroup& group = groups_[g];
  if (!group.on_host(from) && group[from].refs == 0 && group.num_free() == 1) {
    ++stats_.alloc_total;
    ++stats_.alloc_new;
    group.hold(from);
    if (group[from].node != kNoNode) detach(g, from);
    return from;
  }
  const bool on_host = group.on_host(from);
  on_host ? group.pin(from) : group.hold(from);
  const BlockId to = take(g);
  ++stats_.copied;
  ++stats_.alloc_new;
  if (on_host) {
    copy_from_host(g, from, to);
  } else {
    copies_.push_back({.from = from, .to = to, .group = static_cast<int32_t>(g)});
    group.unhold(from, now_);
  }
  return to;
}

std::vector<PlanCopy> BlockPool::take_onboards() {
  if (!onboards_.empty()) arriving_.push_back(onboards_);
  return std::exchange(onboards_, {});
}

void BlockPool::end_onboards(bool ok) {
  NEREID_CHECK(!arriving_.empty());
  for (const PlanCopy& copy : arriving_.front()) {
    const auto g = static_cast<size_t>(copy.group);
    if (!ok) {
      if (groups_[g][copy.to].node != kNoNode) detach(g, copy.to);
      groups_[g].set_tainted(copy.to);
    }
    groups_[g].unpin(copy.to, now_);
    groups_[g].unpin(copy.from, now_);
  }
  arriving_.pop_front();
}

template <class Is>
bool BlockPool::any_block(const BlockTable& table, Is is) const {
  for (size_t g = 0; g < table.groups.size(); ++g)
    for (const BlockId id : table.groups[g].blocks)
      if (id != kNoBlock && is(groups_[g][id])) return true;
  return false;
}

bool BlockPool::is_arriving(const BlockTable& table) const {
  if (onboards_.empty() && arriving_.empty()) return false;
  return any_block(table, [](const Block& block) { return block.pins > 0; });
}

bool BlockPool::any_tainted(const BlockTable& table) const {
  return any_block(table, [](const Block& block) { return block.tainted; });
}

bool BlockPool::reserve(BlockTable& table, int32_t first_written, int32_t num_tokens) {
  for (size_t g = 0; g < groups_.size(); ++g)
    if (num_missing(g, table, first_written, num_tokens) > static_cast<size_t>(num_free(g)))
      return false;
  for (size_t g = 0; g < groups_.size(); ++g) grow(g, table, first_written, num_tokens);
  return true;
}

// Number of blocks that grow() takes.
size_t BlockPool::num_missing(size_t g, const BlockTable& table, int32_t first_written,
                              int32_t num_tokens) const {
  const std::vector<BlockId>& blocks = table.groups[g].blocks;
  const auto needed = static_cast<size_t>(blocks_for(num_tokens));
  const size_t kept = std::min(needed, blocks.size());
  size_t fresh = needed - kept;
  for (auto i = static_cast<size_t>(first_written / tokens_per_block_); i < kept; ++i)
    fresh += groups_[g][blocks[i]].refs > 1;
  return fresh;
}

void BlockPool::grow(size_t g, BlockTable& table, int32_t first_written, int32_t num_tokens) {
  stats_.alloc_new += static_cast<int64_t>(num_missing(g, table, first_written, num_tokens));
  std::vector<BlockId>& blocks = table.groups[g].blocks;
  const auto needed = static_cast<size_t>(blocks_for(num_tokens));
  const size_t kept = std::min(needed, blocks.size());
  for (auto i = static_cast<size_t>(first_written / tokens_per_block_); i < kept; ++i)
    make_writable(g, table, i, first_written);
  while (blocks.size() < needed) blocks.push_back(take(g));
}

void BlockPool::make_writable(size_t g, BlockTable& table, size_t index, int32_t first_written) {
  NEREID_CHECK(index >= static_cast<size_t>(table.num_published));
  BlockGroup& group = groups_[g];
  const BlockId id = table.groups[g].blocks[index];
  const int32_t num_kept = first_written - static_cast<int32_t>(index) * tokens_per_block_;
  if (group[id].refs > 1) {
    const BlockId copy = take(g);
    if (num_kept > 0) {
      copies_.push_back({.from = id, .to = copy, .group = static_cast<int32_t>(g)});
      ++stats_.copied;
    }
    if (group[id].tainted) group.set_tainted(copy);
    group.unhold(id, now_);
    table.groups[g].blocks[index] = copy;
  } else if (group[id].node != kNoNode && tree_[group[id].node].num_tokens > num_kept) {
    detach(g, id);
  }
}

BlockTable BlockPool::fork(const BlockTable& table, int32_t num_tokens) {
  const auto size = static_cast<size_t>(blocks_for(num_tokens));
  BlockTable child{.groups = table.groups,
                   .num_published = std::min(table.num_published, num_tokens / tokens_per_block_),
                   .last = table.last};
  for (size_t g = 0; g < groups_.size(); ++g) {
    NEREID_CHECK(size <= child.groups[g].blocks.size());
    child.groups[g].blocks.resize(size);
    for (BlockId id : child.groups[g].blocks)
      if (id != kNoBlock) groups_[g].hold(id);
  }
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

void BlockPool::drop_unseen(BlockTable& table, int32_t num_computed) {
  for (size_t g = 0; g < table.groups.size(); ++g) {
    const BlockGroupConfig& group = groups_[g].config();
    BlockTable::Group& own = table.groups[g];
    const int32_t end = std::min(group.first_seen(num_computed) / tokens_per_block_,
                                 static_cast<int32_t>(own.blocks.size()));
    for (int32_t i = std::max(blocks_for(group.sink), own.num_passed); i < end; ++i) {
      groups_[g].unhold(std::exchange(own.blocks[i], kNoBlock), now_);
      own.has_holes = true;
    }
    own.num_passed = std::max(own.num_passed, end);
  }
}

void BlockPool::trim(BlockTable& table, int32_t num_tokens) {
  const auto size = static_cast<size_t>(blocks_for(num_tokens));
  NEREID_CHECK(static_cast<size_t>(table.num_published) <= size);
  for (size_t g = 0; g < table.groups.size(); ++g) {
    std::vector<BlockId>& blocks = table.groups[g].blocks;
    for (; blocks.size() > size; blocks.pop_back()) groups_[g].unhold(blocks.back(), now_);
  }
}

void BlockPool::release(BlockTable& table, Release how) {
  for (size_t g = 0; g < table.groups.size(); ++g) {
    if (how == Release::kOffload) offload_table(g, table);
    const std::vector<BlockId>& blocks = table.groups[g].blocks;
    for (size_t i = blocks.size(); i-- > 0;) {
      const BlockId id = blocks[i];
      if (id == kNoBlock) continue;
      if (how == Release::kForget) {
        groups_[g].set_tainted(id);
        if (groups_[g][id].node != kNoNode) detach(g, id);
      }
      groups_[g].unhold(id, now_);
    }
  }
  table = {};
}

// The next block to evict, held once; its contents move to the host pool or are removed.
BlockId BlockPool::take(size_t g) {
  BlockGroup& group = groups_[g];
  const BlockId id = group.victim();
  NEREID_CHECK(id != kNoBlock);
  if (group[id].node != kNoNode) {
    if (group[id].retention.priority >= config_.offload_min_priority) offload(g, id);
    if (group[id].node != kNoNode) detach(g, id);
  }
  group.hold(id);
  ++stats_.alloc_total;
  return id;
}

void BlockPool::check(int64_t num_held) const {
  tree_.check();
  int64_t refs = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const BlockGroup& group = groups_[g];
    refs += group.check();
    int32_t stored = 0;
    for (BlockId id = 0; id < group.end(); ++id) {
      if (group[id].node == kNoNode) continue;
      const Node& node = tree_[group[id].node];
      NEREID_CHECK(node.serial != 0 && node.blocks[g] == id && !group[id].tainted);
      ++stored;
    }
    NEREID_CHECK(stored == tree_.num_with_block(g));
  }
  NEREID_CHECK(refs == num_held && tree_.num_with_block(0) == tree_.num_nodes());
}

}  // namespace nereid::sched
