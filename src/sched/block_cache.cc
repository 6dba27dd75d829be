// BlockPool: contents of blocks - lookup, publishing, retention, moves to and from the host pool.
#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "sched/block_pool.h"

namespace nereid::sched {

TokenRun BlockPool::run_of(const Contents& contents, size_t block) const {
  const auto size = static_cast<size_t>(tokens_per_block_);
  return contents.run().subrun(block * size, size);
}

PrefixHit BlockPool::match(const Contents& contents) const {
  PrefixHit hit;
  if (!config_.enable_reuse) return hit;
  const auto size = static_cast<size_t>(tokens_per_block_);
  const size_t full = std::min(contents.keys.size(), contents.tokens.size() / size);
  hit.num_missed = static_cast<int32_t>(full);
  NodeId at = tree_.find_root(contents.root);
  if (at == kNoNode) return hit;
  std::vector<NodeId> path = {at};
  for (size_t i = 0; i < full; ++i) {
    const NodeId child = tree_.find(path.back(), contents.keys[i], run_of(contents, i));
    if (child == kNoNode) break;
    path.push_back(child);
  }
  path.resize(1 + num_served(std::span(path).subspan(1)));
  at = path.back();
  for (size_t i = 1; i < path.size(); ++i) hit.blocks.push_back(tree_[path[i]].blocks[0]);
  if (!hit.blocks.empty()) hit.last = tree_.ref(at);
  hit.num_tokens = static_cast<int32_t>(hit.blocks.size() * size);
  hit.num_missed -= static_cast<int32_t>(hit.blocks.size());
  if (!config_.enable_partial_reuse) return hit;
  const auto best = tree_.best_child(at, contents.run().subrun(hit.blocks.size() * size));
  if (best.node == kNoNode || is_arriving(tree_[best.node])) return hit;
  hit.partial = tree_.ref(best.node);
  hit.num_tokens += best.num_tokens;
  if (hit.num_missed > 0) --hit.num_missed;
  return hit;
}

// Length of the longest prefix of `path` (which begins below a root) from whose end every group can
// continue: each has all blocks that its window and sinks cover there.
size_t BlockPool::num_served(std::span<const NodeId> path) const {
  size_t served = 0;
  std::array<int32_t, kMaxGroups> run{};  // by group: start of its last run of blocks
  for (size_t i = 0; i < path.size(); ++i) {
    const auto num_blocks = static_cast<int32_t>(i) + 1;
    bool all = true;
    for (size_t g = 1; g < groups_.size(); ++g) {
      const BlockGroupConfig& group = groups_[g].config();
      if (tree_[path[i]].blocks[g] == kNoBlock) {
        if (num_blocks <= blocks_for(group.sink)) return served;
        run[g] = num_blocks;
      }
      all &= run[g] <= group.first_seen(num_blocks * tokens_per_block_) / tokens_per_block_;
    }
    if (all) served = i + 1;
  }
  return served;
}

void BlockPool::publish(BlockTable& table, const Contents& contents, int32_t num_computed) {
  if (!config_.enable_reuse || table.groups[0].has_holes) return;
  const size_t full =
      std::min(contents.keys.size(), static_cast<size_t>(num_computed / tokens_per_block_));
  NEREID_CHECK(full <= table.groups[0].blocks.size() &&
               full * tokens_per_block_ <= contents.tokens.size());
  // The found blocks of another sequence with equal contents may have been evicted since: publish
  // this sequence's own blocks from the start.
  if (table.num_published > 0 && !tree_.alive(table.last)) {
    table.num_published = 0;
    table.last = {};
  }
  while (static_cast<size_t>(table.num_published) < full) {
    const NodeId node = store(table, contents, tokens_per_block_);
    if (node == kNoNode) break;
    ++table.num_published;
    table.last = tree_.ref(node);
  }
}

void BlockPool::publish_tail(BlockTable& table, const Contents& contents, int32_t num_computed) {
  publish(table, contents, num_computed);
  if (!config_.enable_reuse || !config_.enable_partial_reuse) return;
  if (table.groups[0].has_holes) return;
  const int32_t known = std::min(num_computed, static_cast<int32_t>(contents.tokens.size()));
  const int32_t rest = known - table.num_published * tokens_per_block_;
  if (rest > 0 && rest < tokens_per_block_) store(table, contents, rest);
}

// Makes the block after the published ones findable with its first `num_tokens` tokens. Returns the
// node of these contents, or kNoNode when they cannot be stored.
NodeId BlockPool::store(const BlockTable& table, const Contents& contents, int32_t num_tokens) {
  const auto index = static_cast<size_t>(table.num_published);
  const Block& block = groups_[0][table.groups[0].blocks[index]];
  if (block.tainted) return kNoNode;
  const TokenRun run = contents.run().subrun(index * tokens_per_block_, num_tokens);
  const bool tail = num_tokens < tokens_per_block_;
  const BlockKey before = index > 0 ? contents.keys[index - 1] : root_key(contents.root);
  const BlockKey key = tail ? block_key(before, run) : contents.keys[index];
  NodeId parent = index > 0 ? table.last.id : tree_.find_root(contents.root);
  if (parent != kNoNode) {
    const NodeId found = tree_.find(parent, key, run);
    if (found != kNoNode) {
      attach_all(found, table, contents);
      return found;
    }
    if (tail && tree_.best_child(parent, run).num_tokens == num_tokens) return kNoNode;
  }
  // Another holder of the block may have published it at its end.
  if (block.node != kNoNode && tree_[block.node].num_tokens >= num_tokens) return kNoNode;
  if (tree_.has_key(key)) return kNoNode;  // key collision: the contents stored first stay
  if (parent == kNoNode) parent = tree_.add_root(contents.root);
  const NodeId node = tree_.add(parent, key, run);
  attach_all(node, table, contents);
  if (!tree_.is_complete(node)) return node;
  if (const NodeId useless = tree_.subsumed_sibling(node); useless != kNoNode) forget(useless);
  return node;
}

// Gives `node` the table's blocks in the groups where it has none.
void BlockPool::attach_all(NodeId node, const BlockTable& table, const Contents& contents) {
  const auto index = static_cast<size_t>(table.num_published);
  const Retention retention = retention_at(contents.retention, contents.num_prompt,
                                           static_cast<int32_t>(index) * tokens_per_block_);
  for (size_t g = 0; g < groups_.size(); ++g) {
    const BlockId id = table.groups[g].blocks[index];
    if (id == kNoBlock || tree_[node].blocks[g] != kNoBlock || groups_[g][id].tainted) continue;
    const NodeId shorter = groups_[g][id].node;
    groups_[g].fill(id, node, retention);
    tree_[node].blocks[g] = id;
    events_.stored(g, tree_[node], tree_[tree_[node].parent], tree_.run(node).tokens,
                   retention.priority);
    if (shorter == kNoNode) continue;
    tree_[shorter].blocks[g] = kNoBlock;
    if (g == 0) {
      forget(shorter);
    } else {
      events_.removed(g, {tree_[shorter].key});
    }
  }
}

void BlockPool::expire(Time now) {
  now_ = now;
  for (size_t g = 0; g < groups_.size(); ++g) {
    BlockGroup& group = groups_[g];
    while (const auto expired = group.expire(now)) {
      if (expired->changes) tell_updated(g, expired->id);
    }
  }
}

void BlockPool::forget_everything() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<BlockKey> keys;
    for (BlockId id = 0; id < groups_[g].end(); ++id)
      if (groups_[g][id].node != kNoNode) keys.push_back(tree_[groups_[g][id].node].key);
    groups_[g].forget_everything();
    events_.removed(g, std::move(keys));
  }
  tree_.clear();
}

// Changes the retention of a held block.
void BlockPool::retain(size_t g, BlockId id, const Retention& retention) {
  const bool changes = groups_[g][id].retention.priority != retention.priority;
  groups_[g].retain(id, retention);
  if (changes) tell_updated(g, id);
}

void BlockPool::tell_updated(size_t g, BlockId id) {
  const Block& block = groups_[g][id];
  events_.updated(g, tree_[block.node], groups_[g].on_host(id), block.retention.priority);
}

// `from` is empty afterwards, unless no host block was available.
void BlockPool::offload(size_t g, BlockId from) {
  BlockGroup& group = groups_[g];
  const NodeId node = group[from].node;
  const Time expiry = group[from].expiry;
  const BlockId victim = group.host_victim();
  const NodeId candidate = victim == kNoBlock ? kNoNode : group[victim].node;
  // Evicting group 0's block of the parent would remove both.
  if (g == 0 && candidate != kNoNode && candidate == tree_[node].parent) return;
  const BlockId to = take_host(g, group[from].retention.priority);
  if (to == kNoBlock) return;
  // The evicted host block may have held an ancestor; then this node was removed with it.
  const bool alive = group[from].node == node;
  if (alive) move(g, from, to);
  group.link(to, alive ? expiry : Time::max());
}

// Copies a pinned host block to a new device block.
BlockId BlockPool::onboard(size_t g, BlockId from) {
  const BlockId to = take(g);
  move(g, from, to);
  return to;
}

// Both blocks: `from` pinned, `to` held.
void BlockPool::copy_from_host(size_t g, BlockId from, BlockId to) {
  groups_[g].pin(to);
  onboards_.push_back({.from = from, .to = to, .group = static_cast<int32_t>(g)});
}

// A block of the node whose copy has not ended must not be read.
bool BlockPool::is_arriving(const Node& node) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const BlockId id = node.blocks[g];
    if (id != kNoBlock && !groups_[g].on_host(id) && groups_[g][id].pins > 0) return true;
  }
  return false;
}

// Copies the contents and empties `from`; `to` is in no list.
void BlockPool::move(size_t g, BlockId from, BlockId to) {
  BlockGroup& group = groups_[g];
  const NodeId node = group[from].node;
  if (group.on_host(to)) {
    ++stats_.offloaded;
    copies_.push_back({.from = from, .to = to, .group = static_cast<int32_t>(g)});
  } else {
    ++stats_.onboarded;
    copy_from_host(g, from, to);
  }
  group.fill(to, node, group[from].retention);
  group.clear(from);
  tree_[node].blocks[g] = to;
  tell_updated(g, to);
}

// An empty host block in no list; kNoBlock: all host blocks have a priority above `up_to_priority`.
BlockId BlockPool::take_host(size_t g, int32_t up_to_priority) {
  BlockGroup& group = groups_[g];
  const BlockId id = group.host_victim();
  if (id == kNoBlock) return kNoBlock;
  if (group[id].node != kNoNode) {
    if (group[id].retention.priority > up_to_priority) return kNoBlock;
    detach(g, id);
  }
  group.unlink(id);
  return id;
}

// Front first: a prefix is worth more than a suffix. Moved blocks enter the lists after the last
// move, or they would be evicted for the rest.
void BlockPool::offload_table(size_t g, const BlockTable& table) {
  BlockGroup& group = groups_[g];
  std::vector<BlockId> moved;
  for (BlockId id : table.groups[g].blocks) {
    if (id == kNoBlock || group[id].refs > 1 || group[id].node == kNoNode) continue;
    NEREID_CHECK(group[id].pins == 0);
    const BlockId to = take_host(g, kMaxRetention);
    if (to == kNoBlock) break;
    moved.push_back(to);
    // The node may have been removed with an ancestor, as in offload().
    if (group[id].node != kNoNode) move(g, id, to);
  }
  for (size_t i = moved.size(); i-- > 0;) group.link(moved[i], group.expiry_from(moved[i], now_));
}

// Removes the contents of a block from the tree; in group 0 the node with its subtree.
void BlockPool::detach(size_t g, BlockId id) {
  const NodeId node = groups_[g][id].node;
  if (g == 0) return forget(node);
  groups_[g].clear(id);
  tree_[node].blocks[g] = kNoBlock;
  events_.removed(g, {tree_[node].key});
}

// Removes `top` with its subtree.
void BlockPool::forget(NodeId top) {
  removed_.clear();
  tree_.remove(top, removed_);
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<BlockKey> keys;
    for (const RemovedNode& node : removed_) {
      const BlockId id = node.blocks[g];
      if (id != kNoBlock) groups_[g].clear(id);
      if (id != kNoBlock || g == 0) keys.push_back(node.key);
    }
    events_.removed(g, std::move(keys));
  }
}

}  // namespace nereid::sched
