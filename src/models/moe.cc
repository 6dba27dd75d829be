// Decoders whose MLP is a mixture of experts: Mixtral, and Qwen3-MoE with norms of queries and
// keys.
#include "models/all.h"
#include "models/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr int64_t kMaxExpertsInAll = 1 << 17;  // of all layers: each is three tensors

constexpr WeightRule kMixtralMlp[] = {
    {"mlp.router", "block_sparse_moe.gate.weight", Dim::kExperts, Dim::kHidden},
    {"mlp.gate", "block_sparse_moe.experts.*.w1.weight", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts},
    {"mlp.up", "block_sparse_moe.experts.*.w3.weight", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts},
    {"mlp.down", "block_sparse_moe.experts.*.w2.weight", Dim::kHidden, Dim::kExpertIntermediate,
     Shard::kExperts},
};
constexpr WeightRule kQwenMoeMlp[] = {
    {"mlp.router", "mlp.gate.weight", Dim::kExperts, Dim::kHidden},
    {"mlp.gate", "mlp.experts.*.gate_proj.weight", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts},
    {"mlp.up", "mlp.experts.*.up_proj.weight", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts},
    {"mlp.down", "mlp.experts.*.down_proj.weight", Dim::kHidden, Dim::kExpertIntermediate,
     Shard::kExperts},
};

void read_experts(Config& c, Traits& t, std::string_view count, int64_t usual, int64_t picked) {
  t.num_experts = c.integer(count, 1, kernels::kMaxExperts, usual);
  if (int64_t{t.num_experts} * t.num_layers > kMaxExpertsInAll)
    c.fail(count, fmt::format("{} experts in each of {} layers are more than {} in all",
                              t.num_experts, t.num_layers, kMaxExpertsInAll));
  t.experts_per_token = c.integer("num_experts_per_tok", 1, t.num_experts, picked);
}

}  // namespace

const DecoderWeights kMixtralWeights = {.model = kLlamaModel,
                                        .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kMixtralMlp}};
const DecoderWeights kQwen3MoeWeights = {.model = kLlamaModel,
                                         .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kQwenMoeMlp}};

// The router's softmax is over the picked experts alone.
Traits read_mixtral_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 8, .window = 0, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t, {.theta = 1e6})};
  t.expert_intermediate_size = t.intermediate_size;
  t.renormalise_experts = true;
  read_experts(c, t, "num_local_experts", 8, 2);
  return t;
}

Traits read_qwen3_moe_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 4, .window = 0});
  t.sliding_window = 0;  // files name one and switch it off
  t.ropes = {read_rope(c, t)};
  t.qk_norm = true;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.expert_intermediate_size = c.integer("moe_intermediate_size", 1, kMaxIntermediate, 768);
  t.renormalise_experts = c.boolean("norm_topk_prob", false);
  read_experts(c, t, "num_experts", 128, 8);
  c.require("use_sliding_window", false);
  c.require("decoder_sparse_step", 1);
  c.require("mlp_only_layers", json::array());
  return t;
}

}  // namespace nereid::models
