#include "graph/passes/passes.h"

#include <algorithm>
#include <chrono>

#include "graph/verify.h"

namespace nereid::graph {
namespace {

constexpr Pass kPasses[] = {
    {"set_weight_formats", "the products' weights become what the build asks for",
     set_weight_formats, true},
    {"tie_embedding", "weights made of the same tensors are stored once", tie_embedding},
    {"merge_qkv", "query, key and value projections become one product", merge_qkv},
    {"merge_gate_up", "gate and up projections become one product", merge_gate_up},
    {"add_layer_states", "adds layer inputs to the plan's hidden states (EAGLE-3)",
     add_layer_states, true},
    {"gather_before_head", "only sampled rows go through what follows the last attention",
     gather_before_head},
    {"add_adapters", "products take what adapters add, where adapters are wanted", add_adapters,
     true},
    {"partition", "the graph of one rank: its heads, columns, experts and layers", partition, true},
    {"merge_head_norms", "norms of query and of key heads become one", merge_head_norms},
    {"fold_residual_norm", "a residual sum is made by the norm that reads it", fold_residual_norm},
    {"fuse_rope_attention", "attention rotates queries and keys itself", fuse_rope_attention},
    {"quantize_inputs", "products read rows of f8e4m3 or i8 where their weights ask for it",
     quantize_inputs, true},
    {"fold_expert_glu", "gates, ups and gated units of experts become one product",
     fold_expert_glu},
    {"fold_quantize", "norms and gated units make rows of f8e4m3 themselves", fold_quantize},
    {"round_products", "products make bf16 for gated units and sums where GPUs have kernels",
     round_products, true},
    {"fold_reduce_norm", "a sum over ranks and the norm that reads it are one exchange on GPUs",
     fold_reduce_norm},
    {"choose_kernels", "the cheapest kernel and weight layout for the device", choose_kernels,
     true},
    {"plan_memory", "values share memory when their lives do not overlap", plan_memory, true},
};

Status check_disabled(std::span<const std::string> disabled) {
  for (const std::string& name : disabled) {
    const bool known = std::any_of(std::begin(kPasses), std::end(kPasses), [&](const Pass& pass) {
      return pass.name == name && !pass.required;
    });
    if (known) continue;
    std::string names;
    for (const Pass& pass : kPasses)
      if (!pass.required) names += fmt::format("{}{}", names.empty() ? "" : ", ", pass.name);
    return invalid_argument("pass '{}' cannot be disabled; these can: {}", name, names);
  }
  return ok();
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

Status run_passes(Graph& graph, const PassContext& context, std::span<const std::string> disabled,
                  std::vector<PassReport>* report) {
  using Clock = std::chrono::steady_clock;
  RETURN_IF_ERROR(check_disabled(disabled));
  for (const Pass& pass : kPasses) {
    const bool runs = std::find(disabled.begin(), disabled.end(), pass.name) == disabled.end();
    const Clock::time_point start = Clock::now();
    if (runs) {
      Status status = pass.run(graph, context);
      if (status.ok()) status = verify(graph);
      if (!status.ok()) return annotate(status, fmt::format("pass {}", pass.name));
    }
    if (report)
      report->push_back({pass.name, runs,
                         std::chrono::duration<double>(Clock::now() - start).count(),
                         graph.nodes.size()});
  }
  return ok();
}

}  // namespace nereid::graph
