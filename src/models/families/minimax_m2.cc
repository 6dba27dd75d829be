// MiniMax M2: Mixtral's experts, DeepSeek-V3's router, QK norms over all heads, partial RoPE.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/moe_weights.h"
#include "models/read_fields.h"
#include "models/read_mixture.h"

namespace nereid::models {
namespace {

constexpr WeightRule kMinimaxNorms[] = {
    {"attn.q.norm", "self_attn.q_norm.weight", Dim::kQuery},
    {"attn.k.norm", "self_attn.k_norm.weight", Dim::kKeyValue},
};
constexpr WeightRule kMinimaxCorrection[] = {
    correction_rule("block_sparse_moe.e_score_correction_bias")};

}  // namespace

const DecoderWeights kMinimaxM2Weights = {
    .model = kLlamaModel,
    .layer = {kLlamaNorms, kMinimaxNorms, kLlamaQkv, kLlamaOut, kMixtralMlp, kMinimaxCorrection}};

Traits read_minimax_m2_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 8, .head_dim = 128});
  const int32_t rotary_dims = c.integer("rotary_dim", 2, t.head_dim, t.head_dim);
  t.ropes = {read_rope(c, t, {.theta = 5e6, .fraction = 1.0 * rotary_dims / t.head_dim})};
  t.expert_intermediate_size = t.intermediate_size;
  read_experts(c, t, "num_local_experts", 256, 8);
  read_corrected_router(c, t, 1, 1);
  c.require("use_qk_norm", true);
  c.require("qk_norm_type", "per_layer");
  c.require("use_routing_bias", true);
  c.require("shared_intermediate_size", 0);
  return t;
}

}  // namespace nereid::models
