// Decoders whose MLP is a mixture of experts: Mixtral, and Qwen3-MoE with norms of queries and
// keys.
#include <cmath>

#include "models/all.h"
#include "models/read_fields.h"
#include "models/weights.h"

namespace nereid::models {
namespace {

constexpr int64_t kMaxExpertsInAll = 1 << 17;  // of all layers: each is three tensors

constexpr bool has_moe_bias(const Traits& t) { return t.qkv_bias; }

constexpr WeightRule kMoeModel[] = {
    {"embed", "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"norm", "model.norm.weight", Dim::kHidden},
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
    {"head", "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
};
constexpr WeightRule kMoeAttention[] = {
    {"attn.norm", "input_layernorm.weight", Dim::kHidden},
    {"attn.q", "self_attn.q_proj.weight", Dim::kQuery, Dim::kHidden, Shard::kHeads},
    {"attn.k", "self_attn.k_proj.weight", Dim::kKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.v", "self_attn.v_proj.weight", Dim::kKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.out", "self_attn.o_proj.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"attn.q.bias", "self_attn.q_proj.bias", Dim::kQuery, Dim::kOne, Shard::kHeads, has_moe_bias},
    {"attn.k.bias", "self_attn.k_proj.bias", Dim::kKeyValue, Dim::kOne, Shard::kHeads,
     has_moe_bias},
    {"attn.v.bias", "self_attn.v_proj.bias", Dim::kKeyValue, Dim::kOne, Shard::kHeads,
     has_moe_bias},
    {"attn.out.bias", "self_attn.o_proj.bias", Dim::kHidden, Dim::kOne, Shard::kNone, has_moe_bias},
    {"mlp.norm", "post_attention_layernorm.weight", Dim::kHidden},
};
constexpr WeightRule kMixtralMlp[] = {
    {"mlp.router", "block_sparse_moe.gate.weight", Dim::kExperts, Dim::kHidden},
    {"mlp.gate", "block_sparse_moe.experts.*.w1.weight", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts},
    {"mlp.up", "block_sparse_moe.experts.*.w3.weight", Dim::kExpertIntermediate, Dim::kHidden,
     Shard::kExperts},
    {"mlp.down", "block_sparse_moe.experts.*.w2.weight", Dim::kHidden, Dim::kExpertIntermediate,
     Shard::kExperts},
};
constexpr WeightRule kQwen3MoeMlp[] = {
    {"attn.q.norm", "self_attn.q_norm.weight", Dim::kHead},
    {"attn.k.norm", "self_attn.k_norm.weight", Dim::kHead},
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

graph::ValueId moe_attention(graph::Builder& b, const Traits& t, const Weights& w,
                             const Weights& norms, int32_t index, const std::string& name,
                             graph::ValueId h) {
  const auto product = [&](const std::string& part, graph::ValueId from) {
    return b.linear(name + part, from, w[part], w[part + ".bias"]);
  };
  const auto normed = [&](const std::string& part, graph::ValueId heads) {
    const graph::WeightId weight = norms[part];
    return weight == graph::kNone ? heads : b.head_norm(name + part, heads, weight, {t.norm_eps});
  };
  const graph::ValueId q = normed("attn.q.norm", product("attn.q", h));
  const graph::ValueId k = normed("attn.k.norm", product("attn.k", h));
  const graph::ValueId v = product("attn.v", h);
  const graph::ValueId qkv = b.rope(name + "attn.rope", b.concat(name + "attn.qkv", {q, k, v}));
  const float scale = 1 / std::sqrt(static_cast<float>(t.head_dim));
  return product("attn.out", b.attention(name + "attn", qkv, index, scale, t.sliding_window));
}

graph::ValueId mixture(graph::Builder& b, const Traits& t, const Weights& w,
                       const std::string& name, graph::ValueId h) {
  const graph::Builder::Routed routed =
      b.route(name + "mlp.route",
              {.x = b.linear(name + "mlp.router", h, w["mlp.router"]),
               .renormalise = t.renormalise_experts},
              t.experts_per_token);
  const auto product = [&](const std::string& part, graph::ValueId from) {
    return b.expert_linear(name + part, from, routed.experts, w[part]);
  };
  const graph::ValueId gate = product("mlp.gate", h), up = product("mlp.up", h);
  h = b.glu(name + "mlp.act", b.concat(name + "mlp.gate_up", {gate, up}), t.activation);
  return b.weighted_sum(name + "mlp.out", product("mlp.down", h), routed.weights);
}

StatusOr<graph::Graph> build_moe(const Traits& t, io::ModelFacts facts,
                                 std::span<const WeightRule> mlp_rules) {
  graph::Builder b(std::move(facts));
  const Weights w(b, t, kMoeModel);
  graph::ValueId x = b.embed("embed", w["embed"]);
  for (int32_t i = 0; i < t.num_layers; ++i) {
    const std::string name = fmt::format("layers.{}.", i);
    const Weights attention(b, t, kMoeAttention, name, "model." + name);
    const Weights mlp(b, t, mlp_rules, name, "model." + name);
    graph::ValueId h = b.norm(name + "attn.norm", x, attention["attn.norm"], {t.norm_eps});
    x = b.add(name + "attn.sum", x, moe_attention(b, t, attention, mlp, i, name, h));
    h = b.norm(name + "mlp.norm", x, attention["mlp.norm"], {t.norm_eps});
    x = b.add(name + "mlp.sum", x, mixture(b, t, mlp, name, h));
  }
  x = b.linear("head", b.norm("norm", x, w["norm"], {t.norm_eps}), w["head"]);
  return std::move(b).finish(b.sampled_rows("logits", x));
}

}  // namespace

// The router's softmax is over the picked experts alone.
Traits read_mixtral_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 8, .theta = 1e6, .norm_eps = 1e-5});
  t.expert_intermediate_size = t.intermediate_size;
  t.renormalise_experts = true;
  read_experts(c, t, "num_local_experts", 8, 2);
  return t;
}

Traits read_qwen3_moe_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 4});
  t.sliding_window = 0;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.expert_intermediate_size = c.integer("moe_intermediate_size", 1, kMaxIntermediate, 768);
  t.renormalise_experts = c.boolean("norm_topk_prob", false);
  read_experts(c, t, "num_experts", 128, 8);
  c.require("use_sliding_window", false);
  c.require("decoder_sparse_step", 1);
  c.require("mlp_only_layers", json::array());
  return t;
}

StatusOr<graph::Graph> build_mixtral(const Traits& t, io::ModelFacts facts) {
  return build_moe(t, std::move(facts), kMixtralMlp);
}
StatusOr<graph::Graph> build_qwen3_moe(const Traits& t, io::ModelFacts facts) {
  return build_moe(t, std::move(facts), kQwen3MoeMlp);
}

bool moe_ignores(const Traits& t, std::string_view tensor) {
  return tensor.ends_with(".rotary_emb.inv_freq") ||
         (t.tied_embedding && tensor == "lm_head.weight");
}

}  // namespace nereid::models
