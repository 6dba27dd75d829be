// OLMoE: Qwen's experts, QK norms over all heads.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/moe_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kOlmoeNorms[] = {
    {"attn.q.norm", "self_attn.q_norm.weight", Dim::kQuery},
    {"attn.k.norm", "self_attn.k_norm.weight", Dim::kKeyValue},
};

}  // namespace

const DecoderWeights kOlmoeWeights = {
    .model = kLlamaModel, .layer = {kLlamaNorms, kOlmoeNorms, kLlamaQkv, kLlamaOut, kQwenMoeMlp}};

Traits read_olmoe_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5});
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.qkv_limit = read_cap(c, "clip_qkv");
  t.expert_intermediate_size = t.intermediate_size;
  t.renormalise_experts = c.boolean("norm_topk_prob", false);
  read_experts(c, t, "num_experts", 64, 8);
  return t;
}

}  // namespace nereid::models
