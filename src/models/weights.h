// The table that says which checkpoint tensors a family has: names, shapes, conditions. Building a
// graph, checking a checkpoint and (later) sharding all read the same rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "graph/builder.h"
#include "io/safetensors.h"
#include "models/traits.h"

namespace nereid::models {

// Sizes that a tensor's dimensions can have.
enum class Dim : uint8_t {
  kOne,
  kVocab,
  kPositions,
  kHidden,
  kIntermediate,
  kHead,
  kQuery,
  kKeyValue,
  kQueryKeyValue,  // all heads side by side
};

struct WeightRule {
  std::string_view name;  // in the engine: "attn.q"
  std::string_view
      tensor;  // in the checkpoint, after the layer's prefix: "self_attn.q_proj.weight"
  Dim n = Dim::kOne;
  Dim k = Dim::kOne;                      // kOne: a vector of n
  bool (*when)(const Traits&) = nullptr;  // absent: always
  bool transposed = false;                // the checkpoint has [k, n]
};

// The weights that a set of rules gives to one scope (the whole model or one layer).
class Weights {
 public:
  // Adds all rules whose condition holds; engine names are prefixed with `scope`, tensor names with
  // `tensor_scope`.
  Weights(graph::Builder& builder, const Traits& traits, std::span<const WeightRule> rules,
          const std::string& scope = "", const std::string& tensor_scope = "");

  // The weight of a rule; kNone when its condition did not hold.
  graph::WeightId operator[](std::string_view name) const;

 private:
  std::vector<std::pair<std::string_view, graph::WeightId>> ids_;
};

// Whether a tensor that no rule mentions may be ignored.
using Ignores = bool (*)(const Traits&, std::string_view tensor);

// Every tensor that the graph wants is in the checkpoint with its shape and a floating-point type,
// and nothing is left over. InvalidArgument naming file and tensor.
Status check_tensors(const graph::Graph& graph, const io::Checkpoint& checkpoint,
                     const Traits& traits, Ignores ignores);

}  // namespace nereid::models
