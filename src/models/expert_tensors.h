// Experts that lie stacked in one tensor, and the layout that has a tensor for each: what
// llm-compressor makes of them, since its formats are those of matrices.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "graph/ir.h"
#include "io/checkpoint.h"

namespace nereid::models {

// Whether a weight (or bias) has all experts in one tensor.
bool is_stacked(const graph::Weight& weight);

// The tensor of a weight's part where each expert has its own. Of "layers.0.mlp.gate" in
// "model.layers.0.mlp.experts.gate_up_proj":
// "model.layers.0.mlp.experts.3.gate_proj.weight". Of others the part's tensor.
std::string apart_name(const graph::Weight& weight, int64_t part);

// Makes all stacked experts of a graph ones with a tensor each.
void set_experts_apart(graph::Graph& graph);

// Divides the tensors of all experts of a layer where the graph asks for a tensor of each:
// "mlp.experts.gate_up_proj" [experts, 2 n, k] and "down_proj" [experts, n, k], or both with the
// last two dimensions turned. transformers 5 has them in memory, and writes them with
// `save_original_format` off; then some names are others, too. InvalidArgument naming
// file and tensor.
Status divide_experts(const graph::Graph& graph, io::Checkpoint& checkpoint);

}  // namespace nereid::models
