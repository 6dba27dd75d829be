// PrefixTree: intrusive sibling lists over reused node slots.
#include "sched/prefix_tree.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/hash.h"

namespace nereid::sched {
namespace {

InputKey key_at(const TokenRun& run, size_t i) {
  return i < run.keys.size() ? run.keys[i] : InputKey();
}

// The keys up to the last one that is not zero.
std::span<const InputKey> keys_of(const TokenRun& run) {
  size_t size = run.keys.size();
  while (size > 0 && run.keys[size - 1] == InputKey()) --size;
  return run.keys.first(size);
}

int32_t common_prefix(const TokenRun& a, const TokenRun& b) {
  const auto same = std::ranges::mismatch(a.tokens, b.tokens).in1 - a.tokens.begin();
  if (a.keys.empty() && b.keys.empty()) return static_cast<int32_t>(same);
  for (int32_t i = 0; i < same; ++i)
    if (key_at(a, i) != key_at(b, i)) return i;
  return static_cast<int32_t>(same);
}

}  // namespace

BlockKey root_key(std::string_view root) { return root.empty() ? 0 : hash64(root); }

TokenRun TokenRun::subrun(size_t first, size_t count) const {
  const auto rest = keys.subspan(std::min(first, keys.size()));
  return {tokens.subspan(first, count), rest.first(std::min(count, rest.size()))};
}

BlockKey block_key(BlockKey parent, const TokenRun& run) {
  const BlockKey key = hash64(run.tokens.data(), run.tokens.size_bytes(), parent);
  const auto keys = keys_of(run);
  // Complemented seed: keys must not hash like further tokens.
  return keys.empty() ? key : hash64(keys.data(), keys.size_bytes(), ~key);
}

PrefixTree::PrefixTree(size_t num_groups, int32_t tokens_per_block, int32_t num_blocks)
    : num_groups_(num_groups), tokens_per_block_(static_cast<size_t>(tokens_per_block)) {
  nodes_.reserve(num_blocks);
  tokens_.reserve(num_blocks * tokens_per_block_);
  index_.reserve(num_blocks);
}

TokenRun PrefixTree::run(NodeId id) const {
  TokenRun run{std::span(tokens_).subspan(id * tokens_per_block_, nodes_[id].num_tokens)};
  if (input_keys_.empty()) return run;
  if (const auto found = input_keys_.find(id); found != input_keys_.end()) run.keys = found->second;
  return run;
}

bool PrefixTree::is_complete(NodeId id) const {
  const auto blocks = std::span(nodes_[id].blocks).first(num_groups_);
  return std::ranges::find(blocks, kNoBlock) == blocks.end();
}

int32_t PrefixTree::num_with_block(size_t group) const {
  return static_cast<int32_t>(std::ranges::count_if(
      nodes_, [group](const Node& node) { return node.blocks[group] != kNoBlock; }));
}

NodeId PrefixTree::find_root(std::string_view root) const {
  const auto found = roots_.find(absl::string_view(root.data(), root.size()));
  return found == roots_.end() ? kNoNode : found->second;
}

NodeId PrefixTree::add_root(std::string_view root) {
  const NodeId id = new_node();
  nodes_[id].key = root_key(root);
  NEREID_CHECK(roots_.emplace(std::string(root), id).second);
  root_bytes_.emplace(id, root);
  return id;
}

std::vector<NodeId> PrefixTree::roots(size_t most) const {
  std::vector<NodeId> ids;
  for (auto root = roots_.begin(); root != roots_.end() && ids.size() < most; ++root)
    ids.push_back(root->second);
  std::ranges::sort(ids, std::ranges::greater(), [&](NodeId id) { return nodes_[id].serial; });
  return ids;
}

NodeId PrefixTree::find(NodeId parent, BlockKey key, const TokenRun& run) const {
  const auto found = index_.find(key);
  if (found == index_.end()) return kNoNode;
  const NodeId id = found->second;
  const TokenRun own = this->run(id);
  const bool same = nodes_[id].parent == parent && own.tokens.size() == run.tokens.size() &&
                    static_cast<size_t>(common_prefix(own, run)) == run.tokens.size();
  return same ? id : kNoNode;
}

PrefixTree::Match PrefixTree::best_child(NodeId parent, const TokenRun& run) const {
  Match best;
  int seen = 0;
  for (NodeId id = nodes_[parent].first_child; id != kNoNode && seen < kMaxSiblings;
       id = nodes_[id].next, ++seen) {
    const int32_t n = common_prefix(this->run(id), run);
    if (n > best.num_tokens && is_complete(id)) best = {id, n};
  }
  return best;
}

NodeId PrefixTree::subsumed_sibling(NodeId node) const {
  int seen = 0;
  for (NodeId id = nodes_[nodes_[node].parent].first_child; id != kNoNode && seen < kMaxSiblings;
       id = nodes_[id].next, ++seen) {
    if (nodes_[id].num_tokens < nodes_[node].num_tokens &&
        common_prefix(run(id), run(node)) == nodes_[id].num_tokens)
      return id;
  }
  return kNoNode;
}

NodeId PrefixTree::add(NodeId parent, BlockKey key, const TokenRun& run) {
  const auto& tokens = run.tokens;
  NEREID_CHECK(!tokens.empty() && tokens.size() <= tokens_per_block_);
  NEREID_CHECK(is_root(parent) || this->run(parent).tokens.size() == tokens_per_block_);
  const NodeId id = new_node();
  Node& node = nodes_[id];
  node.key = key;
  node.parent = parent;
  node.num_tokens = static_cast<int32_t>(tokens.size());
  node.next = nodes_[parent].first_child;
  if (node.next != kNoNode) nodes_[node.next].prev = id;
  nodes_[parent].first_child = id;
  std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(id * tokens_per_block_));
  if (const auto keys = keys_of(run); !keys.empty())
    input_keys_[id].assign(keys.begin(), keys.end());
  NEREID_CHECK(index_.emplace(key, id).second);
  return id;
}

void PrefixTree::remove(NodeId top, std::vector<RemovedNode>& removed) {
  const NodeId above = nodes_[top].parent;
  for (NodeId id = top; id != above;) {
    while (nodes_[id].first_child != kNoNode) id = nodes_[id].first_child;
    const NodeId parent = nodes_[id].parent;
    remove_leaf(id, removed);
    id = parent;
  }
  if (!is_root(above) || nodes_[above].first_child != kNoNode) return;
  roots_.erase(root_bytes_.at(above));
  root_bytes_.erase(above);
  nodes_[above] = {};
  unused_.push_back(above);
}

void PrefixTree::remove_leaf(NodeId id, std::vector<RemovedNode>& removed) {
  Node& node = nodes_[id];
  removed.push_back({.key = node.key, .blocks = node.blocks});
  if (node.next != kNoNode) nodes_[node.next].prev = node.prev;
  if (node.prev != kNoNode) {
    nodes_[node.prev].next = node.next;
  } else {
    nodes_[node.parent].first_child = node.next;
  }
  index_.erase(node.key);
  input_keys_.erase(id);
  node = {};
  unused_.push_back(id);
}

void PrefixTree::clear() {
  nodes_.clear();
  tokens_.clear();
  input_keys_.clear();
  unused_.clear();
  index_.clear();
  roots_.clear();
  root_bytes_.clear();
}

NodeId PrefixTree::new_node() {
  NodeId id = static_cast<NodeId>(nodes_.size());
  if (unused_.empty()) {
    nodes_.emplace_back();
    tokens_.resize(nodes_.size() * tokens_per_block_);
  } else {
    id = unused_.back();
    unused_.pop_back();
  }
  nodes_[id].serial = ++last_serial_;
  return id;
}

void PrefixTree::check() const {
  size_t used = 0, roots = 0, below = 0;
  for (NodeId id = 0; id < static_cast<NodeId>(nodes_.size()); ++id) {
    const Node& node = nodes_[id];
    if (node.serial == 0) continue;
    ++used;
    NodeId before = kNoNode;
    for (NodeId child = node.first_child; child != kNoNode; child = nodes_[child].next, ++below) {
      NEREID_CHECK(nodes_[child].parent == id && nodes_[child].prev == before);
      before = child;
    }
    if (is_root(id)) {
      ++roots;
      NEREID_CHECK(node.first_child != kNoNode && node.parent == kNoNode);
    } else {
      const auto found = index_.find(node.key);
      NEREID_CHECK(found != index_.end() && found->second == id);
      NEREID_CHECK(nodes_[node.parent].serial != 0 && node.blocks[0] != kNoBlock);
      NEREID_CHECK(node.first_child == kNoNode || run(id).tokens.size() == tokens_per_block_);
    }
  }
  for (const auto& [id, keys] : input_keys_)
    NEREID_CHECK(keys.size() <= run(id).tokens.size() && keys_of(run(id)).size() == keys.size());
  NEREID_CHECK(roots == roots_.size() && used == roots + index_.size() && below == index_.size());
  NEREID_CHECK(used + unused_.size() == nodes_.size());
}

}  // namespace nereid::sched
