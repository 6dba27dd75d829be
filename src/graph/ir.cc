#include "graph/ir.h"

#include <fmt/format.h>

#include <iterator>
#include <type_traits>
#include <utility>

namespace nereid::graph {
namespace {

// The operand lists of every op, once: f(ValueId&) for values in and out, w(WeightId&) for weights.
template <class In, class Out, class W>
void visit_operands(Op& op, In in, Out out, W w) {
  std::visit(
      [&](auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, Embed>) {
          w(x.table), out(x.out);
        } else if constexpr (std::is_same_v<T, Norm>) {
          in(x.x), in(x.add), w(x.weight), out(x.out), out(x.sum_out);
        } else if constexpr (std::is_same_v<T, Linear>) {
          in(x.x), w(x.weight), w(x.bias), out(x.out);
        } else if constexpr (std::is_same_v<T, Concat>) {
          for (ValueId& part : x.parts) in(part);
          out(x.out);
        } else if constexpr (std::is_same_v<T, Rope> || std::is_same_v<T, Attention>) {
          in(x.qkv), out(x.out);
        } else if constexpr (std::is_same_v<T, Add>) {
          in(x.x), in(x.y), out(x.out);
        } else {
          in(x.x), out(x.out);
        }
      },
      op);
}

template <class Select>
std::vector<int32_t> collect(const Op& op, Select select) {
  std::vector<int32_t> found;
  const auto keep = [&](int32_t& id) {
    if (id != kNone) found.push_back(id);
  };
  select(const_cast<Op&>(op), keep);
  return found;
}

constexpr auto kIgnore = [](int32_t&) {};

std::string operands_text(const Graph& graph, const Op& op) {
  std::string text;
  for (const ValueId id : inputs(op))
    text += fmt::format("{}{}", text.empty() ? "" : ", ", graph.values[id].name);
  for (const WeightId id : weights(op))
    text += fmt::format("{}@{}", text.empty() ? "" : ", ", graph.weights[id].name);
  if (const auto* attention = std::get_if<Attention>(&op); attention && attention->has_rope)
    text += ", rope";
  return text;
}

}  // namespace

std::string_view name_of(const Op& op) {
  static constexpr std::string_view kNames[] = {"embed",     "norm", "linear", "concat",     "rope",
                                                "attention", "glu",  "add",    "gather_rows"};
  static_assert(std::size(kNames) == std::variant_size_v<Op>);
  return kNames[op.index()];
}

std::vector<ValueId> inputs(const Op& op) {
  return collect(op, [](Op& o, auto keep) { visit_operands(o, keep, kIgnore, kIgnore); });
}
std::vector<ValueId> outputs(const Op& op) {
  return collect(op, [](Op& o, auto keep) { visit_operands(o, kIgnore, keep, kIgnore); });
}
std::vector<WeightId> weights(const Op& op) {
  return collect(op, [](Op& o, auto keep) { visit_operands(o, kIgnore, kIgnore, keep); });
}

void replace_inputs(Op& op, ValueId from, ValueId to) {
  const auto rename = [=](ValueId& id) {
    if (id == from) id = to;
  };
  visit_operands(op, rename, kIgnore, kIgnore);
}

void replace_uses(Graph& graph, ValueId from, ValueId to) {
  for (Node& node : graph.nodes) replace_inputs(node.op, from, to);
  if (graph.logits == from) graph.logits = to;
}

void replace_weight(Graph& graph, WeightId from, WeightId to) {
  const auto rename = [=](WeightId& id) {
    if (id == from) id = to;
  };
  for (Node& node : graph.nodes) visit_operands(node.op, kIgnore, kIgnore, rename);
}

Uses find_uses(const Graph& graph) {
  Uses uses;
  uses.readers.resize(graph.values.size());
  uses.writer.assign(graph.values.size(), kNone);
  uses.weight_readers.assign(graph.weights.size(), 0);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Op& op = graph.nodes[i].op;
    for (const ValueId id : inputs(op)) uses.readers[id].push_back(static_cast<int32_t>(i));
    for (const ValueId id : outputs(op)) uses.writer[id] = static_cast<int32_t>(i);
    for (const WeightId id : weights(op)) ++uses.weight_readers[id];
  }
  if (graph.logits != kNone)
    uses.readers[graph.logits].push_back(static_cast<int32_t>(graph.nodes.size()));
  return uses;
}

void sweep(Graph& graph) {
  std::vector<int32_t> new_value(graph.values.size(), kNone);
  std::vector<int32_t> new_weight(graph.weights.size(), kNone);
  for (const Node& node : graph.nodes) {
    for (const ValueId id : inputs(node.op)) new_value[id] = 0;
    for (const ValueId id : outputs(node.op)) new_value[id] = 0;
    for (const WeightId id : weights(node.op)) new_weight[id] = 0;
  }
  const auto compact = [](auto& items, std::vector<int32_t>& renamed) {
    int32_t next = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      if (renamed[i] == kNone) continue;
      if (static_cast<size_t>(next) != i) items[next] = std::move(items[i]);
      renamed[i] = next++;
    }
    items.resize(next);
  };
  compact(graph.values, new_value);
  compact(graph.weights, new_weight);
  const auto value = [&](ValueId& id) {
    if (id != kNone) id = new_value[id];
  };
  const auto weight = [&](WeightId& id) {
    if (id != kNone) id = new_weight[id];
  };
  for (Node& node : graph.nodes) visit_operands(node.op, value, value, weight);
  value(graph.logits);
}

void drop_nodes(Graph& graph, const std::vector<bool>& dropped) {
  std::vector<Node> kept;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (!dropped[i]) kept.push_back(std::move(graph.nodes[i]));
  graph.nodes = std::move(kept);
  sweep(graph);
}

std::string print(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes) {
    std::string line;
    for (const ValueId id : outputs(node.op)) {
      const Value& v = graph.values[id];
      line += fmt::format("{}{} {}[{}, {}]", line.empty() ? "" : ", ", v.name, name_of(v.dtype),
                          v.extent == io::Extent::kTokens ? "tokens" : "sampled", v.cols);
    }
    text += fmt::format("{} = {}({})", line, name_of(node.op), operands_text(graph, node.op));
    text += node.kernel.empty() ? "\n" : fmt::format("  [{}]\n", node.kernel);
  }
  return text;
}

}  // namespace nereid::graph
