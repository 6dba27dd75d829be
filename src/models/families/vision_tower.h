// Encoders of pictures named `vision_tower`: CLIP and SigLIP.
#pragma once

#include "models/config.h"
#include "models/decoder_rules.h"

namespace nereid::models {

constexpr WeightRule flat_rule(WeightRule rule, Condition bias = nullptr) {
  rule.order = Order::kFlat;
  rule.bias = bias;
  return rule;
}

constexpr WeightRule in_blocks(WeightRule rule) {
  rule.order = Order::kBlocks;
  return rule;
}

// CLIP and SigLIP in front of LLaVA's projector.
inline constexpr WeightRule kTowerModel[] = {
    flat_rule(
        {"patch", "vision_tower.embeddings.patch_embedding.weight", Dim::kHidden, Dim::kPatch},
        patch_bias),
    flat_rule({"class", "vision_tower.embeddings.class_embedding", Dim::kOne, Dim::kHidden,
               ShardAxis::kNone, has_class}),
    positions_rule("vision_tower.embeddings.position_embedding.weight"),
    norm_rule("embed.norm", "vision_tower.pre_layrnorm.weight", embed_norm),
    norm_rule("norm", "vision_tower.post_layernorm.weight", last_norm),
    with_bias({"proj.up", "multi_modal_projector.linear_1.weight", Dim::kProjector, Dim::kMerged,
               ShardAxis::kN},
              projector_bias),
    with_bias({"proj.down", "multi_modal_projector.linear_2.weight", Dim::kFeature, Dim::kProjector,
               ShardAxis::kK},
              projector_bias),
};
// Behind kLlamaQkv.
inline constexpr WeightRule kTowerLayer[] = {
    norm_rule("attn.norm", "layer_norm1.weight"),
    out_rule("self_attn.out_proj.weight"),
    norm_rule("mlp.norm", "layer_norm2.weight"),
    up_rule("mlp.fc1.weight"),
    down_rule("mlp.fc2.weight"),
};

// Reads the `vision_config` of a SigLIP encoder, with all layers.
Traits read_siglip(Config& config);

// Reads `vision_config`. `last`: the hidden states that become features, those behind that layer,
// counted from 1, or from behind (-1: those behind the last layer).
Traits read_vision_tower(Config& config, int32_t last);

}  // namespace nereid::models
