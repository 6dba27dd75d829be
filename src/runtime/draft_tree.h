// The shape of a tree of drafts: which guess comes after which.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::runtime {

struct DraftTree {
  struct Node {
    int32_t parent = -1;  // a node before it; -1: it comes after the tokens that are known
    int32_t depth = 1;    // of the nodes from the first one on that lead to it
    int32_t rank = 0;     // among the guesses for its position, 0 = the likeliest
  };
  std::vector<Node> nodes;  // so many from the first one on are a tree as well

  // The likeliest guess for each position.
  static DraftTree chain(int32_t length);

  bool is_chain() const;
  int32_t depth() const;
};

// TensorRT-LLM's text for it: "{0}, {0, 0}, {1}" are the nodes, each as the ranks that lead to it;
// a comma at the end is fine. Order is kept, but that parents stand before their children.
// InvalidArgument, naming what stands where: anything else, ranks outside [0, kMaxTopTokens), a
// node without its parent or twice, none or more than exec::kMaxTreeDrafts of them.
StatusOr<DraftTree> parse_draft_tree(std::string_view text);

}  // namespace nereid::runtime
