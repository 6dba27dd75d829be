// A tree of drafts while its proposer computes it, one depth after the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/runner.h"
#include "nereid/request.h"
#include "runtime/draft_tree.h"

namespace nereid::runtime {

// Which of the guesses become drafts.
struct TreeShape {
  DraftTree fixed;  // always these places (a chain, say); without nodes: by the guesses' chances
  // EAGLE-2 (Li et al. 2024, "Faster Inference of Language Models with Dynamic Draft Trees"): at
  // each depth the `top_k` drafts that are likeliest with all before them get `top_k` guesses each;
  // of all guesses the `num_drafts` likeliest are tested.
  int32_t top_k = 0;
  int32_t depth = 0;
  int32_t num_drafts = 0;

  bool is_fixed() const { return !fixed.nodes.empty(); }
  bool is_chain() const { return is_fixed() && fixed.is_chain(); }
  int32_t size() const;          // drafts at most
  int32_t num_ranks() const;     // guesses behind a draft at most
  int32_t num_branches() const;  // drafts of one depth at most that get guesses
};

// A guess of what comes next, and its log-probability.
struct Guess {
  TokenId token = 0;
  float log_prob = 0;
};

// What a row of a head's step gave, whose parameters are add_draft_params(): what it drew, which
// counts as the likeliest, then the likeliest others; none where nothing can be drawn.
void find_guesses(const exec::RowResult& result, std::vector<Guess>& guesses);

class GrowingTree {
 public:
  static constexpr int32_t kRoot = -1;  // the tokens that are known

  // A tree of at most `most` drafts, none deeper than `depth`. The shape must outlive it.
  GrowingTree(const TreeShape& shape, int32_t most, int32_t depth)
      : shape_(&shape), most_(most), depth_(depth) {}

  // What comes after a node (kRoot at first): the likeliest first, no token twice.
  void add(int32_t node, std::span<const Guess> guesses);

  // Ends a depth: the nodes whose guesses are wanted next, of the depth just added.
  std::vector<int32_t> next();

  TokenId token(int32_t node) const { return nodes_[static_cast<size_t>(node)].token; }
  int32_t parent(int32_t node) const { return nodes_[static_cast<size_t>(node)].parent; }
  int32_t depth(int32_t node) const;              // 1: behind the root
  std::vector<TokenId> path(int32_t node) const;  // the tokens from the root to the node

  // The drafts, parents in front of their children: at the places of a fixed shape, as far as there
  // are guesses, or the likeliest first. `parents` stays empty for a chain.
  void answer(std::vector<TokenId>& drafts, std::vector<int32_t>& parents) const;

 private:
  struct Node {
    TokenId token = 0;
    int32_t parent = kRoot;
    int32_t place = 0;   // of a fixed shape
    float log_prob = 0;  // of the path up to here
  };

  std::vector<int32_t> likeliest() const;

  const TreeShape* shape_;
  int32_t most_, depth_;
  int32_t num_depths_ = 0;  // that have been ended
  size_t first_ = 0;        // node of the depth that is added now
  std::vector<Node> nodes_;
};

}  // namespace nereid::runtime
