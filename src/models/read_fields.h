// config.json fields common to several families, with bounds of sizes.
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

// Names of the RoPE fields, and values of absent ones.
struct RopeFields {
  std::string_view theta_name = "rope_theta", fraction_name = "partial_rotary_factor";
  double theta = 10000;
  std::optional<double> fraction;  // rotary share of a head's columns; none: must be 1
  bool ntk_alpha = false;          // dynamic: `alpha` scales theta, as for a longer context
  bool own_mscale = false;         // longrope: has `short_mscale` and `long_mscale`
  bool in_plane = false;           // of a picture's rows and columns: newer files say "axial"
};
// Reads theta, fraction, and `rope_scaling` or `rope_parameters`.
RopeTraits read_rope(Config& config, const Traits& traits, const RopeFields& fields = {});

// RoPE of layers without and with a sliding window (the latter unscaled): an object per kind in
// `rope_parameters` (newer files), or separate fields.
std::vector<RopeTraits> read_ropes_of_windows(Config& config, const Traits& traits,
                                              const RopeFields& full, const RopeFields& windowed);

// Names of the fields that all decoders have.
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
// Values of absent fields.
struct DecoderDefaults {
  std::optional<int64_t> vocab, heads;  // none: required
  std::optional<int64_t> kv_heads;      // none: number of heads
  std::optional<int64_t> head_dim;      // none: hidden size / number of heads
  std::optional<int64_t> intermediate;  // multiple of the hidden size; none: required
  std::optional<int64_t> positions;     // none: required
  std::optional<int64_t> window;        // 0: off; none: the family has no window
  double norm_eps = 1e-6;
  std::string_view activation = "silu";
  bool tied = false;
};
// Reads sizes, norms, activation and tied embedding; not RoPE.
Traits read_decoder(Config& config, const DecoderDefaults& defaults = {},
                    const DecoderNames& names = {});

// Layers with RoPE: all but every n-th, or by a list.
void read_rope_layers(Config& config, Traits& traits);

// Layers with the sliding window: `layer_types`, else `usual` by layer.
void read_windows(Config& config, Traits& traits, const std::function<bool(int32_t)>& usual,
                  std::string_view windowed = "sliding_attention");

// Number of experts and of selected experts, by field names, with defaults.
void read_experts(Config& config, Traits& traits, std::string_view count, int64_t usual,
                  int64_t picked, std::string_view picked_name = "num_experts_per_tok");

// A positive number; absent: 0 (off).
float read_cap(Config& config, std::string_view key);

// Fails if a field that changes some family's computation is set and was not read.
void refuse_unread(Config& config);

}  // namespace nereid::models
