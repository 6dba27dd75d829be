// Llama 4: chunked attention with RoPE, in some layers full attention without RoPE; each expert's
// input is scaled by its routing weight.
#include <algorithm>
#include <vector>

#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr std::string_view kGateUp = "feed_forward.experts.gate_up_proj[*]";

constexpr WeightRule kLlama4Norms[] = {
    {"attn.q.norm", "self_attn.q_norm.weight", Dim::kHead, Dim::kOne, ShardAxis::kNone,
     unit_head_norms},
    {"attn.k.norm", "self_attn.k_norm.weight", Dim::kHead, Dim::kOne, ShardAxis::kNone,
     unit_head_norms},
};
constexpr WeightRule kLlama4Mlp[] = {
    router_rule("feed_forward.router.weight"),
    transposed(in_order(expert_gate_rule(kGateUp), Order::kFirstHalf)),
    transposed(in_order(expert_up_rule(kGateUp), Order::kSecondHalf)),
    transposed(expert_down_rule("feed_forward.experts.down_proj[*]")),
    shared_gate_rule("feed_forward.shared_expert.gate_proj.weight"),
    shared_up_rule("feed_forward.shared_expert.up_proj.weight"),
    shared_down_rule("feed_forward.shared_expert.down_proj.weight"),
    gate_rule("feed_forward.gate_proj.weight", is_dense),
    up_rule("feed_forward.up_proj.weight", is_dense),
    down_rule("feed_forward.down_proj.weight", is_dense),
};

// Layers with experts: every step-th, or those in the list.
void read_expert_layers(Config& c, Traits& t) {
  const int32_t step = c.integer("interleave_moe_layer_step", 1, kMaxLayers, 1);
  const std::vector<int32_t> listed = c.integers("moe_layers", 0, t.num_layers - 1);
  for (int32_t i = 0; i < t.num_layers; ++i)
    t.has_experts.push_back(listed.empty() ? (i + 1) % step == 0
                                           : std::ranges::find(listed, i) != listed.end());
}

}  // namespace

const DecoderWeights kLlama4Weights = {
    .model = kLlamaModel, .layer = {kLlamaNorms, kLlama4Norms, kLlamaQkv, kLlamaOut, kLlama4Mlp}};

Traits read_llama4_traits(Config& c) {
  Traits t = read_decoder(c, {.kv_heads = 8, .head_dim = 128, .window = 0, .norm_eps = 1e-5});
  t.expert_intermediate_size = t.shared_intermediate_size = t.intermediate_size;
  t.intermediate_size = c.integer("intermediate_size_mlp", 1, kMaxIntermediate, 16384);
  t.ropes = {read_rope(c, t, {.theta = 5e5})};
  t.rope_interleaved = true;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  t.unit_head_norms = c.boolean("use_qk_norm", true);
  read_rope_layers(c, t);
  t.sliding_window = 0;
  if (c.has("attention_chunk_size") || !c.mentions("attention_chunk_size")) {
    t.sliding_window = c.integer("attention_chunk_size", 1, kMaxPositions, 8192);
    t.chunked = true;
    read_windows(
        c, t, [&](int32_t layer) { return t.has_rope[static_cast<size_t>(layer)]; },
        "chunked_attention");
  }
  read_experts(c, t, "num_local_experts", 16, 1);
  c.require("num_experts_per_tok", 1);
  t.expert_scoring = kernels::Scoring::kSigmoid;
  t.experts_read_weighted = true;
  read_expert_layers(c, t);
  if (c.boolean("attn_temperature_tuning", true)) {
    t.query_growth = static_cast<float>(c.number("attn_scale", 0, 1e3, 0.1));
    t.query_period = c.integer("floor_scale", 1, kMaxPositions, 8192);
    t.query_offset = 1;
  }
  return t;
}

}  // namespace nereid::models
