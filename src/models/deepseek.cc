// DeepSeek-V2 and V3: latent attention, whose cache keeps one compressed key of each token, and
// mixtures of experts in groups with experts for all tokens, behind a few dense layers.
#include <algorithm>
#include <cmath>
#include <utility>

#include "models/all.h"
#include "models/llama_weights.h"
#include "models/moe_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kLatentAttention[] = {
    {"attn.q.latent", "self_attn.q_a_proj.weight", Dim::kQueryLatent, Dim::kHidden, Shard::kNone,
     has_query_latent},
    {"attn.q.latent.norm", "self_attn.q_a_layernorm.weight", Dim::kQueryLatent, Dim::kOne,
     Shard::kNone, has_query_latent},
    {"attn.q", "self_attn.q_b_proj.weight", Dim::kQuery, Dim::kQueryLatent, Shard::kHeads,
     has_query_latent, false, Order::kTurningFirst},
    {"attn.q", "self_attn.q_proj.weight", Dim::kQuery, Dim::kHidden, Shard::kHeads, no_query_latent,
     false, Order::kTurningFirst},
    {"attn.k", "self_attn.kv_a_proj_with_mqa.weight", Dim::kLatent, Dim::kHidden, Shard::kNone,
     nullptr, false, Order::kLatentRows},
    {"attn.k.turning", "self_attn.kv_a_proj_with_mqa.weight", Dim::kTurning, Dim::kHidden,
     Shard::kNone, nullptr, false, Order::kTurningRows},
    {"attn.k.norm", "self_attn.kv_a_layernorm.weight", Dim::kLatent},
    {"attn.k.up", "self_attn.kv_b_proj.weight", Dim::kLatent, Dim::kStill, Shard::kExperts, nullptr,
     false, Order::kHeadKeys},
    {"attn.v.up", "self_attn.kv_b_proj.weight", Dim::kValue, Dim::kLatent, Shard::kExperts, nullptr,
     false, Order::kHeadValues},
    {"attn.out", "self_attn.o_proj.weight", Dim::kHidden, Dim::kValues, Shard::kK},
};
constexpr WeightRule kSharedExperts[] = {
    shared_gate_rule("mlp.shared_experts.gate_proj.weight"),
    shared_up_rule("mlp.shared_experts.up_proj.weight"),
    shared_down_rule("mlp.shared_experts.down_proj.weight"),
};
constexpr WeightRule kCorrection[] = {
    {.name = "mlp.router.correction",
     .tensor = "mlp.gate.e_score_correction_bias",
     .n = Dim::kExperts,
     .when = is_mixture,
     .format = kernels::kFloat32},
};

void read_latent_attention(Config& c, Traits& t) {
  if (t.num_kv_heads != t.num_heads)
    c.fail("num_key_value_heads",
           fmt::format("{} is not num_attention_heads {}", t.num_kv_heads, t.num_heads));
  t.num_kv_heads = 1;
  if (c.has("q_lora_rank")) t.query_latent = c.integer("q_lora_rank", 1, kMaxHidden);
  t.turning = c.integer("qk_rope_head_dim", 2, kMaxHeadDim / 2, 64);
  t.latent = c.integer("kv_lora_rank", 1, kMaxHeadDim / 2, 512);
  t.value_dim = c.integer("v_head_dim", 1, kMaxHeadDim, 128);
  t.head_dim = t.turning + c.integer("qk_nope_head_dim", 1, kMaxHeadDim - t.turning, 128);
  t.latent_norm_eps = 1e-6f;
  for (const auto& [key, size] :
       {std::pair("qk_rope_head_dim", t.turning), std::pair("kv_lora_rank", t.latent)})
    if (size % 2 != 0) c.fail(key, fmt::format("{} is odd", size));
  Traits turning = t;  // whose head is what turns
  turning.head_dim = t.turning;
  t.ropes = {read_rope(c, turning)};
  t.attention_scale =
      static_cast<float>(t.ropes[0].score_factor / std::sqrt(static_cast<double>(t.head_dim)));
}

// Experts in `groups` groups; the best `groups_kept` of them take part.
void read_groups(Config& c, Traits& t, int64_t groups, int64_t kept, int32_t group_best) {
  t.expert_groups = c.integer("n_group", 1, t.num_experts, groups);
  t.expert_groups_kept = c.integer("topk_group", 1, t.expert_groups, kept);
  t.expert_group_best = group_best;
  const int32_t size = t.num_experts / t.expert_groups;
  if (t.num_experts % t.expert_groups != 0 || size < group_best)
    c.fail("n_group", fmt::format("{} groups of {} experts; wanted are equal ones of at least {}",
                                  t.expert_groups, t.num_experts, group_best));
  if (t.experts_per_token > size * t.expert_groups_kept)
    c.fail("topk_group", fmt::format("{} groups of {} experts are not enough for "
                                     "num_experts_per_tok {}",
                                     t.expert_groups_kept, size, t.experts_per_token));
}

struct MixtureDefaults {
  int64_t dense_layers, experts, picked, intermediate, shared;
  double scale;
};

void read_mixture(Config& c, Traits& t, const MixtureDefaults& defaults) {
  read_experts(c, t, "n_routed_experts", defaults.experts, defaults.picked);
  t.expert_intermediate_size =
      c.integer("moe_intermediate_size", 1, kMaxIntermediate, defaults.intermediate);
  t.shared_intermediate_size =
      c.integer("n_shared_experts", 0, kMaxIntermediate / t.expert_intermediate_size,
                c.mentions("n_shared_experts") ? 0 : defaults.shared) *
      t.expert_intermediate_size;
  t.expert_scale = static_cast<float>(c.number("routed_scaling_factor", 0, 1e4, defaults.scale));
  const int32_t dense = c.integer("first_k_dense_replace", 0, t.num_layers,
                                  std::min<int64_t>(defaults.dense_layers, t.num_layers));
  for (int32_t i = 0; i < t.num_layers; ++i) t.has_experts.push_back(i >= dense);
  c.require("moe_layer_freq", 1);
  t.num_extra_layers = c.integer("num_nextn_predict_layers", 0, kMaxLayers, 0);
}

Traits read_deepseek(Config& c, const MixtureDefaults& defaults) {
  Traits t = read_decoder(c, {.head_dim = 64});
  read_latent_attention(c, t);
  t.rope_interleaved = true;
  read_mixture(c, t, defaults);
  return t;
}

}  // namespace

const DecoderWeights kDeepseek2Weights = {
    .model = kLlamaModel, .layer = {kLlamaNorms, kLatentAttention, kQwenMoeMlp, kSharedExperts}};
const DecoderWeights kDeepseek3Weights = {
    .model = kLlamaModel,
    .layer = {kLlamaNorms, kLatentAttention, kQwenMoeMlp, kSharedExperts, kCorrection}};

// Experts by softmax, the groups with the best single expert, weights that keep their sum.
Traits read_deepseek2_traits(Config& c) {
  Traits t = read_deepseek(c, {0, 64, 6, 1407, 2, 1.0});
  c.require("scoring_func", "softmax");
  c.require("norm_topk_prob", false);
  const std::string method = c.string("topk_method", "greedy");
  if (method == "group_limited_greedy")
    read_groups(c, t, 1, 1, 1);
  else if (method != "greedy")
    c.fail("topk_method",
           fmt::format("'{}' is not one of greedy, group_limited_greedy", method.substr(0, 40)));
  return t;
}

// Experts by sigmoid with a correction that only picks, the groups with the best two experts.
Traits read_deepseek3_traits(Config& c) {
  Traits t = read_deepseek(c, {3, 256, 8, 2048, 1, 2.5});
  t.rope_interleaved = c.boolean("rope_interleave", true);
  t.expert_scoring = kernels::Scoring::kSigmoid;
  t.renormalise_experts = c.boolean("norm_topk_prob", true);
  c.require("scoring_func", "sigmoid");
  c.require("topk_method", "noaux_tc");
  read_groups(c, t, 8, 4, 2);
  return t;
}

}  // namespace nereid::models
