// Prefix cache: a tree of token runs of one block each, found by hash and verified by equality.
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

// Chained hash of a block's tokens and all tokens before it; names a block in events. A hint only:
// every hit is verified by tokens, parent and root.
using BlockKey = uint64_t;
BlockKey root_key(std::string_view root);

// Distinguishes inputs with equal ids, such as rows of different prompt tables: zero for a plain
// token, else a digest of the input.
struct InputKey {
  uint64_t low = 0, high = 0;
  bool operator==(const InputKey&) const = default;
};

// Tokens, and input keys of the leading ones; missing keys are zero.
struct TokenRun {
  std::span<const TokenId> tokens;
  std::span<const InputKey> keys = {};

  TokenRun subrun(size_t first, size_t count = std::dynamic_extent) const;
};

BlockKey block_key(BlockKey parent, const TokenRun& run);  // of the block of `run`

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

// A node id with the serial that detects removal.
struct NodeRef {
  NodeId id = kNoNode;
  uint64_t serial = 0;
  bool valid() const { return id != kNoNode; }
};

struct Node {
  uint64_t serial = 0;  // unique per contents; 0: unused slot
  BlockKey key = 0;
  NodeId parent = kNoNode, first_child = kNoNode;
  NodeId prev = kNoNode, next = kNoNode;  // siblings, newest first
  int32_t num_tokens = 0;                 // < T: tail of a sequence, always a leaf; 0: a root
  // Blocks with the contents; kNoBlock: the group has none. Group 0 always has one.
  GroupBlocks blocks = kNoBlocks;
};

struct RemovedNode {
  BlockKey key = 0;
  GroupBlocks blocks = kNoBlocks;
};

// The parent of a node is the node of the block before it, or the root of its cache salt: a path
// from a root is one prefix.
class PrefixTree {
 public:
  // Siblings compared in a search for a partial match, newest first.
  static constexpr int kMaxSiblings = 32;

  // `num_blocks`: maximum number of nodes, roots excluded.
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
  int32_t num_nodes() const { return static_cast<int32_t>(index_.size()); }  // roots excluded

  NodeId find_root(std::string_view root) const;  // kNoNode: no cached block with this salt
  NodeId add_root(std::string_view root);         // a new root; the caller adds a child at once

  // Some of the roots, all where there are at most `most`; newest first.
  std::vector<NodeId> roots(size_t most) const;

  // The child of `parent` with exactly these tokens and keys.
  NodeId find(NodeId parent, BlockKey key, const TokenRun& run) const;
  bool has_key(BlockKey key) const { return index_.contains(key); }

  struct Match {
    NodeId node = kNoNode;
    int32_t num_tokens = 0;
  };
  // The complete child with the longest common prefix with `run`; no common token: kNoNode.
  Match best_child(NodeId parent, const TokenRun& run) const;

  // A sibling whose tokens are a prefix of those of `node`, which replaces it.
  NodeId subsumed_sibling(NodeId node) const;

  // `key` must be unused; `run` has 1 to T tokens. The caller sets the blocks at once.
  NodeId add(NodeId parent, BlockKey key, const TokenRun& run);

  // Removes `top` with its subtree, appends nodes to `removed`; a root goes with its last child.
  void remove(NodeId top, std::vector<RemovedNode>& removed);
  void clear();

  void check() const;  // ends the process when links and index disagree

 private:
  NodeId new_node();
  void remove_leaf(NodeId id, std::vector<RemovedNode>& removed);

  size_t num_groups_, tokens_per_block_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;                                    // [node, T]
  absl::flat_hash_map<NodeId, std::vector<InputKey>> input_keys_;  // of nodes with keys
  std::vector<NodeId> unused_;
  absl::flat_hash_map<BlockKey, NodeId> index_;  // all nodes, roots excluded
  absl::flat_hash_map<std::string, NodeId> roots_;
  absl::flat_hash_map<NodeId, std::string> root_bytes_;
  uint64_t last_serial_ = 0;
};

}  // namespace nereid::sched
