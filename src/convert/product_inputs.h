// What the products of a model read, who makes it, and where factors of its columns can be taken
// out: for calibrated rounding.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/ir.h"

namespace nereid::convert {

// Where an input's columns can be divided by factors that the products' columns are multiplied by,
// so that the model computes the same.
struct FactorPlace {
  // A norm in front: its weight plus `norm_offset`, and its bias.
  graph::WeightId norm = graph::kNone, norm_bias = graph::kNone;
  float norm_offset = 0;
  // Or the product that makes the columns: its rows from `first_row` on, and its bias. Column i of
  // the input comes from row i; but where query heads share value heads, columns in runs of
  // repeat * times come from runs of `repeat` rows.
  graph::WeightId rows = graph::kNone, rows_bias = graph::kNone;
  int64_t first_row = 0;
  int64_t repeat = 1, times = 1;

  bool is_there() const { return norm != graph::kNone || rows != graph::kNone; }
  int64_t row_of(int64_t column) const {
    return first_row + column / (repeat * times) * repeat + column % repeat;
  }
};

// A value that products with the chosen weights read; or, of a mixture, its rows for one expert.
struct ProductInput {
  graph::ValueId x = graph::kNone;
  int32_t layer = -1;   // from the weights' names: "layers.3.attn.q"; -1: of none
  int64_t expert = -1;  // whose rows, and whose of the weights' matrices; -1: of no mixture
  int64_t k = 0;
  std::vector<graph::WeightId> weights;  // of the products that read it, in order
  FactorPlace place;                     // none unless all that reads x takes factors
  // Where the place is a norm, and of no mixture: what else reads x and takes its factors. Matrices
  // that stay floats, since they choose experts, and those of all experts, whose own inputs have
  // the same place. There may be no weights beside them.
  std::vector<graph::WeightId> followers, expert_weights;

  // The weight of a product that reads it.
  graph::WeightId reader() const { return weights.empty() ? followers.front() : weights.front(); }
};

// Of the graph as its family built it, layer after layer, in each those of no mixture first, then
// those of its first expert, and so on. `is_chosen`: of a matrix. Weights that several nodes use,
// the head's, and those that choose experts are never chosen. Without `finds_places` no input has a
// place for factors, or is there for what follows alone.
std::vector<ProductInput> product_inputs(const graph::Graph& graph,
                                         const std::function<bool(graph::WeightId)>& is_chosen,
                                         bool finds_places);

}  // namespace nereid::convert
