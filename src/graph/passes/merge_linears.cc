// Products of the same input whose results are put side by side become one product of the stacked
// weights: one pass over the input, one larger and better used kernel call.
#include <algorithm>
#include <utility>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

// The weight that stacks `ids`, named after what the product makes.
WeightId stack(Graph& graph, const std::vector<WeightId>& ids, std::string name) {
  Weight merged;
  merged.name = std::move(name);
  merged.is_vector = graph.weights[ids.front()].is_vector;
  merged.n = merged.is_vector ? 1 : 0;
  merged.k = merged.is_vector ? 0 : graph.weights[ids.front()].k;
  for (const WeightId id : ids) {
    const Weight& w = graph.weights[id];
    (merged.is_vector ? merged.k : merged.n) += merged.is_vector ? w.k : w.n;
    merged.parts.insert(merged.parts.end(), w.parts.begin(), w.parts.end());
  }
  graph.weights.push_back(std::move(merged));
  return static_cast<WeightId>(graph.weights.size() - 1);
}

// The linears that write the parts of `concat`, or nothing when they cannot be one product.
std::vector<int32_t> mergeable(const Graph& graph, const Uses& uses, const Concat& concat) {
  std::vector<int32_t> nodes;
  const Linear* first = nullptr;
  for (const ValueId part : concat.parts) {
    const int32_t writer = uses.writer[part];
    const auto* linear = std::get_if<Linear>(&graph.nodes[writer].op);
    if (!linear || uses.readers[part].size() != 1) return {};
    if (uses.weight_readers[linear->weight] != 1) return {};
    if (!first) first = linear;
    if (linear->x != first->x || (linear->bias == kNone) != (first->bias == kNone)) return {};
    nodes.push_back(writer);
  }
  return nodes;
}

template <class... Readers>
bool read_by(const Graph& graph, const Uses& uses, ValueId id) {
  const std::vector<int32_t>& readers = uses.readers[id];
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), [&](int32_t node) {
    return static_cast<size_t>(node) < graph.nodes.size() &&
           (std::holds_alternative<Readers>(graph.nodes[node].op) || ...);
  });
}

template <class... Readers>
void merge_parts_for(Graph& graph) {
  const Uses uses = find_uses(graph);
  std::vector<bool> dropped(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto* concat = std::get_if<Concat>(&graph.nodes[i].op);
    if (!concat || !read_by<Readers...>(graph, uses, concat->out)) continue;
    const std::vector<int32_t> linears = mergeable(graph, uses, *concat);
    if (linears.empty()) continue;
    std::vector<WeightId> matrices, biases;
    Linear merged;
    for (const int32_t node : linears) {
      const Linear& linear = std::get<Linear>(graph.nodes[node].op);
      merged.x = linear.x;
      matrices.push_back(linear.weight);
      if (linear.bias != kNone) biases.push_back(linear.bias);
      dropped[node] = true;
    }
    const std::string name = graph.values[concat->out].name;
    merged.out = concat->out;
    merged.weight = stack(graph, matrices, name);
    if (!biases.empty()) merged.bias = stack(graph, biases, name + ".bias");
    graph.nodes[i].op = merged;
  }
  drop_nodes(graph, dropped);
}

}  // namespace

Status merge_qkv(Graph& graph, const PassContext&) {
  merge_parts_for<Rope, Attention>(graph);
  return ok();
}

Status merge_gate_up(Graph& graph, const PassContext&) {
  merge_parts_for<Glu>(graph);
  return ok();
}

}  // namespace nereid::graph
