// Apertus: Llama with QK norms and an ungated MLP with xIELU, whose two parameters are per layer.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kApertusLayer[] = {
    norm_rule("attn.norm", "attention_layernorm.weight"),
    norm_rule("mlp.norm", "feedforward_layernorm.weight"),
    {.name = "mlp.act.positive",
     .tensor = "mlp.act_fn.alpha_p",
     .when = xielu,
     .format = kernels::kFloat32},
    {.name = "mlp.act.negative",
     .tensor = "mlp.act_fn.alpha_n",
     .when = xielu,
     .format = kernels::kFloat32},
};

}  // namespace

const DecoderWeights kApertusWeights = {.model = kLlamaModel,
                                        .layer = {kApertusLayer, kLlamaQkv, kLlamaOut, kLlamaMlp}};

// Constants stored next to xIELU's parameters.
bool apertus_ignores(const Traits& t, std::string_view tensor) {
  return tensor.ends_with(".act_fn.beta") || tensor.ends_with(".act_fn.eps") ||
         decoder_ignores(t, tensor);
}

Traits read_apertus_traits(Config& c) {
  // The activation is fixed by the family, not by a field.
  Traits t = read_decoder(c, {.norm_eps = 1e-5, .activation = "relu2"}, {.activation = "mlp_act"});
  c.require("hidden_act", "xielu");
  t.ropes = {read_rope(c, t, {.theta = 1.2e7})};
  t.xielu = t.qk_norm = true;
  t.gated = false;
  t.qkv_bias = t.attention_out_bias = c.boolean("attention_bias", false);
  c.require("qk_norm", true);
  c.require("post_norm", false);
  return t;
}

}  // namespace nereid::models
