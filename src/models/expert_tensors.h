// Experts stacked in one tensor, and as one tensor per expert: the layout of llm-compressor, whose
// formats are for matrices.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "graph/ir.h"
#include "io/checkpoint.h"

namespace nereid::models {

// Whether a weight (or bias) has all experts in one tensor.
bool is_stacked(const graph::Weight& weight);

// The separate tensor of an expert: "layers.0.mlp.gate" in
// "model.layers.0.mlp.experts.gate_up_proj" -> "model.layers.0.mlp.experts.3.gate_proj.weight".
// Weights without stacked experts: the part's tensor.
std::string apart_name(const graph::Weight& weight, int64_t part);

// Replaces all stacked experts of a graph by one tensor per expert.
void set_experts_apart(graph::Graph& graph);

// Splits stacked experts if the graph has one tensor per expert: "mlp.experts.gate_up_proj"
// [experts, 2 n, k] and "down_proj" [experts, n, k], or both with the last two dimensions
// transposed. transformers 5 keeps them so in memory and saves them with `save_original_format`
// off, some under other names. InvalidArgument with file and tensor.
Status divide_experts(const graph::Graph& graph, io::Checkpoint& checkpoint);

}  // namespace nereid::models
