// ERNIE 4.5 MoE: interleaved RoPE, softmax router with a selection-only correction, shared experts.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/moe_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kErnieCorrection[] = {
    correction_rule("mlp.moe_statics.e_score_correction_bias", Order::kOneRow)};

}  // namespace

const DecoderWeights kErnie45MoeWeights = {
    .model = kLlamaModel,
    .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kQwenMoeMlp, kSharedExperts, kErnieCorrection}};

// Tensors of MTP layers.
bool ernie45_moe_ignores(const Traits& t, std::string_view tensor) {
  return tensor.starts_with("model.mtp_") || decoder_ignores(t, tensor);
}

Traits read_ernie45_moe_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 4, .norm_eps = 1e-5, .tied = true});
  t.ropes = {read_rope(c, t, {.theta = 5e5})};
  t.rope_interleaved = true;
  read_experts(c, t, "moe_num_experts", 64, 6, "moe_k");
  t.expert_intermediate_size = c.integer("moe_intermediate_size", 1, kMaxIntermediate, 1536);
  t.shared_intermediate_size =
      c.integer("moe_num_shared_experts", 0, kMaxIntermediate / t.expert_intermediate_size, 2) *
      t.expert_intermediate_size;
  t.renormalise_experts = true;
  const int32_t first = c.integer("moe_layer_start_index", 0, kMaxLayers, 1);
  const int32_t end = c.integer("moe_layer_end_index", -1, kMaxLayers, -1);
  const int32_t step = c.integer("moe_layer_interval", 1, kMaxLayers, 1);
  for (int32_t i = 0; i < t.num_layers; ++i)
    t.has_experts.push_back((i + 1) % step == 0 && i >= first && (end < 0 || i <= end));
  c.require("use_bias", false);
  return t;
}

}  // namespace nereid::models
