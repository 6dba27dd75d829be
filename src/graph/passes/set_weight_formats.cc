// Formats of product matrices: the build's (experts may have their own), else the checkpoint's.
// Routers keep theirs, because errors would change the selected experts. The head has its own
// option, because its errors enter the logits directly; a tied embedding follows it.
#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "base/log.h"
#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

kernels::WeightFormat head_format(const Weight& head, const PassContext& context) {
  if (context.head) return *context.head;
  if (!context.weights) return head.stored.value_or(head.format);
  const bool integers = context.weights->scheme == kernels::Scheme::kInteger;
  return integers ? kernels::kInt8PerRow : kernels::WeightFormat{};
}

// A tied table gets the head's format if the device can look up its rows, else it is a copy.
void set_head_format(Graph& graph, WeightId head, const PassContext& context) {
  const kernels::WeightFormat format = head_format(graph.weights[head], context);
  const kernels::WeightFormat before = graph.weights[head].format;
  graph.weights[head].format = format;
  for (const Node& node : graph.nodes) {
    const auto* embed = std::get_if<Embed>(&node.op);
    if (!embed || graph.weights[embed->table].parts != graph.weights[head].parts) continue;
    graph.weights[embed->table].format = format;
    if (!kernel_cost(graph, context, *embed).ok()) graph.weights[embed->table].format = before;
  }
}

// Cost of the op with its matrix in `format`; infinite: no kernel.
double cost_with(Graph& graph, const PassContext& context, const Op& op, Weight& matrix,
                 const kernels::WeightFormat& format) {
  const kernels::WeightFormat before = std::exchange(matrix.format, format);
  const double cost = cheapest_cost(graph, context, op);
  matrix.format = before;
  return cost;
}

// Whether kernels for the integers that hold MXFP4's numbers are faster than those for MXFP4.
bool are_better_as_integers(Graph& graph, const PassContext& context, const Op& op,
                            Weight& matrix) {
  return cost_with(graph, context, op, matrix, kernels::kMxfp4Integers) <
         cost_with(graph, context, op, matrix, kernels::kMxfp4);
}

// Pass-through formats without a kernel on the device become bf16; MXFP4 becomes integers where
// their kernels are faster.
void leave_unread_formats(Graph& graph, const PassContext& context) {
  int64_t num_left = 0;
  for (const Node& node : graph.nodes)
    for (const WeightId id : matrices(node.op)) {
      Weight& weight = graph.weights[static_cast<size_t>(id)];
      if (weight.format.is_float() || weight.format != weight.stored) continue;
      if (weight.format == kernels::kMxfp4 &&
          are_better_as_integers(graph, context, node.op, weight))
        weight.format = kernels::kMxfp4Integers;
      if (std::isfinite(cost_with(graph, context, node.op, weight, weight.format))) continue;
      weight.format = {};
      ++num_left;
    }
  if (num_left > 0)
    log_warn("{} matrices become bf16: {} has no kernel for their stored format", num_left,
             context.device.id());
}

Status check_experts(Graph& graph, const PassContext& context) {
  if (context.experts != kernels::kMxfp4) return ok();
  for (const Node& node : graph.nodes) {
    const auto* experts = std::get_if<ExpertLinear>(&node.op);
    if (!experts) continue;
    Weight& weight = graph.weights[static_cast<size_t>(experts->weight)];
    if (weight.k % kernels::kMxfp4.group != 0)
      return invalid_argument(
          "expert_weights: mxfp4 has groups of {} columns, '{}' has {}; use int8 or bf16",
          kernels::kMxfp4.group, weight.name, weight.k);
    if (weight.format == kernels::kMxfp4 && weight.stored != kernels::kMxfp4 &&
        are_better_as_integers(graph, context, node.op, weight))
      return unsupported("expert_weights: {} has no kernel for mxfp4; use int8, int4 or bf16",
                         context.device.id());
  }
  return ok();
}

}  // namespace

Status set_weight_formats(Graph& graph, const PassContext& context) {
  std::vector<bool> chosen(graph.weights.size()), is_expert(graph.weights.size());
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
      const bool routed = is_routed(linear->out);
      set(node.op, !routed);
      if (!routed) head = linear->weight;  // the last product
    } else if (const auto* experts = std::get_if<ExpertLinear>(&node.op)) {
      set(node.op, true);
      is_expert[static_cast<size_t>(experts->weight)] = true;
    }
  for (const Node& node : graph.nodes)
    if (!std::holds_alternative<Linear>(node.op) && !std::holds_alternative<ExpertLinear>(node.op))
      set(node.op, false);
  if (graph.model.is_encoder) head = kNone;
  if (head != kNone) chosen[static_cast<size_t>(head)] = false;
  for (size_t i = 0; i < chosen.size(); ++i) {
    Weight& weight = graph.weights[i];
    const auto& wanted = is_expert[i] && context.experts ? context.experts : context.weights;
    if (chosen[i]) weight.format = wanted.value_or(weight.stored.value_or(weight.format));
  }
  if (head != kNone) set_head_format(graph, head, context);
  leave_unread_formats(graph, context);
  return check_experts(graph, context);
}

}  // namespace nereid::graph
