// Selection of the matrices that quantize_checkpoint() rounds.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "convert/quantize/product_inputs.h"
#include "convert/quantize/quantize_checkpoint.h"
#include "io/checkpoint.h"
#include "models/family.h"

namespace nereid::convert {

// A tensor to round, and the weights with rows of it.
struct Target {
  std::string name;
  int64_t n = 0, k = 0;
  kernels::WeightFormat format;
  std::vector<graph::WeightId> weights;
  int64_t expert = -1;  // expert index in its single weight; -1: no mixture
  std::string source;   // source tensor; has another name if stacked
};

// A float matrix or vector of one expert, split from a stacked tensor.
struct SplitTensor {
  std::string name, source;
  graph::WeightId weight = graph::kNone;
  int64_t expert = 0;
};

// The tensors to round, in order of writing.
struct Selection {
  std::vector<ProductInput> inputs;
  std::vector<std::vector<Target>> targets;  // by input
  std::vector<std::string> left;             // product modules that are not rounded
  std::optional<Target> head;                // if requested; rounded plainly
  // Stacked tensors are written as one per expert, with llm-compressor's names.
  std::vector<SplitTensor> split;
  std::set<std::string, std::less<>> replaced;  // checkpoint tensors replaced by others
};

// InvalidArgument: the head is requested and cannot be rounded.
StatusOr<Selection> select(const models::Model& model, const io::Checkpoint& checkpoint,
                           const QuantizeOptions& options);

// The tensors of QuantizeOptions::more_bits.
std::set<std::string, std::less<>> tensors_with_more_bits(const graph::Graph& graph);

// A tensor's name without ".weight".
std::string_view module_of(std::string_view tensor);

}  // namespace nereid::convert
