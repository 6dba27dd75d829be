// The shape of a draft tree.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::runtime {

struct DraftTree {
  struct Node {
    int32_t parent = -1;  // an earlier node; -1: the root (the last known token)
    int32_t depth = 1;    // nodes on the path from the root, itself included
    int32_t rank = 0;     // rank among the candidates for its position, 0 = the likeliest
  };
  std::vector<Node> nodes;  // every prefix is a tree

  // The likeliest candidate at each depth.
  static DraftTree chain(int32_t length);

  bool is_chain() const;
  int32_t depth() const;
};

// TensorRT-LLM's text format: "{0}, {0, 0}, {1}" lists the nodes by the ranks on their paths; a
// trailing comma is allowed. Order is kept, except that parents come before children.
// InvalidArgument with the place: other text, ranks outside [0, kMaxTopTokens), a node without its
// parent or twice, zero or more than exec::kMaxTreeDrafts nodes.
StatusOr<DraftTree> parse_draft_tree(std::string_view text);

}  // namespace nereid::runtime
