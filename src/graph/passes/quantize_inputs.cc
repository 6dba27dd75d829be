// fp8 and int8 inputs of products: rounding ops, and their fusion into the previous op.
#include <cmath>
#include <map>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/log.h"
#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

ValueId add_value(Graph& graph, ValueId like, std::string_view suffix, DType dtype, int64_t cols) {
  Value value = graph.values[like];
  value.name += suffix;
  value.dtype = dtype;
  value.cols = cols;
  graph.values.push_back(std::move(value));
  return static_cast<ValueId>(graph.values.size() - 1);
}

// Fuses `quantize` into the op before it if the fused kernel is cheaper. A norm with other readers
// makes both results.
template <class T>
StatusOr<bool> fold(const Graph& graph, const PassContext& context, const Uses& uses, T& op,
                    const Quantize& quantize) {
  const bool is_only = uses.readers[op.out].size() == 1;
  if (!is_only && !std::is_same_v<T, Norm>) return false;
  if (graph.values[quantize.out].dtype != DType::kF8E4M3) return false;
  if constexpr (std::is_same_v<T, Norm>)
    if (op.piece > 0 || graph.weights[op.weight].k != graph.values[op.x].cols) return false;
  T folded = op;
  if constexpr (std::is_same_v<T, Norm>)
    if (!is_only) {
      // A sum over ranks makes its norm itself (fold_reduce_norm), with one result.
      const auto is_reduce = [&](ValueId value) {
        return value != kNone && std::holds_alternative<AllReduce>(
                                     graph.nodes[static_cast<size_t>(uses.writer[value])].op);
      };
      if (is_given(op.rounded) || is_reduce(op.add)) return false;
      folded.rounded = quantize.out;
    }
  if (is_only) folded.out = quantize.out;
  folded.scales = quantize.scales;
  const StatusOr<double> together = kernel_cost(graph, context, folded);
  if (!together.ok()) return false;  // no kernel
  ASSIGN_OR_RETURN(const double first, kernel_cost(graph, context, op));
  ASSIGN_OR_RETURN(const double second, kernel_cost(graph, context, quantize));
  if (*together >= first + second) return false;
  op = folded;
  return true;
}

}  // namespace

Status quantize_inputs(Graph& graph, const PassContext& context) {
  std::map<std::pair<ValueId, DType>, Quantize> made;
  std::vector<Node> nodes;
  int64_t num_left = 0;
  const auto change = [&](auto& product) {
    const DType type = graph.weights[product.weight].format.inputs;
    if (product.scales != kNone || type == DType::kBF16) return;
    const size_t num_values = graph.values.size();
    const auto [at, is_new] = made.try_emplace(std::pair(product.x, type));
    Quantize& quantize = at->second;
    if (is_new) {
      const std::string_view suffix = type == DType::kI8 ? ".i8" : ".f8";
      quantize.x = product.x;
      quantize.out = add_value(graph, product.x, suffix, type, graph.values[product.x].cols);
      quantize.scales = add_value(graph, product.x, ".scales", DType::kF32, 1);
    }
    auto changed = product;
    changed.x = quantize.out;
    changed.scales = quantize.scales;
    // Rounding costs quality: it must be faster.
    const double rounded = cheapest_cost(graph, context, changed);
    if (!std::isfinite(rounded) || cheapest_cost(graph, context, product) < rounded) {
      ++num_left;
      if (!is_new) return;
      made.erase(at);
      graph.values.resize(num_values);
      return;
    }
    if (is_new) nodes.push_back({quantize});
    product = changed;
  };
  for (Node& node : graph.nodes) {
    if (auto* linear = std::get_if<Linear>(&node.op)) change(*linear);
    if (auto* experts = std::get_if<ExpertLinear>(&node.op)) change(*experts);
    nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
  if (num_left > 0)
    log_info("{} products read bf16 inputs: {} has no faster kernel for rounded inputs", num_left,
             context.device.id());
  return ok();
}

Status fold_quantize(Graph& graph, const PassContext& context) {
  const Uses uses = find_uses(graph);
  std::vector<bool> dropped(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto* quantize = std::get_if<Quantize>(&graph.nodes[i].op);
    if (!quantize) continue;
    Op& before = graph.nodes[static_cast<size_t>(uses.writer[quantize->x])].op;
    bool is_folded = false;
    if (auto* norm = std::get_if<Norm>(&before)) {
      ASSIGN_OR_RETURN(is_folded, fold(graph, context, uses, *norm, *quantize));
    } else if (auto* glu = std::get_if<Glu>(&before)) {
      ASSIGN_OR_RETURN(is_folded, fold(graph, context, uses, *glu, *quantize));
    }
    dropped[i] = is_folded;
  }
  drop_nodes(graph, dropped);
  return ok();
}

}  // namespace nereid::graph
