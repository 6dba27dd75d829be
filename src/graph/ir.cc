#include "graph/ir.h"

#include <algorithm>

#include <fmt/format.h>

#include <iterator>
#include <type_traits>
#include <utility>

namespace nereid::graph {
namespace {

// Calls in(id) and out(id) for values, w(id) for weights.
template <class In, class Out, class W>
void visit_operands(Op& op, In in, Out out, W w) {
  std::visit(
      [&](auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, Concat>) {
          for (ValueId& part : x.parts) in(part);
          out(x.out);
        } else if constexpr (std::is_same_v<T, Slice>) {
          in(x.x), out(x.out);
        } else {
          kernels::for_fields(x, [&](const auto& field, auto& operand) {
            using kernels::Role;
            constexpr Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
            if constexpr (kRole == Role::kIn) in(operand.index);
            if constexpr (kRole == Role::kOut) out(operand.index);
            if constexpr (kRole == Role::kMatrix || kRole == Role::kVector) w(operand.index);
          });
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
  if (const auto* attention = std::get_if<Attention>(&op); attention && is_given(attention->angles))
    text += ", rope";
  return text;
}

}  // namespace

std::vector<WeightSource> sources_of(const Weight& weight) {
  if (!weight.sources.empty()) return weight.sources;
  return {{weight.name, weight.parts}};
}

kernels::WeightView shape_of(const Weight& w) {
  kernels::WeightView view{nullptr, w.layout, w.n, w.k, w.format};
  view.experts = w.experts;
  return view;
}

std::string_view name_of(const Op& op) {
  return std::visit([](const auto& x) { return std::decay_t<decltype(x)>::kName; }, op);
}
bool is_row_wise(const Op& op) {
  return std::visit([](const auto& x) { return std::decay_t<decltype(x)>::kRowsIndependent; }, op);
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

std::vector<WeightId> matrices(const Op& op) {
  std::vector<WeightId> found;
  std::visit(
      [&](const auto& x) {
        if constexpr (!kIsLayout<std::decay_t<decltype(x)>>)
          kernels::for_fields(x, [&](const auto& field, const auto& operand) {
            if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kernels::Role::kMatrix)
              if (operand != kNone) found.push_back(operand);
          });
      },
      op);
  return found;
}

std::vector<InPlace> updates_in_place(const Op& op) {
  using kernels::Role;
  std::vector<InPlace> found;
  const auto input_named = [](const auto& x, std::string_view name) {
    ValueId id = kNone;
    kernels::for_fields(x, [&](const auto& field, const auto& operand) {
      if constexpr (std::remove_cvref_t<decltype(field)>::kRole == Role::kIn)
        if (field.name == name) id = operand;
    });
    return id;
  };
  std::visit(
      [&](const auto& x) {
        if constexpr (!kIsLayout<std::decay_t<decltype(x)>>)
          kernels::for_fields(x, [&](const auto& field, const auto& operand) {
            if constexpr (std::remove_cvref_t<decltype(field)>::kRole == Role::kOut) {
              const bool always = !field.replaces.empty();
              const std::string_view input = always ? field.replaces : field.may_replace;
              if (operand != kNone && !input.empty())
                found.push_back({input_named(x, input), operand, always});
            }
          });
      },
      op);
  // An input's memory goes to one output only.
  std::erase_if(found, [&](const InPlace& a) {
    return !a.always && std::any_of(found.begin(), found.end(),
                                    [&](const InPlace& b) { return b.always && b.in == a.in; });
  });
  return found;
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
  std::ranges::replace(graph.hidden, from, to);
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
  const auto read_behind_all = [&](ValueId output) {
    if (output != kNone) uses.readers[output].push_back(static_cast<int32_t>(graph.nodes.size()));
  };
  read_behind_all(graph.logits);
  for (const ValueId output : graph.hidden) read_behind_all(output);
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
  for (ValueId& output : graph.hidden) value(output);
  for (ValueId& residual : graph.residuals) value(residual);
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
                          v.extent == io::RowCount::kTokens ? "tokens" : "sampled", v.cols);
    }
    text += fmt::format("{} = {}({})", line, name_of(node.op), operands_text(graph, node.op));
    text += node.kernel.empty() ? "\n" : fmt::format("  [{}]\n", node.kernel);
  }
  return text;
}

}  // namespace nereid::graph
