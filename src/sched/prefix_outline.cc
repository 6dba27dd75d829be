// Outline of the prefix tree: a walk from the roots that joins blocks without a branch into runs.
#include <deque>

#include "sched/block_pool.h"

namespace nereid::sched {
namespace {

// A block that begins a run, and the run that it continues.
struct RunStart {
  NodeId node = kNoNode;
  int32_t parent = -1;
};

}  // namespace

PrefixTreeOutline BlockPool::outline() const {
  PrefixTreeOutline out{.tokens_per_block = tokens_per_block_, .num_blocks = tree_.num_nodes()};
  std::deque<RunStart> starts;
  // At most as many as can become runs: a node can have any number of children.
  const auto add_children = [&](NodeId node, int32_t parent) {
    for (NodeId id = tree_[node].first_child; id != kNoNode && starts.size() < kMaxCachedRuns;
         id = tree_[id].next)
      starts.push_back({id, parent});
  };
  for (const NodeId root : tree_.roots(kMaxCachedRuns)) add_children(root, -1);
  int32_t num_visited = 0;
  while (!starts.empty() && out.runs.size() < kMaxCachedRuns && num_visited < kMaxCachedBlocks) {
    const auto [start, parent] = starts.front();
    starts.pop_front();
    const BlockGroup& group = groups_[0];
    const BlockId first = tree_[start].blocks[0];
    CachedRun run{.parent = parent, .holders = group[first].refs, .on_host = group.on_host(first)};
    NodeId node = start, last = start;
    do {
      run.tokens += tree_[node].num_tokens;
      ++run.blocks;
      ++num_visited;
      last = node;
      node = tree_[node].first_child;
      if (node == kNoNode || tree_[node].next != kNoNode || num_visited == kMaxCachedBlocks) break;
      const BlockId block = tree_[node].blocks[0];
      if (group[block].refs != run.holders || group.on_host(block) != run.on_host) break;
    } while (true);
    add_children(last, static_cast<int32_t>(out.runs.size()));
    out.runs.push_back(run);
  }
  out.num_left_out = out.num_blocks - num_visited;
  return out;
}

}  // namespace nereid::sched
