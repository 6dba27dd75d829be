// Qwen2-MoE: mixture of experts with a shared one. Qwen3-MoE: QK norms.
#include <algorithm>

#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/moe_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kQwenSharedMlp[] = {
    shared_gate_rule("mlp.shared_expert.gate_proj.weight"),
    shared_up_rule("mlp.shared_expert.up_proj.weight"),
    shared_down_rule("mlp.shared_expert.down_proj.weight"),
    {"mlp.shared.score", "mlp.shared_expert_gate.weight", Dim::kOne, Dim::kHidden, ShardAxis::kNone,
     has_shared_expert},
};

// Layer i has experts iff (i + 1) % decoder_sparse_step == 0 and i is not in mlp_only_layers.
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
  t.sliding_window = 0;  // set in files, but switched off
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

const DecoderWeights kQwenMoeWeights = {
    .model = kLlamaModel,
    .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kQwenMoeMlp, kQwenSharedMlp}};

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
  // Some files state it; all have QK norms.
  c.require("use_qk_norm", true);
  return t;
}

}  // namespace nereid::models
