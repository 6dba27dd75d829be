// x' = x + y and norm(x') become one norm that updates the residual, in one pass over it.
#include <algorithm>
#include <utility>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {

Status fold_residual_norm(Graph& graph, const PassContext&) {
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
  }
  drop_nodes(graph, dropped);
  return ok();
}

}  // namespace nereid::graph
