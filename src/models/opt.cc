// OPT: LayerNorm, learned positions, which begin in the third row of their table.
#include "models/all.h"
#include "models/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kOptModel[] = {
    {"embed", "model.decoder.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"positions", "model.decoder.embed_positions.weight", Dim::kPositions, Dim::kHidden,
     Shard::kNone, nullptr, false, Order::kSame, 2},
    {"norm", "model.decoder.final_layer_norm.weight", Dim::kHidden},
    {"norm.bias", "model.decoder.final_layer_norm.bias", Dim::kHidden},
    {"head", "model.decoder.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
};
constexpr WeightRule kOptLayer[] = {
    {"attn.norm", "self_attn_layer_norm.weight", Dim::kHidden},
    {"attn.norm.bias", "self_attn_layer_norm.bias", Dim::kHidden},
    {"attn.out", "self_attn.out_proj.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"attn.out.bias", "self_attn.out_proj.bias", Dim::kHidden, Dim::kOne, Shard::kNone, out_bias},
    {"mlp.norm", "final_layer_norm.weight", Dim::kHidden},
    {"mlp.norm.bias", "final_layer_norm.bias", Dim::kHidden},
    {"mlp.up", "fc1.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.up.bias", "fc1.bias", Dim::kIntermediate, Dim::kOne, Shard::kN, mlp_bias},
    {"mlp.down", "fc2.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
    {"mlp.down.bias", "fc2.bias", Dim::kHidden, Dim::kOne, Shard::kNone, mlp_bias},
};

}  // namespace

const DecoderWeights kOptWeights = {
    .model = kOptModel, .layers = "model.decoder.layers.{}.", .layer = {kLlamaQkv, kOptLayer}};

Traits read_opt_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5, .activation = "relu", .tied = true},
                          {.intermediate = "ffn_dim", .activation = "activation_function"});
  t.layer_norm = true;
  t.qkv_bias = t.attention_out_bias = t.mlp_bias = c.boolean("enable_bias", true);
  c.require("word_embed_proj_dim", t.hidden_size);
  c.require("do_layer_norm_before", true);
  c.require("layer_norm_elementwise_affine", true);
  c.require("_remove_final_layer_norm", false);
  return t;
}

}  // namespace nereid::models
