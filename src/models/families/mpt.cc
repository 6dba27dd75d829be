// MPT: LayerNorm without biases, ALiBi.
#include "models/all.h"
#include "models/decoder_rules.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kMptModel[] = {
    embed_rule("transformer.wte.weight"),
    norm_rule("norm", "transformer.norm_f.weight"),
    head_rule("transformer.wte.weight", tied),
    head_rule("lm_head.weight"),
};
constexpr WeightRule kMptLayer[] = {
    norm_rule("attn.norm", "norm_1.weight"), qkv_rule("attn.Wqkv.weight"),
    out_rule("attn.out_proj.weight"),        norm_rule("mlp.norm", "norm_2.weight"),
    up_rule("ffn.up_proj.weight"),           down_rule("ffn.down_proj.weight"),
};

}  // namespace

const DecoderWeights kMptWeights = {
    .model = kMptModel, .layers = "transformer.blocks.{}.", .layer = {kMptLayer}};

Traits read_mpt_traits(Config& c) {
  const int32_t ratio = c.integer("expansion_ratio", 1, 64, 4);
  Traits t =
      read_decoder(c, {.intermediate = ratio, .norm_eps = 1e-5, .activation = "gelu", .tied = true},
                   {.hidden = "d_model",
                    .layers = "n_layers",
                    .heads = "n_heads",
                    .positions = "max_seq_len",
                    .norm_eps = "layer_norm_epsilon"});
  t.layer_norm = true;
  const bool is_there = c.inside("attn_config", [&](Config& attention) {
    attention.require("attn_type", "multihead_attention");
    attention.require("alibi", true);
    for (const std::string_view key : {"qk_ln", "prefix_lm", "attn_uses_sequence_id", "rope"})
      attention.require(key, false);
    attention.require("kv_n_heads", nullptr);
    t.qkv_limit = read_cap(attention, "clip_qkv");
    t.alibi = static_cast<float>(attention.number("alibi_bias_max", 1e-3, 1e3, 8));
    t.attention_scale = read_cap(attention, "softmax_scale");
  });
  if (!is_there) c.fail("attn_config", "is missing");
  return t;
}

}  // namespace nereid::models
