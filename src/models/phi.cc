// Phi 1, 1.5 and 2: parallel layers with one LayerNorm, rotation of a part of each head, biases
// everywhere.
#include "models/all.h"
#include "models/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kPhiModel[] = {
    {"embed", "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN},
    {"norm", "model.final_layernorm.weight", Dim::kHidden},
    {"norm.bias", "model.final_layernorm.bias", Dim::kHidden},
    {"head", "lm_head.weight", Dim::kVocab, Dim::kHidden, Shard::kN, untied},
    {"head", "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden, Shard::kN, tied},
    {"head.bias", "lm_head.bias", Dim::kVocab, Dim::kOne, Shard::kN},
};
constexpr WeightRule kPhiLayer[] = {
    {"attn.out", "self_attn.dense.weight", Dim::kHidden, Dim::kQuery, Shard::kHeads},
    {"attn.out.bias", "self_attn.dense.bias", Dim::kHidden},
    {"mlp.up", "mlp.fc1.weight", Dim::kIntermediate, Dim::kHidden, Shard::kN},
    {"mlp.up.bias", "mlp.fc1.bias", Dim::kIntermediate, Dim::kOne, Shard::kN},
    {"mlp.down", "mlp.fc2.weight", Dim::kHidden, Dim::kIntermediate, Shard::kK},
    {"mlp.down.bias", "mlp.fc2.bias", Dim::kHidden},
};

}  // namespace

const DecoderWeights kPhiWeights = {.model = kPhiModel,
                                    .layer = {kLlamaNorms, kLlamaQkv, kPhiLayer}};

Traits read_phi_traits(Config& c) {
  Traits t =
      read_decoder(c, {.norm_eps = 1e-5, .activation = "gelu_new"}, {.norm_eps = "layer_norm_eps"});
  t.ropes = {read_rope(c, t, {.fraction = 0.5})};
  t.layer_norm = t.norm_bias = t.parallel = t.qkv_bias = true;
  return t;
}

}  // namespace nereid::models
