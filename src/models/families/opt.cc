// OPT: LayerNorm, learned positions from row 2 of their table. 350M: post-norms, narrow embeddings.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kOptModel[] = {
    embed_rule("model.decoder.embed_tokens.weight"),
    positions_rule("model.decoder.embed_positions.weight", 2),
    {"embed.up", "model.decoder.project_in.weight", Dim::kHidden, Dim::kEmbed, ShardAxis::kNone,
     own_embed_size},
    norm_rule("norm", "model.decoder.final_layer_norm.weight", norms_in_front),
    {"head.down", "model.decoder.project_out.weight", Dim::kEmbed, Dim::kHidden, ShardAxis::kNone,
     own_embed_size},
    head_rule("model.decoder.embed_tokens.weight", tied),
    head_rule("lm_head.weight"),
};

}  // namespace

const DecoderWeights kOptWeights = {
    .model = kOptModel, .layers = "model.decoder.layers.{}.", .layer = {kLlamaQkv, kOptLayer}};

Traits read_opt_traits(Config& c) {
  Traits t = read_decoder(c, {.norm_eps = 1e-5, .activation = "relu", .tied = true},
                          {.intermediate = "ffn_dim", .activation = "activation_function"});
  t.layer_norm = t.norm_bias = true;
  t.qkv_bias = t.attention_out_bias = t.mlp_bias = c.boolean("enable_bias", true);
  t.embed_size = c.integer("word_embed_proj_dim", 1, kMaxHidden, t.hidden_size);
  t.norms_behind = !c.boolean("do_layer_norm_before", true);
  c.require("layer_norm_elementwise_affine", true);
  c.require("_remove_final_layer_norm", false);
  return t;
}

}  // namespace nereid::models
