// Granite MoE: experts stacked in one tensor, gate rows before up rows; optional shared expert,
// which is the MLP of models without experts.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr std::string_view kExpertsIn = "block_sparse_moe.input_linear.weight[*]";
constexpr std::string_view kSharedIn = "shared_mlp.input_linear.weight";
constexpr std::string_view kSharedOut = "shared_mlp.output_linear.weight";

constexpr WeightRule kGraniteMoe[] = {
    router_rule("block_sparse_moe.router.layer.weight"),
    in_order(expert_gate_rule(kExpertsIn), Order::kFirstHalf),
    in_order(expert_up_rule(kExpertsIn), Order::kSecondHalf),
    expert_down_rule("block_sparse_moe.output_linear.weight[*]"),
    in_order(shared_gate_rule(kSharedIn), Order::kFirstHalf),
    in_order(shared_up_rule(kSharedIn), Order::kSecondHalf),
    shared_down_rule(kSharedOut),
    in_order(gate_rule(kSharedIn, is_dense), Order::kFirstHalf),
    in_order(up_rule(kSharedIn, is_dense), Order::kSecondHalf),
    down_rule(kSharedOut, is_dense),
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
  constexpr std::string_view kSize = "shared_intermediate_size";
  if (c.integer("num_local_experts", 0, kernels::kMaxExperts, 8) > 0) {
    Traits t = read_granite_moe_traits(c);
    t.shared_intermediate_size = c.integer(kSize, 0, kMaxIntermediate, 0);
    return t;
  }
  Traits t = read_granite_traits(c);
  t.intermediate_size = c.integer(kSize, 1, kMaxIntermediate);
  return t;
}

// Granite 4 with attention in every layer ("full_attention" as transformers 5 saves it); Mamba
// layers are not supported. RoPE is optional.
Traits read_granite_hybrid_traits(Config& c) {
  Traits t = read_granite_moe_shared_traits(c);
  const std::vector<std::string> kinds = c.strings("layer_types");
  if (kinds.size() != static_cast<size_t>(t.num_layers))
    c.fail("layer_types", fmt::format("{} words for {} layers", kinds.size(), t.num_layers));
  for (const std::string& kind : kinds)
    if (kind != "attention" && kind != "full_attention")
      c.fail("layer_types",
             fmt::format("'{}' is not supported, only 'attention' is", kind.substr(0, 40)));
  const std::string positions = c.string("position_embedding_type", "nope");
  if (positions != "rope" && positions != "nope")
    c.fail("position_embedding_type",
           fmt::format("'{}' is not one of rope, nope", positions.substr(0, 40)));
  if (positions == "nope") t.has_rope.assign(static_cast<size_t>(t.num_layers), false);
  return t;
}

}  // namespace nereid::models
