// Phi-3, Phi-3.5 and Phi-4: Llama with fused projections and longrope.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kPhi3Qkv[] = {
    qkv_rule("self_attn.qkv_proj.weight"),
};

}  // namespace

const DecoderWeights kPhi3Weights = {.model = kLlamaModel,
                                     .layer = {kLlamaNorms, kPhi3Qkv, kLlamaOut, kFusedMlp}};

Traits read_phi3_traits(Config& c) {
  Traits t = read_decoder(c, {.window = 0, .norm_eps = 1e-5});
  t.ropes = {read_rope(c, t, {.fraction = 1})};
  return t;
}

}  // namespace nereid::models
