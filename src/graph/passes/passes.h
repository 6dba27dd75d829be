// The compiler's passes in order. Each is a function on the graph, which is verified after it.
// Optional passes can be disabled without changing the function that the model computes.
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

// Inputs of passes other than the graph.
struct PassContext {
  const kernels::Registry* registry = nullptr;
  DeviceInfo device;
  kernels::KernelChoices forced;                 // "op:kernel"
  std::optional<kernels::WeightFormat> weights;  // of products; absent: the family's
  // Format of the head; absent: with `weights`, int8 per row if they are integers, else bf16;
  // without `weights`, the checkpoint's.
  std::optional<kernels::WeightFormat> head;
  std::optional<kernels::WeightFormat> experts;  // of experts; absent: `weights`
  bool adapters = false;                         // products support adapters
  std::vector<int32_t> hidden_layers;  // layers whose inputs are hidden states of the plan
  io::Mapping mapping;                 // whose rank to compile
};

struct Pass {
  std::string_view name;
  std::string_view summary;
  Status (*run)(Graph& graph, const PassContext& context) = nullptr;
  bool required = false;  // cannot be disabled
};

std::span<const Pass> passes();

struct PassReport {
  std::string_view name;
  bool ran = false;
  double seconds = 0;
  size_t num_nodes = 0;  // after the pass
};

// Runs all passes except `disabled`. InvalidArgument: a disabled name is unknown or required (lists
// those that may be disabled); else the first error of a pass, prefixed with its name.
Status run_passes(Graph& graph, const PassContext& context, std::span<const std::string> disabled,
                  std::vector<PassReport>* report = nullptr);

// Required: sets weight formats, before passes that compare them. Unimplemented: the device has no
// kernel for PassContext::experts.
Status set_weight_formats(Graph& graph, const PassContext& context);

// Required: makes the inputs of hidden_layers outputs. InvalidArgument: no such layer.
Status add_layer_states(Graph& graph, const PassContext& context);

// Optional: transform the graph.
Status merge_head_norms(Graph& graph, const PassContext& context);
Status tie_embedding(Graph& graph, const PassContext& context);
Status merge_qkv(Graph& graph, const PassContext& context);
Status merge_gate_up(Graph& graph, const PassContext& context);
Status gather_before_head(Graph& graph, const PassContext& context);
Status fold_residual_norm(Graph& graph, const PassContext& context);
Status fuse_rope_attention(Graph& graph, const PassContext& context);

// Required: adds low_rank ops if `adapters`.
Status add_adapters(Graph& graph, const PassContext& context);

// Required: the graph of context.mapping's rank. InvalidArgument: a division with a remainder, with
// weight and numbers; Unimplemented: an op that cannot be divided.
Status partition(Graph& graph, const PassContext& context);
// Keeps the nodes of the mapping's stage. InvalidArgument: more stages than layers.
Status keep_stage(Graph& graph);

// Required: rounds product inputs to f8e4m3 or i8 if the weight format asks for it and the device's
// kernel for it is not slower.
Status quantize_inputs(Graph& graph, const PassContext& context);

// Optional: products of gates and ups of experts make the gated units too, if there is a kernel
// that costs less.
Status fold_expert_glu(Graph& graph, const PassContext& context);

// Optional: norms and gated activations round their results themselves, if there is a kernel.
Status fold_quantize(Graph& graph, const PassContext& context);

// Required: on GPUs, products feeding gated activations and sums output bf16.
Status round_products(Graph& graph, const PassContext& context);

// Optional: on GPUs, exchange ops that add to the residual and norm.
Status fold_reduce_norm(Graph& graph, const PassContext& context);

// Required: choose kernels, weight layouts, arena offsets.
Status choose_kernels(Graph& graph, const PassContext& context);
// Cost of the cheapest kernel for an op in seconds. NotFound: none.
StatusOr<double> kernel_cost(const Graph& graph, const PassContext& context, const Op& op);
// The least of kernel_cost() over all layouts of its matrices; infinite: no kernel.
double cheapest_cost(Graph& graph, const PassContext& context, const Op& op);
Status plan_memory(Graph& graph, const PassContext& context);

}  // namespace nereid::graph
