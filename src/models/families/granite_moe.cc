// Granite MoE: experts stacked in one tensor, gate rows before up rows; optional shared expert.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr std::string_view kExpertsIn = "block_sparse_moe.input_linear.weight[*]";
constexpr std::string_view kSharedIn = "shared_mlp.input_linear.weight";

constexpr WeightRule kGraniteMoe[] = {
    router_rule("block_sparse_moe.router.layer.weight"),
    in_order(expert_gate_rule(kExpertsIn), Order::kFirstHalf),
    in_order(expert_up_rule(kExpertsIn), Order::kSecondHalf),
    expert_down_rule("block_sparse_moe.output_linear.weight[*]"),
    in_order(shared_gate_rule(kSharedIn), Order::kFirstHalf),
    in_order(shared_up_rule(kSharedIn), Order::kSecondHalf),
    shared_down_rule("shared_mlp.output_linear.weight"),
};

}  // namespace

const DecoderWeights kGraniteMoeWeights = {
    .model = kLlamaModel, .layer = {kLlamaNorms, kLlamaQkv, kLlamaOut, kGraniteMoe}};

Traits read_granite_moe_traits(Config& c) {
  Traits t = read_granite_traits(c);
  t.expert_intermediate_size = t.intermediate_size;
  t.renormalise_experts = true;
  read_experts(c, t, "num_local_experts", 8, 2);
  return t;
}

Traits read_granite_moe_shared_traits(Config& c) {
  Traits t = read_granite_moe_traits(c);
  t.shared_intermediate_size = c.integer("shared_intermediate_size", 0, kMaxIntermediate, 0);
  return t;
}

}  // namespace nereid::models
