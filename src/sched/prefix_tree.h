// What cached blocks contain: a tree of token runs, found by hash and verified by equality.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "nereid/request.h"
#include "sched/cache_group.h"

namespace nereid::sched {

// Chained hash of a block's tokens and of all that is before it; names a block in events. A hint
// only: every hit is compared by tokens, parent and root.
using BlockKey = uint64_t;
BlockKey root_key(std::string_view root);

// Tells apart inputs that have the same id, such as rows of different prompt tables: all zero for a
// token that is nothing but its id, else a digest that stands for the whole input.
struct InputKey {
  uint64_t low = 0, high = 0;
  bool operator==(const InputKey&) const = default;
};

// Tokens, and the keys of the leading ones; those behind have none.
struct TokenRun {
  std::span<const TokenId> tokens;
  std::span<const InputKey> keys = {};

  TokenRun subrun(size_t first, size_t count = std::dynamic_extent) const;
};

BlockKey block_key(BlockKey parent, const TokenRun& run);  // of the block of `run`

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

// A node that may have gone since.
struct NodeRef {
  NodeId id = kNoNode;
  uint64_t serial = 0;
  bool valid() const { return id != kNoNode; }
};

struct Node {
  uint64_t serial = 0;  // names these contents; 0 = the slot is unused
  BlockKey key = 0;
  NodeId parent = kNoNode, first_child = kNoNode;
  NodeId prev = kNoNode, next = kNoNode;  // siblings, newest first
  int32_t num_tokens = 0;  // below T: the tail of a sequence, always a leaf; 0: a root
  // Where the contents are; kNoBlock: this group has given them away. Group 0 always has them.
  GroupBlocks blocks = kNoBlocks;
};

struct RemovedNode {
  BlockKey key = 0;
  GroupBlocks blocks = kNoBlocks;
};

// Each node hangs below the node of the block before it, first blocks below the root of their
// salt, so a path from a root is exactly one prefix and nothing is kept that cannot be found.
class PrefixTree {
 public:
  // Siblings that a search for the best partial match looks at, newest first.
  static constexpr int kMaxSiblings = 32;

  // `num_blocks`: nodes there can be, roots aside.
  PrefixTree(size_t num_groups, int32_t tokens_per_block, int32_t num_blocks);

  const Node& operator[](NodeId id) const { return nodes_[id]; }
  Node& operator[](NodeId id) { return nodes_[id]; }
  NodeRef ref(NodeId id) const { return {id, nodes_[id].serial}; }
  bool alive(NodeRef ref) const {
    return ref.valid() && ref.id < static_cast<NodeId>(nodes_.size()) &&
           nodes_[ref.id].serial == ref.serial;
  }
  bool is_root(NodeId id) const { return nodes_[id].num_tokens == 0; }
  bool is_complete(NodeId id) const;  // every group has a block of it
  TokenRun run(NodeId id) const;
  int32_t num_with_block(size_t group) const;
  int32_t num_nodes() const { return static_cast<int32_t>(index_.size()); }  // without roots

  NodeId find_root(std::string_view root) const;  // kNoNode: nothing is cached under it
  NodeId add_root(std::string_view root);         // a new one; the caller adds a child at once

  // The child of `parent` that holds exactly this.
  NodeId find(NodeId parent, BlockKey key, const TokenRun& run) const;
  bool has_key(BlockKey key) const { return index_.contains(key); }

  struct Match {
    NodeId node = kNoNode;
    int32_t num_tokens = 0;
  };
  // The complete child with the most leading tokens in common with `run`; none in common: no node.
  Match best_child(NodeId parent, const TokenRun& run) const;

  // A sibling whose tokens `node` begins with, so that it is of no more use.
  NodeId subsumed_sibling(NodeId node) const;

  // `key` is not in use; 1 to T tokens. The caller sets its blocks at once.
  NodeId add(NodeId parent, BlockKey key, const TokenRun& run);

  // Takes `top` and all below it away and appends them to `removed`; a root goes with its last
  // child.
  void remove(NodeId top, std::vector<RemovedNode>& removed);
  void clear();

  void check() const;  // ends the process when links and index disagree

 private:
  NodeId new_node();
  void remove_leaf(NodeId id, std::vector<RemovedNode>& removed);

  size_t num_groups_, tokens_per_block_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;                                    // [node, T]
  absl::flat_hash_map<NodeId, std::vector<InputKey>> input_keys_;  // of nodes that have some
  std::vector<NodeId> unused_;
  absl::flat_hash_map<BlockKey, NodeId> index_;  // all nodes but the roots
  absl::flat_hash_map<std::string, NodeId> roots_;
  absl::flat_hash_map<NodeId, std::string> root_bytes_;
  uint64_t last_serial_ = 0;
};

}  // namespace nereid::sched
