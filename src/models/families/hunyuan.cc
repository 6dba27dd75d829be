// Hunyuan: Llama with QK norms behind RoPE; optionally experts with a shared one.
#include <algorithm>
#include <vector>

#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kHunyuanNorms[] = {
    {"attn.q.norm", "self_attn.query_layernorm.weight", Dim::kHead, Dim::kOne, ShardAxis::kNone,
     norms_behind_rope},
    {"attn.k.norm", "self_attn.key_layernorm.weight", Dim::kHead, Dim::kOne, ShardAxis::kNone,
     norms_behind_rope},
};
constexpr WeightRule kHunyuanMoe[] = {
    router_rule("mlp.gate.wg.weight"),
    expert_gate_rule("mlp.experts.*.gate_proj.weight"),
    expert_up_rule("mlp.experts.*.up_proj.weight"),
    expert_down_rule("mlp.experts.*.down_proj.weight"),
    shared_gate_rule("mlp.shared_mlp.gate_proj.weight"),
    shared_up_rule("mlp.shared_mlp.up_proj.weight"),
    shared_down_rule("mlp.shared_mlp.down_proj.weight"),
};

// A number, or a list of equal numbers per layer.
int32_t of_all_layers(Config& c, std::string_view key, int64_t min, int64_t max, int32_t usual) {
  const std::vector<int32_t> list = c.integers(key, min, max);
  if (list.empty()) return usual;
  if (std::ranges::any_of(list, [&](int32_t one) { return one != list[0]; }))
    c.fail(key, "differs from layer to layer");
  return list[0];
}

}  // namespace

const DecoderWeights kHunyuanWeights = {
    .model = kLlamaModel, .layer = {kLlamaNorms, kHunyuanNorms, kLlamaQkv, kLlamaOut, kLlamaMlp}};
const DecoderWeights kHunyuanMoeWeights = {
    .model = kLlamaModel, .layer = {kLlamaNorms, kHunyuanNorms, kLlamaQkv, kLlamaOut, kHunyuanMoe}};

Traits read_hunyuan_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5});
  t.ropes = {read_rope(c, t, {.ntk_alpha = true})};
  t.norms_behind_rope = c.boolean("use_qk_norm", true);
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  c.require("use_cla", false);
  return t;
}

Traits read_hunyuan_moe_traits(Config& c) {
  Traits t = read_hunyuan_traits(c);
  read_experts(c, t, "num_experts", 1, of_all_layers(c, "moe_topk", 1, kernels::kMaxExperts, 1));
  t.expert_intermediate_size =
      of_all_layers(c, "moe_intermediate_size", 1, kMaxIntermediate, t.intermediate_size);
  t.shared_intermediate_size = t.intermediate_size * of_all_layers(c, "num_shared_expert", 0, 1, 1);
  t.renormalise_experts = true;
  c.require("use_mixed_mlp_moe", true);
  c.require("moe_layer_num_skipped", 0);
  return t;
}

}  // namespace nereid::models
