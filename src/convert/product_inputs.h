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

// A value that products with the chosen weights read.
struct ProductInput {
  graph::ValueId x = graph::kNone;
  int32_t layer = -1;  // from the weights' names: "layers.3.attn.q"; -1: of none
  int64_t k = 0;
  std::vector<graph::WeightId> weights;  // of the products that read it, in order
  FactorPlace place;                     // none unless all that reads x is chosen
};

// Of the graph as its family built it, in order. `is_chosen`: of a matrix. Weights that several
// nodes use, the head's, and those that choose experts are never chosen.
std::vector<ProductInput> product_inputs(const graph::Graph& graph,
                                         const std::function<bool(graph::WeightId)>& is_chosen);

}  // namespace nereid::convert
