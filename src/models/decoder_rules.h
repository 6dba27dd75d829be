// Weight rules common to decoders: engine name, sizes, shard axis, bias. A family's table supplies
// the checkpoint names.
#pragma once

#include "models/weights.h"

namespace nereid::models {

constexpr WeightRule with_bias(WeightRule rule, Condition bias) {
  rule.bias = bias;
  return rule;
}
constexpr WeightRule in_order(WeightRule rule, Order order) {
  rule.order = order;
  return rule;
}
// The tensor is stored as [k, n].
constexpr WeightRule transposed(WeightRule rule) {
  rule.transposed = true;
  return rule;
}

constexpr WeightRule norm_rule(std::string_view name, std::string_view tensor,
                               Condition when = nullptr) {
  return with_bias({name, tensor, Dim::kHidden, Dim::kOne, ShardAxis::kNone, when}, norm_bias);
}

// Weights outside layers. A tied head uses the embedding's tensor.
constexpr WeightRule embed_rule(std::string_view tensor) {
  return {"embed", tensor, Dim::kVocab, Dim::kEmbed, ShardAxis::kN};
}
constexpr WeightRule head_rule(std::string_view tensor, Condition when = untied) {
  return {"head", tensor, Dim::kVocab, Dim::kEmbed, ShardAxis::kN, when};
}
constexpr WeightRule head_bias_rule(std::string_view tensor) {
  return {"head.bias", tensor, Dim::kVocab, Dim::kOne, ShardAxis::kN, head_bias};
}
// `skipped`: rows of the table before position 0.
constexpr WeightRule positions_rule(std::string_view tensor, int32_t skipped = 0) {
  return {"positions", tensor, Dim::kPositions, Dim::kHidden, ShardAxis::kNone,
          nullptr,     false,  Order::kSame,    skipped};
}

// Attention.
constexpr WeightRule q_rule(std::string_view tensor) {
  return with_bias({"attn.q", tensor, Dim::kQuery, Dim::kHidden, ShardAxis::kHeads}, qkv_bias);
}
constexpr WeightRule k_rule(std::string_view tensor) {
  return with_bias({"attn.k", tensor, Dim::kKeyValue, Dim::kHidden, ShardAxis::kHeads}, key_bias);
}
constexpr WeightRule v_rule(std::string_view tensor) {
  return with_bias({"attn.v", tensor, Dim::kKeyValue, Dim::kHidden, ShardAxis::kHeads}, qkv_bias);
}
constexpr WeightRule qkv_rule(std::string_view tensor, Order order = Order::kSame) {
  return with_bias({"attn.qkv", tensor, Dim::kQueryKeyValue, Dim::kHidden, ShardAxis::kHeads,
                    nullptr, false, order},
                   qkv_bias);
}
constexpr WeightRule out_rule(std::string_view tensor) {
  return with_bias({"attn.out", tensor, Dim::kHidden, Dim::kQuery, ShardAxis::kHeads}, out_bias);
}

// Cross attention: queries and output of a decoder, keys and values of its encoder's graph.
constexpr WeightRule cross_q_rule(std::string_view tensor) {
  return with_bias({"cross.q", tensor, Dim::kQuery, Dim::kHidden, ShardAxis::kHeads}, qkv_bias);
}
constexpr WeightRule cross_k_rule(std::string_view tensor) {
  return with_bias({"k", tensor, Dim::kKeyValue, Dim::kHidden, ShardAxis::kHeads}, key_bias);
}
constexpr WeightRule cross_v_rule(std::string_view tensor) {
  return with_bias({"v", tensor, Dim::kKeyValue, Dim::kHidden, ShardAxis::kHeads}, qkv_bias);
}
constexpr WeightRule cross_out_rule(std::string_view tensor) {
  return with_bias({"cross.out", tensor, Dim::kHidden, Dim::kQuery, ShardAxis::kHeads}, out_bias);
}

// MLP.
constexpr WeightRule gate_rule(std::string_view tensor, Condition when = gated) {
  return with_bias({"mlp.gate", tensor, Dim::kIntermediate, Dim::kHidden, ShardAxis::kN, when},
                   mlp_bias);
}
constexpr WeightRule up_rule(std::string_view tensor, Condition when = nullptr) {
  return with_bias({"mlp.up", tensor, Dim::kIntermediate, Dim::kHidden, ShardAxis::kN, when},
                   mlp_bias);
}
constexpr WeightRule gate_up_rule(std::string_view tensor) {
  return {"mlp.gate_up", tensor, Dim::kGateUp, Dim::kHidden, ShardAxis::kN};
}
constexpr WeightRule down_rule(std::string_view tensor, Condition when = nullptr) {
  return with_bias({"mlp.down", tensor, Dim::kHidden, Dim::kIntermediate, ShardAxis::kK, when},
                   mlp_bias);
}

// Mixture of experts, in layers with experts. "*": expert index.
constexpr WeightRule router_rule(std::string_view tensor) {
  return {"mlp.router", tensor, Dim::kExperts, Dim::kHidden, ShardAxis::kNone, is_mixture};
}
constexpr WeightRule expert_gate_rule(std::string_view tensor) {
  return {"mlp.gate",          tensor,    Dim::kExpertIntermediate, Dim::kHidden,
          ShardAxis::kExperts, is_mixture};
}
constexpr WeightRule expert_up_rule(std::string_view tensor) {
  return {"mlp.up",  tensor, Dim::kExpertIntermediate, Dim::kHidden, ShardAxis::kExperts,
          is_mixture};
}
constexpr WeightRule expert_down_rule(std::string_view tensor) {
  return {"mlp.down",          tensor,    Dim::kHidden, Dim::kExpertIntermediate,
          ShardAxis::kExperts, is_mixture};
}
// Router score correction, used for the selection of experts only.
constexpr WeightRule correction_rule(std::string_view tensor, Order order = Order::kSame) {
  return {.name = "mlp.router.correction",
          .tensor = tensor,
          .n = Dim::kExperts,
          .when = is_mixture,
          .order = order,
          .format = kernels::kFloat32};
}
// Shared expert.
constexpr WeightRule shared_gate_rule(std::string_view tensor) {
  return {"mlp.shared.gate", tensor,        Dim::kSharedIntermediate,
          Dim::kHidden,      ShardAxis::kN, has_shared_expert};
}
constexpr WeightRule shared_up_rule(std::string_view tensor) {
  return {"mlp.shared.up", tensor,        Dim::kSharedIntermediate,
          Dim::kHidden,    ShardAxis::kN, has_shared_expert};
}
constexpr WeightRule shared_down_rule(std::string_view tensor) {
  return {"mlp.shared.down",        tensor,        Dim::kHidden,
          Dim::kSharedIntermediate, ShardAxis::kK, has_shared_expert};
}

}  // namespace nereid::models
