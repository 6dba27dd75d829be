// BlockPool: what blocks contain - finding, publishing, keeping, moving between the levels.
#include <algorithm>

#include "base/check.h"
#include "sched/block_pool.h"

namespace nereid::sched {

std::span<const TokenId> BlockPool::tokens_of(const Contents& contents, size_t block) const {
  const auto size = static_cast<size_t>(tokens_per_block_);
  return contents.tokens.subspan(block * size, size);
}

PrefixHit BlockPool::match(const Contents& contents) const {
  PrefixHit hit;
  if (!config_.enable_reuse) return hit;
  const auto size = static_cast<size_t>(tokens_per_block_);
  const size_t full = std::min(contents.keys.size(), contents.tokens.size() / size);
  hit.num_missed = static_cast<int32_t>(full);
  NodeId at = tree_.find_root(contents.root);
  if (at == kNoNode) return hit;
  for (size_t i = 0; i < full; ++i) {
    const NodeId child = tree_.find(at, contents.keys[i], tokens_of(contents, i));
    if (child == kNoNode) break;
    hit.blocks.push_back(tree_[child].block);
    hit.last = tree_.ref(child);
    at = child;
  }
  hit.num_tokens = static_cast<int32_t>(hit.blocks.size() * size);
  hit.num_missed -= static_cast<int32_t>(hit.blocks.size());
  if (!config_.enable_partial_reuse) return hit;
  const auto best = tree_.best_child(at, contents.tokens.subspan(hit.blocks.size() * size));
  if (best.node == kNoNode) return hit;
  hit.partial = tree_.ref(best.node);
  hit.num_tokens += best.num_tokens;
  if (hit.num_missed > 0) --hit.num_missed;
  return hit;
}

void BlockPool::publish(BlockTable& table, const Contents& contents, int32_t num_computed) {
  if (!config_.enable_reuse || table.has_holes) return;
  const size_t full =
      std::min(contents.keys.size(), static_cast<size_t>(num_computed / tokens_per_block_));
  NEREID_CHECK(full <= table.blocks.size() && full * tokens_per_block_ <= contents.tokens.size());
  // When another sequence's blocks with the same contents were found instead of this one's, they
  // may have been evicted since: begin again with the own ones.
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
  if (!config_.enable_reuse || !config_.enable_partial_reuse || table.has_holes) return;
  const int32_t known = std::min(num_computed, static_cast<int32_t>(contents.tokens.size()));
  const int32_t rest = known - table.num_published * tokens_per_block_;
  if (rest > 0 && rest < tokens_per_block_) store(table, contents, rest);
}

// Makes the block after the published ones findable with its first `num_tokens` tokens. The node
// that now stands for these contents, or kNoNode when they cannot be told.
NodeId BlockPool::store(const BlockTable& table, const Contents& contents, int32_t num_tokens) {
  const auto index = static_cast<size_t>(table.num_published);
  const BlockId id = table.blocks[index];
  if (blocks_[id].suspect) return kNoNode;
  const auto tokens = contents.tokens.subspan(index * tokens_per_block_, num_tokens);
  const bool tail = num_tokens < tokens_per_block_;
  const BlockKey before = index > 0 ? contents.keys[index - 1] : root_key(contents.root);
  const BlockKey key = tail ? block_key(before, tokens) : contents.keys[index];
  NodeId parent = index > 0 ? table.last.id : tree_.find_root(contents.root);
  if (parent != kNoNode) {
    const NodeId found = tree_.find(parent, key, tokens);
    if (found != kNoNode) return found;
    if (tail && tree_.best_child(parent, tokens).num_tokens == num_tokens) return kNoNode;
  }
  const NodeId shorter = blocks_[id].node;  // published when another holder of the block ended
  if (shorter != kNoNode && tree_[shorter].num_tokens >= num_tokens) return kNoNode;
  if (tree_.has_key(key)) return kNoNode;  // other contents collide with these: the first ones stay
  if (parent == kNoNode) parent = tree_.add_root(contents.root);
  const NodeId node = tree_.add(parent, key, tokens, id);
  blocks_[id].node = node;
  tree_[node].retention = retention_at(contents.retention, contents.num_prompt,
                                       static_cast<int32_t>(index) * tokens_per_block_);
  events_.stored(tree_[node], tree_[parent], tokens);
  if (shorter != kNoNode) {
    tree_[shorter].block = kNoBlock;
    forget(shorter);
  }
  if (const NodeId useless = tree_.subsumed_sibling(node); useless != kNoNode) forget(useless);
  return node;
}

void BlockPool::expire(Time now) {
  now_ = now;
  for (NodeId id = expiries_.pop(now); id != kNoNode; id = expiries_.pop(now)) {
    Node& node = tree_[id];
    const bool changes = node.retention.priority != Retention{}.priority;
    node.retention = {};
    node.expiry = Time::max();
    level_of(node.block).move(node.block, EvictionLists::list_for(node.retention.priority));
    if (changes) events_.updated(node, on_host(node.block));
  }
}

void BlockPool::forget_everything() {
  removed_.clear();
  for (BlockId id = 0; id < static_cast<BlockId>(blocks_.size()); ++id) {
    Block& block = blocks_[id];
    block.suspect = block.refs > 0;
    if (block.node == kNoNode) continue;
    removed_.push_back({.id = block.node, .block = id, .key = tree_[block.node].key});
    block.node = kNoNode;
    if (block.refs == 0) level_of(id).move(id, EvictionLists::kEmpty);
  }
  tree_.clear();
  expiries_.clear();
  events_.removed(removed_);
}

// A block that nobody holds any more becomes the youngest of its list.
void BlockPool::link(BlockId id) {
  if (blocks_[id].node == kNoNode) return level_of(id).push(id, EvictionLists::kEmpty);
  Node& node = tree_[blocks_[id].node];
  level_of(id).push(id, EvictionLists::list_for(node.retention.priority));
  if (!node.retention.duration) return;
  node.expiry = now_ + *node.retention.duration;
  expiries_.add(node.expiry, blocks_[id].node);
}

void BlockPool::unlink(BlockId id) {
  level_of(id).remove(id);
  if (blocks_[id].node == kNoNode) return;
  Node& node = tree_[blocks_[id].node];
  if (node.expiry == Time::max()) return;
  expiries_.remove(node.expiry, blocks_[id].node);
  node.expiry = Time::max();
}

// Of a block that is held.
void BlockPool::retain(NodeId id, const Retention& retention) {
  Node& node = tree_[id];
  const bool changes = node.retention.priority != retention.priority;
  node.retention = retention;
  if (changes) events_.updated(node, 0);
}

// The device block of `node` is empty afterwards, unless no host block could be had.
void BlockPool::offload(NodeId node, int32_t up_to_priority) {
  const BlockId from = tree_[node].block;
  const NodeId candidate = host_.size() > 0 ? blocks_[host_.victim()].node : kNoNode;
  if (candidate != kNoNode && candidate == tree_[node].parent) return;  // both would be lost
  const BlockId to = take_host(up_to_priority);
  if (to == kNoBlock) return;
  // The block that was taken may have held an ancestor, and then these contents went with it.
  if (blocks_[from].node == node) move(node, to);
  host_.push(to, list_of(to));
}

void BlockPool::onboard(NodeId node) {
  const BlockId from = tree_[node].block;
  move(node, take());
  link(from);
}

// Copies the contents and leaves the old block empty; the lists are the caller's business.
void BlockPool::move(NodeId id, BlockId to) {
  Node& node = tree_[id];
  const BlockId from = node.block;
  copies_.push_back({.from = from, .to = to});
  ++(on_host(to) ? stats_.offloaded : stats_.onboarded);
  blocks_[from].node = kNoNode;
  blocks_[to].node = id;
  node.block = to;
  events_.updated(node, on_host(to));
}

int BlockPool::list_of(BlockId id) const {
  const NodeId node = blocks_[id].node;
  return node == kNoNode ? EvictionLists::kEmpty
                         : EvictionLists::list_for(tree_[node].retention.priority);
}

// An unlinked empty host block; kNoBlock: none whose contents have at most this priority.
BlockId BlockPool::take_host(int32_t up_to_priority) {
  const BlockId id = host_.victim();
  if (id == kNoBlock) return kNoBlock;
  if (const NodeId node = blocks_[id].node; node != kNoNode) {
    if (tree_[node].retention.priority > up_to_priority) return kNoBlock;
    forget(node);
  }
  host_.remove(id);
  return id;
}

// From the front, because a prefix is worth more than a suffix; what was moved is not in the lists
// before all is done, or it would have to make room for the rest.
void BlockPool::offload_table(const BlockTable& table) {
  std::vector<BlockId> moved;
  for (BlockId id : table.blocks) {
    if (id == kNoBlock || blocks_[id].refs > 1 || blocks_[id].node == kNoNode) continue;
    const BlockId to = take_host(kMaxRetention);
    if (to == kNoBlock) break;
    moved.push_back(to);
    // As in offload(), the contents may have gone with an ancestor.
    if (blocks_[id].node != kNoNode) move(blocks_[id].node, to);
  }
  for (size_t i = moved.size(); i-- > 0;) link(moved[i]);
}

// Takes `top` and what is below it out of the tree.
void BlockPool::forget(NodeId top) {
  removed_.clear();
  tree_.remove(top, removed_);
  for (const RemovedNode& node : removed_) {
    if (node.expiry != Time::max()) expiries_.remove(node.expiry, node.id);
    if (node.block == kNoBlock) continue;
    blocks_[node.block].node = kNoNode;
    EvictionLists& level = level_of(node.block);
    if (level.contains(node.block)) level.move(node.block, EvictionLists::kEmpty);
  }
  events_.removed(removed_);
}

}  // namespace nereid::sched
