// Decoders whose MLP is a mixture of experts: Mixtral; Qwen3-MoE with norms of queries and keys;
// Qwen2-MoE with an expert for all tokens; GPT-OSS with sinks, windows and biases, whose experts
// lie in one tensor, rows of gate and up in turn.
#include <algorithm>

#include "models/all.h"
#include "models/llama_weights.h"
#include "models/moe_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kMixtralMlp[] = {
    {"mlp.router", "block_sparse_moe.gate.weight", Dim::kExperts, Dim::kHidden},
    {"mlp.gate", "block_sparse_moe.experts.*.w1.weight", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts},
    {"mlp.up", "block_sparse_moe.experts.*.w3.weight", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts},
    {"mlp.down", "block_sparse_moe.experts.*.w2.weight", Dim::kHidden, Dim::kExpertIntermediate,
     Shard::kExperts},
};
constexpr WeightRule kOlmoeNorms[] = {
    {"attn.q.norm", "self_attn.q_norm.weight", Dim::kQuery},
    {"attn.k.norm", "self_attn.k_norm.weight", Dim::kKeyValue},
};
constexpr WeightRule kQwenSharedMlp[] = {
    {"mlp.shared.gate", "mlp.shared_expert.gate_proj.weight", Dim::kSharedIntermediate,
     Dim::kHidden, Shard::kN, is_mixture},
    {"mlp.shared.up", "mlp.shared_expert.up_proj.weight", Dim::kSharedIntermediate, Dim::kHidden,
     Shard::kN, is_mixture},
    {"mlp.shared.down", "mlp.shared_expert.down_proj.weight", Dim::kHidden,
     Dim::kSharedIntermediate, Shard::kK, is_mixture},
    {"mlp.shared.score", "mlp.shared_expert_gate.weight", Dim::kOne, Dim::kHidden, Shard::kNone,
     is_mixture},
};
constexpr WeightRule kGptOssMlp[] = {
    {"attn.sinks", "self_attn.sinks", Dim::kNumHeads, Dim::kOne, Shard::kN},
    {"mlp.router", "mlp.router.weight", Dim::kExperts, Dim::kHidden},
    {"mlp.router.bias", "mlp.router.bias", Dim::kExperts},
    {"mlp.gate", "mlp.experts.gate_up_proj[*]", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts, nullptr, true, Order::kEven},
    {"mlp.gate.bias", "mlp.experts.gate_up_proj_bias[*]", Dim::kExpertIntermediate, Dim::kOne,
     Shard::kExperts, nullptr, false, Order::kEven},
    {"mlp.up", "mlp.experts.gate_up_proj[*]", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts, nullptr, true, Order::kOdd},
    {"mlp.up.bias", "mlp.experts.gate_up_proj_bias[*]", Dim::kExpertIntermediate, Dim::kOne,
     Shard::kExperts, nullptr, false, Order::kOdd},
    {"mlp.down", "mlp.experts.down_proj[*]", Dim::kHidden, Dim::kExpertIntermediate,
     Shard::kExperts, nullptr, true},
    {"mlp.down.bias", "mlp.experts.down_proj_bias[*]", Dim::kHidden, Dim::kOne, Shard::kExperts},
};

// Layers named dense, and those that are not a multiple of the step; one of none is among the
// last.
void read_dense_layers(Config& c, Traits& t) {
  const int32_t step = c.integer("decoder_sparse_step", 1, kMaxLayers, 1);
  const std::vector<int32_t> dense = c.integers("mlp_only_layers", 0, t.num_layers - 1);
  if (step == 1 && dense.empty()) return;
  for (int32_t i = 0; i < t.num_layers; ++i)
    t.has_experts.push_back((i + 1) % step == 0 && std::ranges::find(dense, i) == dense.end());
}

Traits read_qwen_moe(Config& c, const DecoderDefaults& defaults, int64_t experts, int64_t picked,
                     int64_t intermediate) {
  Traits t = read_decoder(c, defaults);
  t.sliding_window = 0;  // files name one and switch it off
  t.ropes = {read_rope(c, t)};
  t.expert_intermediate_size =
      c.integer("moe_intermediate_size", 1, kMaxIntermediate, intermediate);
  t.renormalise_experts = c.boolean("norm_topk_prob", false);
  read_experts(c, t, "num_experts", experts, picked);
  c.require("use_sliding_window", false);
  read_dense_layers(c, t);
  return t;
}

}  // namespace

const DecoderWeights kMixtralWeights = {.model = kLlamaModel,
                                        .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kMixtralMlp}};
const DecoderWeights kQwen3MoeWeights = {.model = kLlamaModel,
                                         .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kQwenMoeMlp}};
const DecoderWeights kQwen2MoeWeights = {
    .model = kLlamaModel,
    .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kQwenMoeMlp, kQwenSharedMlp}};
const DecoderWeights kOlmoeWeights = {
    .model = kLlamaModel, .layer = {kLlamaNorms, kOlmoeNorms, kLlamaQkv, kLlamaOut, kQwenMoeMlp}};
const DecoderWeights kGptOssWeights = {.model = kLlamaModel,
                                       .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kGptOssMlp}};

// The router's softmax is over the picked experts alone.
Traits read_mixtral_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 8, .window = 0, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t, {.theta = 1e6})};
  t.expert_intermediate_size = t.intermediate_size;
  t.renormalise_experts = true;
  read_experts(c, t, "num_local_experts", 8, 2);
  return t;
}

// Mixtral with LayerNorm, biases, longrope and another router.
Traits read_phimoe_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 8, .window = 0, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t, {.theta = 1e6, .own_mscale = true})};
  t.layer_norm = t.norm_bias = true;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.head_bias = c.boolean("lm_head_bias", false);
  t.expert_intermediate_size = t.intermediate_size;
  t.expert_scoring = kernels::Scoring::kSparseMixer;
  t.expert_reach = static_cast<float>(2 * c.number("router_jitter_noise", 0, 10, 0.01));
  read_experts(c, t, "num_local_experts", 16, 2);
  return t;
}

Traits read_qwen2_moe_traits(Config& c) {
  Traits t = read_qwen_moe(c, {.window = 0}, 60, 4, 1408);
  t.qkv_bias = c.boolean("qkv_bias", true);
  t.shared_intermediate_size =
      c.integer("shared_expert_intermediate_size", 1, kMaxIntermediate, 5632);
  return t;
}

Traits read_qwen3_moe_traits(Config& c) {
  Traits t = read_qwen_moe(c, {.kv_heads = 4, .window = 0}, 128, 8, 768);
  t.qk_norm = true;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  return t;
}

// Qwen's experts; norms of queries and keys as a whole.
Traits read_olmoe_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5});
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.expert_intermediate_size = t.intermediate_size;
  t.renormalise_experts = c.boolean("norm_topk_prob", false);
  read_experts(c, t, "num_experts", 64, 8);
  return t;
}

// The activation is the family's own, whatever `hidden_act` says.
Traits read_gpt_oss_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 8, .head_dim = 64, .window = 128, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t, {.theta = 150000})};
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", true);
  t.expert_intermediate_size = t.intermediate_size;
  t.renormalise_experts = true;
  read_experts(c, t, "num_local_experts", 128, 4);
  read_windows(c, t, [](int32_t layer) { return layer % 2 == 0; });
  t.activation = kernels::Activation::kGeluSigmoid;
  c.require("swiglu_alpha", 1.702);
  t.glu_limit = static_cast<float>(c.number("swiglu_limit", 1e-3, 1e6, 7));
  t.glu_up_offset = 1;
  return t;
}

}  // namespace nereid::models
