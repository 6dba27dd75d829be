// InternLM2: Llama with other names and QKV fused by KV heads.
#include "models/all.h"
#include "models/decoder_rules.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kInternlm2Model[] = {
    embed_rule("model.tok_embeddings.weight"),
    norm_rule("norm", "model.norm.weight"),
    head_rule("output.weight"),
    head_rule("model.tok_embeddings.weight", tied),
};
constexpr WeightRule kInternlm2Layer[] = {
    norm_rule("attn.norm", "attention_norm.weight"),
    qkv_rule("attention.wqkv.weight", Order::kByKeyHead),
    out_rule("attention.wo.weight"),
    norm_rule("mlp.norm", "ffn_norm.weight"),
    gate_rule("feed_forward.w1.weight"),
    up_rule("feed_forward.w3.weight"),
    down_rule("feed_forward.w2.weight"),
};

}  // namespace

const DecoderWeights kInternlm2Weights = {.model = kInternlm2Model, .layer = {kInternlm2Layer}};

Traits read_internlm2_traits(Config& c) {
  Traits t = read_decoder(c);
  t.ropes = {read_rope(c, t)};
  t.qkv_bias = t.attention_out_bias = c.boolean("bias", true);
  return t;
}

}  // namespace nereid::models
