// GPT-BigCode (StarCoder 1, SantaCoder): GPT-2 with one key head, weights not transposed.
#include "models/all.h"
#include "models/gpt2_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kBigcodeLayer[] = {
    {"attn.norm", "ln_1.weight", Dim::kHidden},
    {"attn.norm.bias", "ln_1.bias", Dim::kHidden},
    {"attn.qkv", "attn.c_attn.weight", Dim::kQueryKeyValue, Dim::kHidden, Shard::kHeads, nullptr,
     false, Order::kByKeyHead},
    {"attn.qkv.bias", "attn.c_attn.bias", Dim::kQueryKeyValue, Dim::kOne, Shard::kHeads, nullptr,
     false, Order::kByKeyHead},
    {"attn.out", "attn.c_proj.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"attn.out.bias", "attn.c_proj.bias", Dim::kHidden},
    {"mlp.norm", "ln_2.weight", Dim::kHidden},
    {"mlp.norm.bias", "ln_2.bias", Dim::kHidden},
    {"mlp.up", "mlp.c_fc.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.up.bias", "mlp.c_fc.bias", Dim::kIntermediate, Dim::kOne, Shard::kN},
    {"mlp.down", "mlp.c_proj.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
    {"mlp.down.bias", "mlp.c_proj.bias", Dim::kHidden},
};

}  // namespace

const DecoderWeights kBigcodeWeights = {
    .model = kGpt2Model, .layers = "transformer.h.{}.", .layer = {kBigcodeLayer}};

Traits read_gpt_bigcode_traits(Config& c) {
  Traits t = read_gpt2_traits(c);
  t.num_kv_heads = c.boolean("multi_query", true) ? 1 : t.num_heads;
  return t;
}

}  // namespace nereid::models
