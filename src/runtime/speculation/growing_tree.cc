#include "runtime/speculation/growing_tree.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace nereid::runtime {

int32_t TreeShape::size() const {
  return is_fixed() ? static_cast<int32_t>(fixed.nodes.size()) : num_drafts;
}

int32_t TreeShape::num_ranks() const {
  int32_t num = top_k;
  for (const DraftTree::Node& node : fixed.nodes) num = std::max(num, node.rank + 1);
  return num;
}

int32_t TreeShape::num_branches() const {
  if (!is_fixed()) return top_k;
  std::vector<int32_t> num_at_depth(static_cast<size_t>(fixed.depth()) + 1);
  std::vector<bool> has_children(fixed.nodes.size());
  for (const DraftTree::Node& node : fixed.nodes)
    if (node.parent >= 0) has_children[static_cast<size_t>(node.parent)] = true;
  for (size_t i = 0; i < has_children.size(); ++i)
    num_at_depth[static_cast<size_t>(fixed.nodes[i].depth)] += has_children[i];
  return std::max(1, std::ranges::max(num_at_depth));
}

void find_token_candidates(const exec::RowResult& result, std::vector<TokenCandidate>& candidates) {
  candidates.clear();
  if (!result.status.ok() || result.drawn.empty() || result.drawn[0].token < 0) return;
  candidates.push_back({.token = result.drawn[0].token});
  const auto top = result.top_of(0);
  for (const kernels::TopToken& one : top)
    if (one.token != result.drawn[0].token) candidates.push_back({.token = one.token});
  for (size_t i = 0; i < std::min(candidates.size(), top.size()); ++i)
    candidates[i].log_prob = top[i].log_prob;
}

void GrowingTree::add(int32_t node, std::span<const TokenCandidate> candidates) {
  const Node from = node == kRoot ? Node{.place = DraftTree::Node().parent} : nodes_[node];
  if (!shape_->is_fixed()) {
    for (const TokenCandidate& candidate :
         candidates.first(std::min<size_t>(candidates.size(), shape_->top_k)))
      nodes_.push_back({.token = candidate.token,
                        .parent = node,
                        .log_prob = from.log_prob + candidate.log_prob});
    return;
  }
  const auto most = std::min(shape_->fixed.nodes.size(), static_cast<size_t>(most_));
  for (size_t place = 0; place < most; ++place) {
    const DraftTree::Node& wanted = shape_->fixed.nodes[place];
    if (wanted.parent != from.place || static_cast<size_t>(wanted.rank) >= candidates.size())
      continue;
    nodes_.push_back({.token = candidates[static_cast<size_t>(wanted.rank)].token,
                      .parent = node,
                      .place = static_cast<int32_t>(place)});
  }
}

// All nodes by descending probability; ties by index, so that parents come first.
std::vector<int32_t> GrowingTree::likeliest() const {
  std::vector<int32_t> order(nodes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(),
                           [&](int32_t i) { return nodes_[static_cast<size_t>(i)].log_prob; });
  order.resize(std::min(order.size(), static_cast<size_t>(std::min(most_, shape_->num_drafts))));
  return order;
}

// A node outside the likeliest has no successors among them.
std::vector<int32_t> GrowingTree::next() {
  std::vector<int32_t> next;
  const auto first = static_cast<int32_t>(std::exchange(first_, nodes_.size()));
  if (++num_depths_ >= depth_) return next;
  if (!shape_->is_fixed()) {
    if (num_depths_ >= shape_->depth) return next;
    for (const int32_t node : likeliest())
      if (node >= first && next.size() < static_cast<size_t>(shape_->top_k)) next.push_back(node);
    return next;
  }
  const auto& places = shape_->fixed.nodes;
  const auto end = places.begin() + std::min<ptrdiff_t>(std::ssize(places), most_);
  for (auto i = first; i < static_cast<int32_t>(nodes_.size()); ++i) {
    const int32_t place = nodes_[static_cast<size_t>(i)].place;
    if (std::find_if(places.begin(), end,
                     [&](const DraftTree::Node& node) { return node.parent == place; }) != end)
      next.push_back(i);
  }
  return next;
}

int32_t GrowingTree::depth(int32_t node) const {
  int32_t depth = 0;
  for (; node != kRoot; node = parent(node)) ++depth;
  return depth;
}

std::vector<TokenId> GrowingTree::path(int32_t node) const {
  std::vector<TokenId> tokens;
  for (; node != kRoot; node = parent(node)) tokens.push_back(token(node));
  std::ranges::reverse(tokens);
  return tokens;
}

void GrowingTree::answer(std::vector<TokenId>& drafts, std::vector<int32_t>& parents) const {
  std::vector<int32_t> order;
  if (shape_->is_fixed()) {
    order.resize(nodes_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto place = [&](int32_t i) { return nodes_[static_cast<size_t>(i)].place; };
    std::ranges::sort(order, {}, place);
    for (size_t i = 0; i < order.size(); ++i)  // prefix before the first missing place
      if (place(order[i]) != static_cast<int32_t>(i)) order.resize(i);
  } else {
    order = likeliest();
  }
  for (const int32_t node : order) {
    drafts.push_back(token(node));
    if (shape_->is_chain()) continue;
    const auto before = std::ranges::find(order, parent(node));
    parents.push_back(before == order.end() ? kRoot : static_cast<int32_t>(before - order.begin()));
  }
}

}  // namespace nereid::runtime
