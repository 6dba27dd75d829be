// Which matrices of a model quantize_checkpoint() rounds.
#pragma once

#include <optional>
#include <set>
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
  int64_t expert = -1;  // whose matrix of the one weight it is; -1: of no mixture
  std::string source;   // the tensor that it is made of, of the same name unless that is stacked
};

// A matrix or vector of an expert, of a tensor that has those of all, which stays floats.
struct SplitTensor {
  std::string name, source;
  graph::WeightId weight = graph::kNone;
  int64_t expert = 0;
};

// What is rounded, in the order in which it is written.
struct Selection {
  std::vector<ProductInput> inputs;
  std::vector<std::vector<Target>> targets;  // of each input
  std::vector<std::string> left;             // modules of products that stay as they are
  std::optional<Target> head;                // if it is asked for; rounded plainly
  // Stacked tensors are written as one for each expert, named as llm-compressor names them.
  std::vector<SplitTensor> split;
  std::set<std::string, std::less<>> replaced;  // tensors of the checkpoint that others stand for
};

// InvalidArgument: the head is asked for and cannot be rounded.
StatusOr<Selection> select(const models::Model& model, const io::Checkpoint& checkpoint,
                           const QuantizeOptions& options);

// Those of QuantizeOptions::more_bits.
std::set<std::string, std::less<>> tensors_with_more_bits(const graph::Graph& graph);

// A tensor's name without ".weight".
std::string_view module_of(std::string_view tensor);

}  // namespace nereid::convert
