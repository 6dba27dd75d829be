// Common parts of draft head graphs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "graph/builder.h"
#include "models/family.h"

namespace nereid::models {

// Adds the weight of that name from `target`'s graph; kNone: absent there.
graph::WeightId add_target_weight(graph::Builder& builder, const Model& target,
                                  std::string_view name);

// An embedding table of one row, made of these tensors, for external embeddings of that width.
// Shape of each tensor: [rows, cols].
struct RowOf {
  std::string tensor;
  int64_t rows = 0, cols = 0;
};
graph::ValueId external_rows(graph::Builder& builder, std::initializer_list<RowOf> rows);

// Logits = last matrix (x), after blocks x = x + SiLU(linear(x)). Tensors:
// {prefix}{block}.linear.weight and .bias, {prefix}{num_blocks}.weight. `x`: bf16.
graph::ValueId residual_head(graph::Builder& builder, graph::ValueId x, const std::string& prefix,
                             int32_t num_blocks, int64_t vocab_size);

// Model facts of a head with these traits for `target`.
io::ModelFacts head_facts(const Traits& traits, std::string_view architecture,
                          const std::filesystem::path& dir, const Model& target);

// Model facts of a head without a KV cache.
io::ModelFacts stateless_facts(std::string_view architecture, const std::filesystem::path& dir,
                               const io::ModelFacts& target);

}  // namespace nereid::models
