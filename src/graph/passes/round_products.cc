// On GPUs, results of products for gated activations and norms' sums become bf16: they are read
// once, and their memory traffic dominates both ops in steps of many rows.
#include <algorithm>
#include <cmath>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

const Op& writer_of(const Graph& graph, const Uses& uses, ValueId value) {
  return graph.nodes[static_cast<size_t>(uses.writer[value])].op;
}

// Collects `value` and its concatenated parts; false: a part is not a product's result, or has a
// reader other than `reader`.
bool find_parts(const Graph& graph, const Uses& uses, ValueId value, int32_t reader,
                std::vector<ValueId>& found) {
  if (uses.readers[value] != std::vector{reader}) return false;
  found.push_back(value);
  const Op& op = writer_of(graph, uses, value);
  if (const auto* concat = std::get_if<Concat>(&op))
    return std::ranges::all_of(concat->parts, [&](ValueId part) {
      return find_parts(graph, uses, part, uses.writer[value], found);
    });
  // Sums over ranks have the type of the ranks' parts. Equal results for any number of ranks need
  // parts that are not rounded.
  if (const auto* reduce = std::get_if<AllReduce>(&op))
    return !graph.mapping.invariant &&
           find_parts(graph, uses, reduce->x, uses.writer[value], found);
  return std::holds_alternative<Linear>(op) || std::holds_alternative<ExpertLinear>(op);
}

// The operand that may become bf16; kNone: none.
ValueId operand_of(const Op& op) {
  if (const auto* glu = std::get_if<Glu>(&op)) return glu->x;
  if (const auto* norm = std::get_if<Norm>(&op)) return norm->add;
  return kNone;
}

}  // namespace

Status round_products(Graph& graph, const PassContext& context) {
  if (context.device.kind != DeviceKind::kCuda) return ok();
  const Uses uses = find_uses(graph);
  const auto has_kernel = [&](const Op& op) {
    return std::isfinite(cheapest_cost(graph, context, op));
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Op& reader = graph.nodes[i].op;
    const ValueId value = operand_of(reader);
    std::vector<ValueId> parts;
    if (value == kNone || !find_parts(graph, uses, value, static_cast<int32_t>(i), parts)) continue;
    for (const ValueId part : parts) graph.values[part].dtype = DType::kBF16;
    const bool has_kernels = has_kernel(reader) && std::ranges::all_of(parts, [&](ValueId part) {
                               return has_kernel(writer_of(graph, uses, part));
                             });
    if (has_kernels) continue;
    for (const ValueId part : parts) graph.values[part].dtype = DType::kF32;
  }
  return ok();
}

}  // namespace nereid::graph
