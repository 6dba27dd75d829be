// GPT-BigCode (StarCoder 1, SantaCoder): GPT-2 with one KV head and untransposed weights.
#include "models/all.h"
#include "models/families/gpt2_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kBigcodeLayer[] = {
    norm_rule("attn.norm", "ln_1.weight"),
    qkv_rule("attn.c_attn.weight", Order::kByKeyHead),
    out_rule("attn.c_proj.weight"),
    norm_rule("mlp.norm", "ln_2.weight"),
    up_rule("mlp.c_fc.weight"),
    down_rule("mlp.c_proj.weight"),
};

}  // namespace

const DecoderWeights kBigcodeWeights = {
    .model = kGpt2Model, .layers = "transformer.h.{}.", .layer = {kBigcodeLayer}};

Traits read_gpt_bigcode_traits(Config& c) {
  Traits t = read_gpt2_traits(c);
  t.scale_by_layer = false;  // absent in transformers
  t.num_kv_heads = c.boolean("multi_query", true) ? 1 : t.num_heads;
  return t;
}

}  // namespace nereid::models
