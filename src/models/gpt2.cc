// GPT-2: LayerNorm, learned positions, one fused projection, weights stored transposed.
#include "models/all.h"
#include "models/gpt2_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kGpt2Layer[] = {
    {"attn.norm", "ln_1.weight", Dim::kHidden},
    {"attn.norm.bias", "ln_1.bias", Dim::kHidden},
    {"attn.qkv", "attn.c_attn.weight", Dim::kQueryKeyValue, Dim::kHidden, Shard::kHeads, nullptr,
     true},
    {"attn.qkv.bias", "attn.c_attn.bias", Dim::kQueryKeyValue, Dim::kOne, Shard::kHeads},
    {"attn.out", "attn.c_proj.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads, nullptr, true},
    {"attn.out.bias", "attn.c_proj.bias", Dim::kHidden},
    {"mlp.norm", "ln_2.weight", Dim::kHidden},
    {"mlp.norm.bias", "ln_2.bias", Dim::kHidden},
    {"mlp.up", "mlp.c_fc.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN, nullptr, true},
    {"mlp.up.bias", "mlp.c_fc.bias", Dim::kIntermediate, Dim::kOne, Shard::kN},
    {"mlp.down", "mlp.c_proj.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK, nullptr, true},
    {"mlp.down.bias", "mlp.c_proj.bias", Dim::kHidden},
};

}  // namespace

const DecoderWeights kGpt2Weights = {
    .model = kGpt2Model, .layers = "transformer.h.{}.", .layer = {kGpt2Layer}};

Traits read_gpt2_traits(Config& c) {
  Traits t = read_decoder(
      c, {.intermediate = 4, .norm_eps = 1e-5, .activation = "gelu_new", .tied = true}, kGpt2Names);
  t.layer_norm = true;
  return t;
}

}  // namespace nereid::models
