// A draft tree under construction, one depth after another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "exec/runner.h"
#include "nereid/request.h"
#include "runtime/speculation/draft_tree.h"

namespace nereid::runtime {

// Selection of the candidate tokens that become drafts.
struct TreeShape {
  DraftTree fixed;  // fixed places (e.g. a chain); without nodes: EAGLE-2
  // EAGLE-2 (Li et al. 2024, "Faster Inference of Language Models with Dynamic Draft Trees"): at
  // each depth the `top_k` likeliest drafts (by the probability of their path) get `top_k`
  // candidates each; the `num_drafts` likeliest candidates are tested.
  int32_t top_k = 0;
  int32_t depth = 0;
  int32_t num_drafts = 0;

  bool is_fixed() const { return !fixed.nodes.empty(); }
  bool is_chain() const { return is_fixed() && fixed.is_chain(); }
  int32_t size() const;          // maximum number of drafts
  int32_t num_ranks() const;     // maximum number of candidates behind a draft
  int32_t num_branches() const;  // maximum number of drafts per depth with candidates
};

// A candidate for the next token and its log-probability.
struct TokenCandidate {
  TokenId token = 0;
  float log_prob = 0;
};

// Candidates of a row whose slot was loaded by add_draft_params(): the sampled token, which counts
// as the likeliest, then the likeliest others; empty if nothing can be sampled.
void find_token_candidates(const exec::RowResult& result, std::vector<TokenCandidate>& candidates);

class GrowingTree {
 public:
  static constexpr int32_t kRoot = -1;  // the last known token

  // A tree of at most `most` drafts and depth <= `depth`. The shape must outlive it.
  GrowingTree(const TreeShape& shape, int32_t most, int32_t depth)
      : shape_(&shape), most_(most), depth_(depth) {}

  // The candidates behind a node (first kRoot), likeliest first, distinct.
  void add(int32_t node, std::span<const TokenCandidate> candidates);

  // Ends a depth; returns the nodes of it that need candidates.
  std::vector<int32_t> next();

  TokenId token(int32_t node) const { return nodes_[static_cast<size_t>(node)].token; }
  int32_t parent(int32_t node) const { return nodes_[static_cast<size_t>(node)].parent; }
  int32_t depth(int32_t node) const;              // 1: child of the root
  std::vector<TokenId> path(int32_t node) const;  // tokens from the root to the node

  // The drafts, parents before children: the places of a fixed shape that have candidates, or the
  // likeliest first. `parents` stays empty for a chain.
  void answer(std::vector<TokenId>& drafts, std::vector<int32_t>& parents) const;

 private:
  struct Node {
    TokenId token = 0;
    int32_t parent = kRoot;
    int32_t place = 0;   // index in a fixed shape
    float log_prob = 0;  // sum over the path
  };

  std::vector<int32_t> likeliest() const;

  const TreeShape* shape_;
  int32_t most_, depth_;
  int32_t num_depths_ = 0;  // completed depths
  size_t first_ = 0;        // first node of the current depth
  std::vector<Node> nodes_;
};

}  // namespace nereid::runtime
