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
  kEmbed,  // see Traits
  kHidden,
  kTwoHidden,  // two states side by side
  kIntermediate,
  kExperts,             // of a layer
  kExpertIntermediate,  // of one expert
  kSharedIntermediate,  // of the expert for all tokens
  kHead,
  kNumHeads,  // of queries
  kQuery,
  kKeyValue,
  kQueryKeyValue,  // all heads side by side
  kLatent,         // see Traits
  kQueryLatent,
  kTurning,
  kStill,   // of a head: the columns that do not turn
  kValue,   // of a head
  kValues,  // of all heads
  kGateUp,  // both of a gated MLP, one above the other; ranks divide each
};

// The axis along which ranks can share a weight.
enum class Shard : uint8_t {
  kNone,     // every rank has all of it
  kN,        // rows: each rank makes some of the outputs
  kK,        // columns: each rank makes a part of every sum
  kHeads,    // rows or columns, whichever are heads, by whole heads
  kExperts,  // whole experts
};

// Where in the tensor the rows of a weight are.
enum class Order : uint8_t {
  kSame,       // as the weight has them
  kByKeyHead,  // for each key head its query heads, itself, its value head
  kEven,       // every second row, from the first
  kOdd,        // every second row, from the second
  kFirstHalf,  // of the tensor's rows
  kSecondHalf,
  kOneRow,  // a vector that is a matrix of one row
  // A vector of all heads: of each a tensor ("*" is its number), or one along a dimension in front
  // ("[*]" at the end).
  kByHead,
  // Latent attention. Queries: of each head the rows that turn, its last ones, come first.
  kTurningFirst,
  kLatentRows,   // compressed keys and values, in front of the rows that turn
  kTurningRows,  // those
  // Of each head, the rows that make its keys of the compressed ones, then those that make its
  // values: as matrices by head, the former transposed.
  kHeadKeys,
  kHeadValues,
};

using Condition = bool (*)(const Traits&);

struct WeightRule {
  std::string_view name;  // in the engine: "attn.q"
  // In the checkpoint, after the layer's prefix: "self_attn.q_proj.weight". With a "*", which
  // stands for the number of an expert, the weight has all experts; with "[*]" at its end the
  // tensor has them all.
  std::string_view tensor;
  Dim n = Dim::kOne;
  Dim k = Dim::kOne;  // kOne: a vector of n
  Shard shard = Shard::kNone;
  Condition when = nullptr;  // absent: always
  bool transposed = false;   // the checkpoint has [k, n]
  Order order = Order::kSame;
  int32_t skipped = 0;  // rows of the tensor in front of the weight's
  kernels::WeightFormat format = {};
  bool unit_rows = false;  // see graph::WeightPart
  // Where it holds there is "attn.q.bias" too, in "self_attn.q_proj.bias"; absent: nowhere.
  Condition bias = nullptr;
};

// The weights that a set of rules gives to one scope (the whole model or one layer).
class Weights {
 public:
  // Adds all rules whose condition holds, with their biases; engine names are prefixed with
  // `scope`, tensor names with `tensor_scope`.
  Weights(graph::Builder& builder, const Traits& traits, std::span<const WeightRule> rules,
          const std::string& scope = "", const std::string& tensor_scope = "");

  // The weight of a rule; kNone when its condition did not hold.
  graph::WeightId operator[](std::string_view name) const;

 private:
  std::vector<std::pair<std::string, graph::WeightId>> ids_;
};

// A weight [experts, n, k], or what a rank holds of one.
struct WeightSize {
  int64_t experts = 1, n = 0, k = 0;
  bool operator==(const WeightSize&) const = default;
};

// What each of `ranks` ranks holds of a rule's weight in a format. Heads of keys and values are
// held by several ranks when there are fewer of them than ranks. Columns are only cut between the
// groups of the format. InvalidArgument naming the weight, its sizes and what does not divide.
StatusOr<WeightSize> shard_size(const WeightRule& rule, const Traits& traits,
                                const kernels::WeightFormat& format, int32_t ranks,
                                int64_t num_experts = 1);

// Whether a tensor belongs to a layer behind the last one, see Traits.
bool is_of_extra_layer(const Traits& traits, std::string_view tensor);

// Whether a tensor that no rule mentions may be ignored.
using Ignores = bool (*)(const Traits&, std::string_view tensor);

// Every tensor that the graph wants is in the checkpoint with its shape and a floating-point type,
// and nothing is left over but what may be ignored; extra layers are, with a line in the log.
// InvalidArgument naming file and tensor.
Status check_tensors(const graph::Graph& graph, const io::Checkpoint& checkpoint,
                     const Traits& traits, Ignores ignores);

// Notes the format in which the checkpoint has each weight of the graph, see graph::Weight::stored.
// The tensors need not be checked yet.
void use_stored_formats(graph::Graph& graph, const io::Checkpoint& checkpoint);

}  // namespace nereid::models
