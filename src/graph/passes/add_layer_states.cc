// Outputs the residual before selected layers as bf16 hidden states. The rounding is placed behind
// the residual's first reader, so that fold_residual_norm can still fuse.
#include <algorithm>
#include <map>
#include <utility>

#include "graph/passes/passes.h"

namespace nereid::graph {

Status add_layer_states(Graph& graph, const PassContext& context) {
  if (context.hidden_layers.empty()) return ok();
  const Uses uses = find_uses(graph);
  std::multimap<int32_t, Node> rounded;  // by the node it follows
  for (const int32_t layer : context.hidden_layers) {
    if (layer < 0 || static_cast<size_t>(layer) >= graph.residuals.size())
      return invalid_argument("hidden states before layer {}; the model has {} layers", layer,
                              graph.residuals.size());
    const ValueId x = graph.residuals[static_cast<size_t>(layer)];
    Value state = graph.values[x];
    state.name = fmt::format("layers.{}.state", layer);
    state.dtype = DType::kBF16;
    graph.values.push_back(std::move(state));
    graph.hidden.push_back(static_cast<ValueId>(graph.values.size() - 1));
    const Activate round{
        .x = x, .activation = kernels::Activation::kNone, .out = graph.hidden.back()};
    rounded.emplace(std::ranges::min(uses.readers[x]), Node{round});
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    nodes.push_back(std::move(graph.nodes[i]));
    const auto [begin, end] = rounded.equal_range(static_cast<int32_t>(i));
    for (auto it = begin; it != end; ++it) nodes.push_back(std::move(it->second));
  }
  graph.nodes = std::move(nodes);
  return ok();
}

}  // namespace nereid::graph
