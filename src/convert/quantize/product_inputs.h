// For calibrated rounding: inputs of products, their writers, and where column factors can go.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace nereid::convert {

// Place where an input's columns can be divided by factors while the products' columns are
// multiplied by them, so that results are unchanged.
struct FactorPlace {
  // The norm before it: weight + norm_offset, and bias.
  graph::WeightId norm = graph::kNone, norm_bias = graph::kNone;
  float norm_offset = 0;
  // Or the product that computes the columns: its rows from `first_row` on, and bias. Column i
  // comes from row i; with value heads shared by query heads, runs of repeat * times columns come
  // from runs of `repeat` rows.
  graph::WeightId rows = graph::kNone, rows_bias = graph::kNone;
  int64_t first_row = 0;
  int64_t repeat = 1, times = 1;

  bool is_there() const { return norm != graph::kNone || rows != graph::kNone; }
  int64_t row_of(int64_t column) const {
    return first_row + column / (repeat * times) * repeat + column % repeat;
  }
};

// A value read by chosen products; in a mixture, its rows for one expert.
struct ProductInput {
  graph::ValueId x = graph::kNone;
  int32_t layer = -1;   // from weight names: "layers.3.attn.q"; -1: none
  int64_t expert = -1;  // expert of rows and matrices; -1: no mixture
  int64_t k = 0;
  std::vector<graph::WeightId> weights;  // products that read it, in order
  FactorPlace place;                     // none unless all readers of x can take factors
  // For a norm outside a mixture: other readers that take its factors: router matrices, which stay
  // floats, and the experts' matrices, whose inputs have the same place. `weights` may be empty.
  std::vector<graph::WeightId> followers, expert_weights;

  // The weight of a product that reads it.
  graph::WeightId reader() const { return weights.empty() ? followers.front() : weights.front(); }
};

// Inputs of the graph as built by the family: layer by layer, outside experts first, then expert by
// expert. `is_chosen`: by matrix; never chosen: weights with several users, head, routers. Without
// `finds_places` no input has a place or exists for followers only.
std::vector<ProductInput> product_inputs(const graph::Graph& graph,
                                         const std::function<bool(graph::WeightId)>& is_chosen,
                                         bool finds_places);

}  // namespace nereid::convert
