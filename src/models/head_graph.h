// What graphs of heads on hidden states have in common.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "graph/builder.h"
#include "models/family.h"

namespace nereid::models {

// The weight of that name of `target`'s graph, added to another one; kNone: it has none.
graph::WeightId add_target_weight(graph::Builder& builder, const Model& target,
                                  std::string_view name);

// Embeddings so wide that are given, never looked up: a table of one row of these tensors' numbers.
// Each has `cols` columns and `rows` rows.
struct RowOf {
  std::string tensor;
  int64_t rows = 0, cols = 0;
};
graph::ValueId given_rows(graph::Builder& builder, std::initializer_list<RowOf> rows);

// Logits of blocks x = x + SiLU(linear(x)) and a matrix behind them, by the tensors
// {prefix}{block}.linear.weight and .bias, and {prefix}{number of blocks}.weight. `x`: bf16.
graph::ValueId residual_head(graph::Builder& builder, graph::ValueId x, const std::string& prefix,
                             int32_t num_blocks, int64_t vocab_size);

// Facts of a head with these traits, for `target`.
io::ModelFacts head_facts(const Traits& traits, std::string_view architecture,
                          const std::filesystem::path& dir, const Model& target);

// Facts of a head without a KV cache, for a model with these.
io::ModelFacts stateless_facts(std::string_view architecture, const std::filesystem::path& dir,
                               const io::ModelFacts& target);

}  // namespace nereid::models
