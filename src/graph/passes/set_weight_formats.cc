// The formats of matrices that only products read, experts' too: the one that the build asks for,
// else the one in which the checkpoint has them. The head's stays as it is: its rounding errors
// would go into the logits directly; so does a router's, whose errors would choose other experts.
#include <algorithm>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {

Status set_weight_formats(Graph& graph, const PassContext& context) {
  std::vector<bool> chosen(graph.weights.size());
  const auto set = [&](const Op& op, bool value) {
    for (const WeightId id : matrices(op)) chosen[static_cast<size_t>(id)] = value;
  };
  const Uses uses = find_uses(graph);
  const auto is_routed = [&](ValueId out) {
    return std::ranges::any_of(uses.readers[static_cast<size_t>(out)], [&](int32_t reader) {
      return static_cast<size_t>(reader) < graph.nodes.size() &&
             std::holds_alternative<Route>(graph.nodes[static_cast<size_t>(reader)].op);
    });
  };
  WeightId head = kNone;
  for (const Node& node : graph.nodes)
    if (const auto* linear = std::get_if<Linear>(&node.op)) {
      set(node.op, !is_routed(linear->out));
      head = linear->weight;  // the last product's
    } else if (std::holds_alternative<ExpertLinear>(node.op)) {
      set(node.op, true);
    }
  for (const Node& node : graph.nodes)
    if (!std::holds_alternative<Linear>(node.op) && !std::holds_alternative<ExpertLinear>(node.op))
      set(node.op, false);
  if (head != kNone) chosen[static_cast<size_t>(head)] = false;
  for (size_t i = 0; i < chosen.size(); ++i) {
    Weight& weight = graph.weights[i];
    if (chosen[i]) weight.format = context.weights.value_or(weight.stored.value_or(weight.format));
  }
  return ok();
}

}  // namespace nereid::graph
