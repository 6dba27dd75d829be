// Products of one input whose results are concatenated become one product with stacked weights.
#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

// The stacked weight, named after the merged product.
WeightId stack(Graph& graph, const std::vector<WeightId>& ids, std::string name) {
  Weight merged;
  merged.name = std::move(name);
  merged.is_vector = graph.weights[ids.front()].is_vector;
  merged.format = graph.weights[ids.front()].format;
  merged.stored = graph.weights[ids.front()].stored;
  merged.n = merged.is_vector ? 1 : 0;
  merged.k = merged.is_vector ? 0 : graph.weights[ids.front()].k;
  for (const WeightId id : ids) {
    const Weight& w = graph.weights[id];
    if (w.stored != merged.stored) merged.stored.reset();
    (merged.is_vector ? merged.k : merged.n) += merged.is_vector ? w.k : w.n;
    merged.parts.insert(merged.parts.end(), w.parts.begin(), w.parts.end());
    if (!merged.is_vector) {
      merged.rows.insert(merged.rows.end(), w.rows.begin(), w.rows.end());
      if (w.rows.empty()) merged.rows.push_back({1, w.n});
    }
    for (WeightSource& source : sources_of(w)) merged.sources.push_back(std::move(source));
  }
  graph.weights.push_back(std::move(merged));
  return static_cast<WeightId>(graph.weights.size() - 1);
}

// A norm (e.g. of each head) that can run in place on a part of a wider matrix.
bool is_part_norm(const Graph& graph, const Op& op) {
  const auto* norm = std::get_if<Norm>(&op);
  return norm && norm->add == kNone && graph.values[norm->x].dtype == graph.values[norm->out].dtype;
}

// The linears whose results (some after a norm of their heads) are the parts of `concat`; empty:
// they cannot be merged.
std::vector<int32_t> mergeable(const Graph& graph, const Uses& uses, const Concat& concat) {
  std::vector<int32_t> nodes;
  const Linear* first = nullptr;
  for (ValueId part : concat.parts) {
    if (uses.readers[part].size() != 1) return {};
    if (const Op& op = graph.nodes[uses.writer[part]].op; is_part_norm(graph, op)) {
      part = std::get<Norm>(op).x;
      if (uses.readers[part].size() != 1) return {};
    }
    const int32_t writer = uses.writer[part];
    const auto* linear = std::get_if<Linear>(&graph.nodes[writer].op);
    if (!linear || uses.weight_readers[linear->weight] != 1) return {};
    if (!first) first = linear;
    if (linear->x != first->x || (linear->bias == kNone) != (first->bias == kNone) ||
        graph.values[linear->out].dtype != graph.values[first->out].dtype ||
        linear->scales != first->scales ||
        graph.weights[linear->weight].format != graph.weights[first->weight].format)
      return {};
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

// One product with output `out` in place of `linears`.
Linear merge(Graph& graph, const std::vector<int32_t>& linears, ValueId out) {
  std::vector<WeightId> matrices, biases;
  Linear merged;
  for (const int32_t node : linears) {
    const Linear& linear = std::get<Linear>(graph.nodes[node].op);
    merged.x = linear.x;
    merged.scales = linear.scales;
    matrices.push_back(linear.weight);
    if (linear.bias != kNone) biases.push_back(linear.bias);
  }
  const std::string name = graph.values[out].name;
  merged.out = out;
  merged.weight = stack(graph, matrices, name);
  if (!biases.empty()) merged.bias = stack(graph, biases, name + ".bias");
  return merged;
}

// The merged product and the slices that replace the linears' results, placed at the first linear.
std::vector<Node> merge_and_cut(Graph& graph, const std::vector<int32_t>& linears,
                                const Concat& concat) {
  graph.values.push_back(graph.values[concat.out]);
  const auto product = static_cast<ValueId>(graph.values.size() - 1);
  std::vector<Node> nodes = {{merge(graph, linears, product)}};
  int64_t column = 0;
  for (const int32_t node : linears) {
    const ValueId out = std::get<Linear>(graph.nodes[node].op).out;
    nodes.push_back({Slice{product, column, out}});
    column += graph.values[out].cols;
  }
  return nodes;
}

template <class... Readers>
void merge_parts_for(Graph& graph) {
  const Uses uses = find_uses(graph);
  std::vector<bool> dropped(graph.nodes.size());
  std::map<int32_t, std::vector<Node>> instead;  // by node
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto* found = std::get_if<Concat>(&graph.nodes[i].op);
    if (!found || !read_by<Readers...>(graph, uses, found->out)) continue;
    const Concat concat = *found;
    const std::vector<int32_t> linears = mergeable(graph, uses, concat);
    if (linears.empty()) continue;
    const bool direct = std::all_of(concat.parts.begin(), concat.parts.end(), [&](ValueId part) {
      return std::holds_alternative<Linear>(graph.nodes[uses.writer[part]].op);
    });
    if (direct)
      graph.nodes[i].op = merge(graph, linears, concat.out);
    else
      instead[*std::min_element(linears.begin(), linears.end())] =
          merge_and_cut(graph, linears, concat);
    for (const int32_t node : linears) dropped[node] = true;
  }
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (const auto found = instead.find(static_cast<int32_t>(i)); found != instead.end())
      for (Node& node : found->second) nodes.push_back(std::move(node));
    if (!dropped[i]) nodes.push_back(std::move(graph.nodes[i]));
  }
  graph.nodes = std::move(nodes);
  sweep(graph);
}

}  // namespace

Status merge_qkv(Graph& graph, const PassContext&) {
  merge_parts_for<Rope, Attention, StoreKv>(graph);
  return ok();
}

Status merge_gate_up(Graph& graph, const PassContext&) {
  merge_parts_for<Glu>(graph);
  return ok();
}

}  // namespace nereid::graph
