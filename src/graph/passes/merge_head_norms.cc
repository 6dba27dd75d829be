// Norms of query heads and of key heads, side by side in one product, become one norm.
#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

// Nodes of a norm in place on a slice, which nothing else reads.
struct Part {
  int32_t norm = kNone, slice = kNone;
};

std::optional<Part> find_part(const Graph& graph, const Uses& uses, ValueId value) {
  Part part;
  part.norm = uses.writer[value];
  const auto* const norm = part.norm < 0 ? nullptr : std::get_if<Norm>(&graph.nodes[part.norm].op);
  if (!norm || uses.readers[value].size() != 1 || norm->add != kNone || norm->scales != kNone ||
      norm->bias != kNone || uses.readers[norm->x].size() != 1)
    return std::nullopt;
  part.slice = uses.writer[norm->x];
  if (part.slice < 0 || !std::holds_alternative<Slice>(graph.nodes[part.slice].op))
    return std::nullopt;
  return part;
}

// The weight of each piece of the row, one behind the other.
Weight repeated(const Graph& graph, const Norm& a, const Norm& b) {
  Weight out = graph.weights[a.weight];
  out.parts.clear(), out.sources.clear(), out.rows.clear(), out.cols.clear();
  out.k = 0;
  for (const Norm* const norm : {&a, &b}) {
    const Weight& one = graph.weights[norm->weight];
    for (int64_t i = 0; i < graph.values[norm->x].cols; i += one.k) {
      out.parts.insert(out.parts.end(), one.parts.begin(), one.parts.end());
      out.k += one.k;
    }
    for (WeightSource& source : sources_of(one)) out.sources.push_back(std::move(source));
  }
  out.name +=
      "_and_" + graph.weights[b.weight].name.substr(graph.weights[b.weight].name.rfind('.') + 1);
  return out;
}

class Merger {
 public:
  Merger(Graph& graph, const PassContext& context)
      : graph_(graph), context_(context), uses_(find_uses(graph)), dropped_(graph.nodes.size()) {}

  void run() {
    for (size_t i = 0; i < dropped_.size(); ++i)
      if (const auto* concat = std::get_if<Concat>(&graph_.nodes[i].op);
          concat && concat->parts.size() > 1)
        merge(static_cast<int32_t>(i));
    drop_nodes(graph_, dropped_);
  }

 private:
  void merge(int32_t node) {
    const Concat concat = std::get<Concat>(graph_.nodes[node].op);
    const std::optional<Part> a = find_part(graph_, uses_, concat.parts[0]);
    const std::optional<Part> b = find_part(graph_, uses_, concat.parts[1]);
    if (!a || !b || !are_adjacent(*a, *b)) return;
    const Norm first = norm_of(*a), second = norm_of(*b);
    const size_t num_weights = graph_.weights.size(), num_values = graph_.values.size();
    graph_.weights.push_back(repeated(graph_, first, second));
    Norm both = first;
    both.piece = static_cast<int32_t>(graph_.weights[first.weight].k);
    both.weight = static_cast<WeightId>(num_weights);
    both.x = add_value(first.x, second.x);
    both.out = add_value(first.out, second.out);
    const auto cost = [&](const Norm& norm) { return cheapest_cost(graph_, context_, norm); };
    if (cost(both) >= cost(first) + cost(second)) {
      graph_.weights.resize(num_weights), graph_.values.resize(num_values);
      return;
    }
    // The first slice is behind their product; the second norm is behind both slices.
    std::get<Slice>(graph_.nodes[a->slice].op).out = both.x;
    graph_.nodes[std::max(a->norm, b->norm)].op = both;
    dropped_[std::min(a->norm, b->norm)] = dropped_[b->slice] = true;
    std::vector<ValueId> parts = {both.out};
    parts.insert(parts.end(), concat.parts.begin() + 2, concat.parts.end());
    std::get<Concat>(graph_.nodes[node].op).parts = std::move(parts);
  }
  bool are_adjacent(const Part& a, const Part& b) const {
    const auto& x = std::get<Slice>(graph_.nodes[a.slice].op);
    const auto& y = std::get<Slice>(graph_.nodes[b.slice].op);
    const Norm first = norm_of(a), second = norm_of(b);
    return x.x == y.x && x.column + graph_.values[x.out].cols == y.column &&
           first.eps == second.eps && first.weight_offset == second.weight_offset &&
           first.centered == second.centered && first.piece == 0 && second.piece == 0 &&
           graph_.weights[first.weight].k == graph_.weights[second.weight].k &&
           graph_.values[first.out].dtype == graph_.values[second.out].dtype;
  }
  Norm norm_of(const Part& part) const { return std::get<Norm>(graph_.nodes[part.norm].op); }
  ValueId add_value(ValueId a, ValueId b) {
    Value value = graph_.values[a];
    value.cols += graph_.values[b].cols;
    graph_.values.push_back(std::move(value));
    return static_cast<ValueId>(graph_.values.size() - 1);
  }

  Graph& graph_;
  const PassContext& context_;
  const Uses uses_;
  std::vector<bool> dropped_;
};

}  // namespace

Status merge_head_norms(Graph& graph, const PassContext& context) {
  Merger(graph, context).run();
  return ok();
}

}  // namespace nereid::graph
