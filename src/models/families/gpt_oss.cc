// GPT-OSS: mixture of experts, attention sinks, sliding windows, biases; experts are stacked, rows
// of gate and up interleaved.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr Dim kOne = Dim::kOne, kHidden = Dim::kHidden, kExpert = Dim::kExpertIntermediate;
constexpr WeightRule stacked(std::string_view name, std::string_view tensor, Dim n, Dim k,
                             Order order = Order::kSame) {
  return {name, tensor, n, k, ShardAxis::kExperts, nullptr, k != kOne, order};
}
constexpr bool always(const Traits&) { return true; }

constexpr WeightRule kGptOssMlp[] = {
    {"attn.sinks", "self_attn.sinks", Dim::kNumHeads, kOne, ShardAxis::kN},
    with_bias(router_rule("mlp.router.weight"), always),
    stacked("mlp.gate", "mlp.experts.gate_up_proj[*]", kExpert, kHidden, Order::kEven),
    stacked("mlp.gate.bias", "mlp.experts.gate_up_proj_bias[*]", kExpert, kOne, Order::kEven),
    stacked("mlp.up", "mlp.experts.gate_up_proj[*]", kExpert, kHidden, Order::kOdd),
    stacked("mlp.up.bias", "mlp.experts.gate_up_proj_bias[*]", kExpert, kOne, Order::kOdd),
    stacked("mlp.down", "mlp.experts.down_proj[*]", kHidden, kExpert),
    stacked("mlp.down.bias", "mlp.experts.down_proj_bias[*]", kHidden, kOne),
};

}  // namespace

const DecoderWeights kGptOssWeights = {.model = kLlamaModel,
                                       .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kGptOssMlp}};

// The activation is fixed by the family, not by `hidden_act`.
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
