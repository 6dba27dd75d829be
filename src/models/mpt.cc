// MPT: LayerNorm without biases, ALiBi.
#include "models/all.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kMptModel[] = {
    {"embed", "transformer.wte.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"norm", "transformer.norm_f.weight", Dim::kHidden},
    {"head", "transformer.wte.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
};
constexpr WeightRule kMptLayer[] = {
    {"attn.norm", "norm_1.weight", Dim::kHidden},
    {"attn.qkv", "attn.Wqkv.weight", Dim::kQueryKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.out", "attn.out_proj.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"mlp.norm", "norm_2.weight", Dim::kHidden},
    {"mlp.up", "ffn.up_proj.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.down", "ffn.down_proj.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
};

void read_mpt_attention(Config& c, Traits& t) {
  c.require("attn_type", "multihead_attention");
  c.require("alibi", true);
  for (const std::string_view key : {"qk_ln", "prefix_lm", "attn_uses_sequence_id", "rope"})
    c.require(key, false);
  for (const std::string_view key : {"clip_qkv", "kv_n_heads"}) c.require(key, nullptr);
  t.alibi = static_cast<float>(c.number("alibi_bias_max", 1e-3, 1e3, 8));
  if (c.has("softmax_scale"))
    t.attention_scale = static_cast<float>(c.number("softmax_scale", 1e-6, 1e6));
}

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
  const json::object* attention = c.object("attn_config");
  if (!attention) return c.fail("attn_config", "is missing"), t;
  Config inner(*attention, c.where() + ": attn_config");
  read_mpt_attention(inner, t);
  c.add(inner.status());
  return t;
}

}  // namespace nereid::models
