// Which matrices of a model quantize_checkpoint() rounds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "convert/product_inputs.h"
#include "convert/quantize_checkpoint.h"
#include "io/checkpoint.h"
#include "models/family.h"

namespace nereid::convert {

// A tensor that is rounded, and the weights that have rows of it.
struct Target {
  std::string name;
  int64_t n = 0, k = 0;
  kernels::WeightFormat format;
  std::vector<graph::WeightId> weights;
  int64_t first_row = 0;  // of the one weight, where the tensor is rounded by itself
};

// What is rounded, in the order in which it is written.
struct Selection {
  std::vector<ProductInput> inputs;
  std::vector<std::vector<Target>> targets;  // of each input
  std::vector<std::string> left;             // modules of products that stay as they are
  // Rounded plainly, each by itself: matrices of experts, and behind them the head if it is asked
  // for.
  std::vector<Target> plain;
};

// InvalidArgument: the head is asked for and cannot be rounded.
StatusOr<Selection> select(const models::Model& model, const io::Checkpoint& checkpoint,
                           const QuantizeOptions& options);

// A tensor's name without ".weight".
std::string_view module_of(std::string_view tensor);

}  // namespace nereid::convert
