// x' = x + y and norm(x') become one norm that updates the residual, in one pass over it. It also
// adds up what experts give, if there is a kernel.
#include <algorithm>
#include <utility>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {

namespace {

// y is a weighted sum that nothing else reads; returns its node, or kNone.
int32_t fold_weighted_sum(Graph& graph, const PassContext& context, const Uses& uses, Norm& norm) {
  const int32_t writer = uses.writer[norm.add];
  const auto* const sum = writer < 0 ? nullptr : std::get_if<WeightedSum>(&graph.nodes[writer].op);
  if (!sum || uses.readers[norm.add].size() != 1) return kNone;
  Norm folded = norm;
  folded.add = sum->x;
  folded.factors = sum->weights;
  const double apart = cheapest_cost(graph, context, norm) + cheapest_cost(graph, context, *sum);
  if (cheapest_cost(graph, context, folded) >= apart) return kNone;
  norm = folded;
  return writer;
}

}  // namespace

Status fold_residual_norm(Graph& graph, const PassContext& context) {
  const Uses uses = find_uses(graph);
  std::vector<bool> dropped(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    auto* norm = std::get_if<Norm>(&graph.nodes[i].op);
    if (!norm || norm->add != kNone) continue;
    const int32_t writer = uses.writer[norm->x];
    const auto* add = std::get_if<Add>(&graph.nodes[writer].op);
    // x' exists after the norm only: no earlier op may read it.
    const std::vector<int32_t>& readers = uses.readers[norm->x];
    if (!add || *std::min_element(readers.begin(), readers.end()) < static_cast<int32_t>(i))
      continue;
    norm->x = add->x;
    norm->add = add->y;
    norm->sum = add->out;
    dropped[writer] = true;
    if (const int32_t sum = fold_weighted_sum(graph, context, uses, *norm); sum != kNone)
      dropped[sum] = true;
  }
  drop_nodes(graph, dropped);
  return ok();
}

}  // namespace nereid::graph
