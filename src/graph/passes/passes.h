// The compiler's passes, all of them, in the order they run. Each is a function on the graph;
// after each the graph is verified. Optional ones can be switched off, which must never change what
// the model computes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "graph/ir.h"
#include "kernels/api/registry.h"
#include "tensor/device.h"

namespace nereid::graph {

// What passes may look at besides the graph.
struct PassContext {
  const kernels::Registry* registry = nullptr;
  DeviceInfo device;
  kernels::Choices forced;                       // "op:kernel"
  std::optional<kernels::WeightFormat> weights;  // of the products; absent: as the family says
  // Of the head; absent: int8 with a scale for each row where products get integers, bf16 where
  // they get something else, as the checkpoint has it where nothing is asked for.
  std::optional<kernels::WeightFormat> head;
  bool adapters = false;               // products take adapters
  std::vector<int32_t> hidden_layers;  // what these layers read is among the plan's hidden states
};

struct Pass {
  std::string_view name;
  std::string_view summary;
  Status (*run)(Graph& graph, const PassContext& context) = nullptr;
  bool required = false;  // cannot be switched off
};

std::span<const Pass> passes();

struct PassReport {
  std::string_view name;
  bool ran = false;
  double seconds = 0;
  size_t num_nodes = 0;  // after it
};

// Runs all passes but the `disabled` ones. InvalidArgument for a disabled name that is not known or
// is required (listing those that may be disabled); otherwise the first error of a pass, prefixed
// with its name.
Status run_passes(Graph& graph, const PassContext& context, std::span<const std::string> disabled,
                  std::vector<PassReport>* report = nullptr);

// Required: decides what the weights become, before passes that compare them.
Status set_weight_formats(Graph& graph, const PassContext& context);

// Required: what some layers read becomes an output, where that is wanted. InvalidArgument: there
// is no such layer.
Status add_layer_states(Graph& graph, const PassContext& context);

// Optional: shape the graph.
Status tie_embedding(Graph& graph, const PassContext& context);
Status merge_qkv(Graph& graph, const PassContext& context);
Status merge_gate_up(Graph& graph, const PassContext& context);
Status gather_before_head(Graph& graph, const PassContext& context);
Status fold_residual_norm(Graph& graph, const PassContext& context);
Status fuse_rope_attention(Graph& graph, const PassContext& context);

// Required: behind products that adapters may add to, the op that does so, where adapters are
// wanted.
Status add_adapters(Graph& graph, const PassContext& context);

// Required: what products read becomes f8e4m3 or i8 where their weights ask for it and the device
// has a kernel that costs no more than for what they read now.
Status quantize_inputs(Graph& graph, const PassContext& context);

// Optional: where a norm or glu has kernels that make f8e4m3 rows themselves.
Status fold_quantize(Graph& graph, const PassContext& context);

// Required: on GPUs, what products make for gated units and for sums becomes bf16.
Status round_products(Graph& graph, const PassContext& context);

// Required: decide kernels, weight layouts and places in the arenas.
Status choose_kernels(Graph& graph, const PassContext& context);
// What the cheapest kernel for an op costs, in seconds. NotFound when there is none.
StatusOr<double> kernel_cost(const Graph& graph, const PassContext& context, const Op& op);
Status plan_memory(Graph& graph, const PassContext& context);

}  // namespace nereid::graph
