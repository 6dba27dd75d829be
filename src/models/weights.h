// Weight rules: a family's checkpoint tensors with names, shapes and conditions, for building
// graphs, checking checkpoints and sharding.
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

// Sizes of a tensor's dimensions.
enum class Dim : uint8_t {
  kOne,
  kVocab,
  kPositions,
  kEmbed,  // see Traits
  kHidden,
  kTwoHidden,  // two hidden states side by side
  kIntermediate,
  kExperts,             // per layer
  kExpertIntermediate,  // of one expert
  kSharedIntermediate,  // of the shared expert
  kHead,
  kNumHeads,  // query heads
  kQuery,
  kKeyValue,
  kQueryKeyValue,  // all heads side by side
  kLatent,         // see Traits
  kQueryLatent,
  kRotary,
  kNonRotary,  // non-rotary dims of a head
  kValue,      // of a head
  kValues,     // of all heads
  kGateUp,     // gate above up; ranks split each
  kMelBins,
  kThreeMelBins,  // three frames side by side
  kThreeHidden,   // three hidden states side by side
  kPatch,         // numbers of a picture's patch
  kMerged,        // hidden states of a block of patches side by side
  kProjector,     // see Traits
  kFeature,
  kPlane,       // rows of a square table of positions
  kTiles,       // tiles of each arrangement
  kTilePlaces,  // places of all of these
  kPlaces,      // of a tile
  kTaps,        // hidden states of the last layer and of the tapped ones, side by side
};

// Axis along which ranks can shard a weight.
enum class ShardAxis : uint8_t {
  kNone,     // replicated
  kN,        // rows: each rank computes some outputs
  kK,        // columns: each rank computes partial sums
  kHeads,    // rows or columns of whole heads
  kExperts,  // whole experts
};

// Row order of a weight in its tensor.
enum class Order : uint8_t {
  kSame,       // as in the weight
  kByKeyHead,  // for each KV head: its query heads, key head, value head
  kEven,       // every second row, from row 0
  kOdd,        // every second row, from row 1
  kFirstHalf,  // first half of the tensor's rows
  kSecondHalf,
  kOneRow,  // a vector stored as a one-row matrix
  // A vector over all heads: one tensor per head ("*": head index), or a leading head dimension
  // ("[*]" at the end).
  kByHead,
  // MLA queries: per head the rotary rows, stored last, come first.
  kRotaryFirst,
  kLatentRows,  // kv_a: compressed keys and values, stored before the rotary rows
  kRotaryRows,  // kv_a: the rotary rows
  // kv_b_proj per head: rows of the key up-projection W_UK, then of the value up-projection W_UV.
  // kHeadKeys: W_UK^T, kHeadValues: W_UV, one matrix per head (absorbed MLA).
  kHeadKeys,
  kHeadValues,
  // Position bias of heads: a vector [heads, distances] of a table [buckets, heads]. The tensor's
  // name has no layer in front.
  kByDistance,
  // The weight of a convolution over `window` positions, [n, channels, window]: columns [window,
  // channels], or [channels, window] as they are stored.
  kWindow,
  // See graph::WeightPart::is_flat.
  kFlat,
  // A table of positions of a picture's patches row by row, class tokens in front; here the patches
  // come block by block.
  kBlocks,
  // Columns of a block of patches as [hidden, patches]; here [patches, hidden].
  kByChannel,
  kLeading,  // a matrix of the tensor's leading rows, of which Traits::extra_embeddings follow
  kExtra,    // a vector: the first of these
  // Columns of the last layer's hidden states, then of tapped layers' as [hidden, layers]; in the
  // weight those are [layers, hidden].
  kTapped,
  // Tables of positions without a tensor; `skipped` rows are left out. See graph::Sinusoids.
  kPowerSinusoids,
  kSpannedSinusoids,
};

using Condition = bool (*)(const Traits&);

struct WeightRule {
  std::string_view name;  // in the engine: "attn.q"
  // In the checkpoint, after the layer's prefix: "self_attn.q_proj.weight". "*": expert index, one
  // tensor per expert; "[*]" at the end: one tensor with all experts.
  std::string_view tensor;
  Dim n = Dim::kOne;
  Dim k = Dim::kOne;  // kOne: a vector of n
  ShardAxis shard = ShardAxis::kNone;
  Condition when = nullptr;  // absent: always
  bool transposed = false;   // stored as [k, n]
  Order order = Order::kSame;
  int32_t skipped = 0;  // leading rows of the tensor that are not the weight's
  kernels::WeightFormat format = {};
  bool unit_rows = false;            // see graph::WeightPart
  std::string_view row_scales = {};  // tensor behind the layer's prefix; also of the bias
  int32_t window = 0;                // kWindow
  // Condition of the bias "attn.q.bias", tensor "self_attn.q_proj.bias"; absent: no bias.
  Condition bias = nullptr;
};

// The weights of a rule set in one scope (the whole model or one layer).
class Weights {
 public:
  // Adds all rules whose condition holds, with biases. Prefixes: `scope` of engine names,
  // `tensor_scope` of tensor names.
  Weights(graph::Builder& builder, const Traits& traits, std::span<const WeightRule> rules,
          const std::string& scope = "", const std::string& tensor_scope = "");

  // The weight of a rule; kNone: its condition does not hold.
  graph::WeightId operator[](std::string_view name) const;

 private:
  std::vector<std::pair<std::string, graph::WeightId>> ids_;
};

// Distances j - i of a position bias: first one (never positive) and number.
struct Distances {
  int32_t first = 0, num = 0;
};
Distances distances_of(const Traits& traits);

// Whether a tensor belongs to an MTP layer, see Traits::num_mtp_layers.
bool is_of_extra_layer(const Traits& traits, std::string_view tensor);

// Whether a tensor without a rule may be ignored.
using Ignores = bool (*)(const Traits&, std::string_view tensor);

// Checks: each tensor of the graph is in the checkpoint with its shape and a floating-point type,
// and all other tensors may be ignored; MTP layers are ignored with a log line. InvalidArgument
// with file and tensor.
Status check_tensors(const graph::Graph& graph, const io::Checkpoint& checkpoint,
                     const Traits& traits, Ignores ignores);

// Sets graph::Weight::stored from the checkpoint; tensors may be unchecked.
void use_stored_formats(graph::Graph& graph, const io::Checkpoint& checkpoint);

}  // namespace nereid::models
