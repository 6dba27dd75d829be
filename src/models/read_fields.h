// Fields of config.json that several families read alike, and the bounds of their sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "models/config.h"
#include "models/traits.h"

namespace nereid::models {

inline constexpr int64_t kMaxVocab = 1 << 24, kMaxHidden = 1 << 17, kMaxIntermediate = 1 << 20;
inline constexpr int64_t kMaxLayers = 1024, kMaxHeads = 1024, kMaxHeadDim = 1024;
inline constexpr int64_t kMaxPositions = 1 << 24;

kernels::Activation read_activation(Config& config, std::string_view key,
                                    std::string_view fallback);

// What a file calls the fields of its rotary embedding, and what they are where it leaves them out.
struct RopeFields {
  std::string_view theta_name = "rope_theta", fraction_name = "partial_rotary_factor";
  double theta = 10000;
  std::optional<double> fraction;  // of a head's columns; none: all, and nothing else is allowed
  bool ntk_alpha = false;          // dynamic: `alpha` raises theta, as for a longer context
  bool own_mscale = false;         // longrope: `short_mscale` and `long_mscale` are there
};
// Theta and fraction, with `rope_scaling` or `rope_parameters`.
RopeTraits read_rope(Config& config, const Traits& traits, const RopeFields& fields = {});

// Of the layers without and of those with a window, which is not scaled: one object for each kind
// in `rope_parameters` (newer files), or fields of their own.
std::vector<RopeTraits> read_ropes_of_windows(Config& config, const Traits& traits,
                                              const RopeFields& full, const RopeFields& windowed);

// What a family's files call the fields that all decoders have.
struct DecoderNames {
  std::string_view hidden = "hidden_size", intermediate = "intermediate_size";
  std::string_view layers = "num_hidden_layers", heads = "num_attention_heads";
  std::string_view kv_heads = "num_key_value_heads";
  std::string_view positions = "max_position_embeddings";
  std::string_view norm_eps = "rms_norm_eps", activation = "hidden_act";
};
inline constexpr DecoderNames kGpt2Names = {.hidden = "n_embd",
                                            .intermediate = "n_inner",
                                            .layers = "n_layer",
                                            .heads = "n_head",
                                            .positions = "n_positions",
                                            .norm_eps = "layer_norm_epsilon",
                                            .activation = "activation_function"};
// What they mean when they leave a field out.
struct DecoderDefaults {
  std::optional<int64_t> vocab, heads;  // none: must be there
  std::optional<int64_t> kv_heads;      // none: the number of heads
  std::optional<int64_t> head_dim;      // none: hidden size / number of heads
  std::optional<int64_t> intermediate;  // as a multiple of the hidden size; none: must be there
  std::optional<int64_t> positions;     // none: must be there
  std::optional<int64_t> window;        // 0: off; none: the family has no window
  double norm_eps = 1e-6;
  std::string_view activation = "silu";
  bool tied = false;
};
// Sizes, norms, activation and whether the head is tied; no rotary embedding.
Traits read_decoder(Config& config, const DecoderDefaults& defaults = {},
                    const DecoderNames& names = {});

// Which layers have the rotary embedding: every one but each n-th, or those that the list says.
void read_rope_layers(Config& config, Traits& traits);

// Which layers have the window: `layer_types`, or what `usual` says of each.
void read_windows(Config& config, Traits& traits, const std::function<bool(int32_t)>& usual,
                  std::string_view windowed = "sliding_attention");

// The number of experts and of those picked, in fields of these names; what they are where the file
// leaves them out.
void read_experts(Config& config, Traits& traits, std::string_view count, int64_t usual,
                  int64_t picked, std::string_view picked_name = "num_experts_per_tok");

// A positive number that switches itself off where it is absent.
float read_cap(Config& config, std::string_view key);

// Fails when the file sets a field that changes the numbers of some family and that the reader of
// this one never asked for.
void refuse_unread(Config& config);

}  // namespace nereid::models
