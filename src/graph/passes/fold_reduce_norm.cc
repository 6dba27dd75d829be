// On GPUs a sum over ranks and the norm that adds it to the residual stream become one exchange.
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {

Status fold_reduce_norm(Graph& graph, const PassContext& context) {
  if (context.device.kind != DeviceKind::kCuda) return ok();
  const Uses uses = find_uses(graph);
  std::vector<bool> dropped(graph.nodes.size());
  for (Node& node : graph.nodes) {
    const auto* norm = std::get_if<Norm>(&node.op);
    if (!norm || norm->add == kNone || norm->centered || norm->bias != kNone) continue;
    const int64_t width = graph.values[norm->x].cols;
    if (graph.weights[norm->weight].k != width || (norm->piece > 0 && norm->piece != width))
      continue;
    const int32_t writer = uses.writer[norm->add];
    const auto* reduce = std::get_if<AllReduce>(&graph.nodes[static_cast<size_t>(writer)].op);
    if (!reduce || uses.readers[norm->add].size() != 1 || uses.readers[reduce->x].size() != 1)
      continue;
    node.op = AllReduceNorm{.x = reduce->x,
                            .residual = norm->x,
                            .weight = norm->weight,
                            .eps = norm->eps,
                            .weight_offset = norm->weight_offset,
                            .out = norm->out,
                            .sum = norm->sum,
                            .scales = norm->scales};
    dropped[static_cast<size_t>(writer)] = true;
  }
  drop_nodes(graph, dropped);
  return ok();
}

}  // namespace nereid::graph
