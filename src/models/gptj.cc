// GPT-J: parallel layers with one LayerNorm, interleaved rotation of a part of each head.
#include "models/all.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kGptjModel[] = {
    {"embed", "transformer.wte.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"norm", "transformer.ln_f.weight", Dim::kHidden},
    {"norm.bias", "transformer.ln_f.bias", Dim::kHidden},
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
    {"head", "transformer.wte.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
    {"head.bias", "lm_head.bias", Dim::kVocab, Dim::kOne, Shard::kN},
};
constexpr WeightRule kGptjLayer[] = {
    {"attn.norm", "ln_1.weight", Dim::kHidden},
    {"attn.norm.bias", "ln_1.bias", Dim::kHidden},
    {"attn.q", "attn.q_proj.weight", Dim::kQuery, Dim::kHidden, Shard::kHeads},
    {"attn.k", "attn.k_proj.weight", Dim::kKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.v", "attn.v_proj.weight", Dim::kKeyValue, Dim::kHidden, Shard::kHeads},
    {"attn.out", "attn.out_proj.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"mlp.up", "mlp.fc_in.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.up.bias", "mlp.fc_in.bias", Dim::kIntermediate, Dim::kOne, Shard::kN},
    {"mlp.down", "mlp.fc_out.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
    {"mlp.down.bias", "mlp.fc_out.bias", Dim::kHidden},
};

}  // namespace

const DecoderWeights kGptjWeights = {
    .model = kGptjModel, .layers = "transformer.h.{}.", .layer = {kGptjLayer}};

Traits read_gptj_traits(Config& c) {
  Traits t =
      read_decoder(c, {.intermediate = 4, .norm_eps = 1e-5, .activation = "gelu_new"}, kGpt2Names);
  t.ropes = {{.dim = c.integer("rotary_dim", 2, t.head_dim, 64)}};
  if (t.ropes[0].dim % 2 != 0) c.fail("rotary_dim", fmt::format("{} is odd", t.ropes[0].dim));
  t.layer_norm = t.parallel = t.rope_interleaved = true;
  return t;
}

}  // namespace nereid::models
