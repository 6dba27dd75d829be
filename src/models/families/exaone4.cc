// EXAONE 4: post-norms of attention and MLP, QK norms; the larger model has sliding windows on most
// layers and no RoPE on the others. K-EXAONE: DeepSeek-V3's experts, pre-norms.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/moe_weights.h"
#include "models/read_fields.h"
#include "models/read_mixture.h"

namespace nereid::models {
namespace {

constexpr WeightRule kExaone4Norms[] = {
    norm_rule("attn.out.norm", "post_attention_layernorm.weight"),
    norm_rule("mlp.out.norm", "post_feedforward_layernorm.weight"),
};
constexpr WeightRule kExaoneCorrection[] = {correction_rule("mlp.e_score_correction_bias")};

}  // namespace

const DecoderWeights kExaone4Weights = {.model = kLlamaModel,
                                        .layer = {kExaone4Norms, kLlamaQkv, kLlamaOut, kLlamaMlp}};

const DecoderWeights kExaoneMoeWeights = {
    .model = kLlamaModel,
    .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kQwenMoeMlp, kSharedExperts, kExaoneCorrection}};

bool exaone_moe_ignores(const Traits& t, std::string_view tensor) {
  return tensor.starts_with("mtp.") || decoder_ignores(t, tensor);
}

Traits read_exaone4_traits(Config& c) {
  Traits t = read_decoder(c, {.window = 0, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t)};
  t.qk_norm = true;
  if (t.sliding_window == 0) return t;
  // Some files write the pattern as letters, in addition to the list.
  const int32_t pattern =
      c.has("layer_types") ? 1 : c.integer("sliding_window_pattern", 1, kMaxLayers, 4);
  read_windows(c, t, [pattern](int32_t layer) { return (layer + 1) % pattern != 0; });
  t.has_rope = t.has_window;
  return t;
}

Traits read_exaone_moe_traits(Config& c) {
  Traits t = read_exaone4_traits(c);
  read_mixture(c, t, {1, 64, 8, 1024, 1, 2.5, "num_experts", "num_shared_experts"});
  t.num_mtp_layers = 0;  // MTP layers have other tensor names
  read_corrected_router(c, t, 1, 1);
  return t;
}

}  // namespace nereid::models
