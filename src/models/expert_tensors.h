// Experts that lie stacked in one tensor, and the layout that has a tensor for each: what
// llm-compressor makes of them, since its formats are those of matrices.
#pragma once

#include <cstdint>
#include <string>

#include "graph/ir.h"

namespace nereid::models {

// Whether a weight (or bias) has all experts in one tensor.
bool is_stacked(const graph::Weight& weight);

// The tensor of a weight's part where each expert has its own. Of "layers.0.mlp.gate" in
// "model.layers.0.mlp.experts.gate_up_proj":
// "model.layers.0.mlp.experts.3.gate_proj.weight". Of others the part's tensor.
std::string apart_name(const graph::Weight& weight, int64_t part);

// Makes all stacked experts of a graph ones with a tensor each.
void set_experts_apart(graph::Graph& graph);

}  // namespace nereid::models
