// T5 and its kin (v1.1, Flan, mT5, UL2, ByT5): RMS norms, relative position bias instead of
// positions, unscaled scores.
#include <algorithm>
#include <cmath>

#include "models/all.h"
#include "models/decoder_rules.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr bool ungated(const Traits& t) { return !t.gated; }

constexpr WeightRule position_bias_rule(std::string_view tensor) {
  return {.name = "attn.bias",
          .tensor = tensor,
          .when = has_position_bias,
          .order = Order::kByDistance};
}

constexpr WeightRule kT5SelfAttention[] = {
    norm_rule("attn.norm", "layer.0.layer_norm.weight"),
    q_rule("layer.0.SelfAttention.q.weight"),
    k_rule("layer.0.SelfAttention.k.weight"),
    v_rule("layer.0.SelfAttention.v.weight"),
    out_rule("layer.0.SelfAttention.o.weight"),
};

constexpr WeightRule kT5EncoderModel[] = {
    embed_rule("shared.weight"),
    norm_rule("norm", "encoder.final_layer_norm.weight"),
};
constexpr WeightRule kT5EncoderLayer[] = {
    position_bias_rule("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
    norm_rule("mlp.norm", "layer.1.layer_norm.weight"),
    gate_rule("layer.1.DenseReluDense.wi_0.weight"),
    up_rule("layer.1.DenseReluDense.wi_1.weight", gated),
    up_rule("layer.1.DenseReluDense.wi.weight", ungated),
    down_rule("layer.1.DenseReluDense.wo.weight"),
};

constexpr WeightRule kT5DecoderModel[] = {
    embed_rule("shared.weight"),
    norm_rule("norm", "decoder.final_layer_norm.weight"),
    head_rule("shared.weight", tied),
    head_rule("lm_head.weight"),
};
constexpr WeightRule kT5DecoderLayer[] = {
    position_bias_rule("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
    norm_rule("cross.norm", "layer.1.layer_norm.weight"),
    cross_q_rule("layer.1.EncDecAttention.q.weight"),
    cross_out_rule("layer.1.EncDecAttention.o.weight"),
    norm_rule("mlp.norm", "layer.2.layer_norm.weight"),
    gate_rule("layer.2.DenseReluDense.wi_0.weight"),
    up_rule("layer.2.DenseReluDense.wi_1.weight", gated),
    up_rule("layer.2.DenseReluDense.wi.weight", ungated),
    down_rule("layer.2.DenseReluDense.wo.weight"),
};
constexpr WeightRule kT5Cross[] = {
    cross_k_rule("layer.1.EncDecAttention.k.weight"),
    cross_v_rule("layer.1.EncDecAttention.v.weight"),
};

// Longest text of a model whose file names a smaller one, or none: the position bias has no bound.
constexpr int32_t kLeastPositions = 2048;

Traits read_t5_stack(Config& c, std::string_view layers) {
  const std::string form = c.string("feed_forward_proj", "relu");
  const bool is_gated = form.starts_with("gated-");
  const std::string name = is_gated ? form.substr(6) : form;
  // The published gated models were trained with the approximation by tanh.
  const std::string activation = is_gated && name == "gelu" ? "gelu_new" : name;
  Traits t = read_decoder(c,
                          {.heads = 8,
                           .head_dim = c.integer("d_kv", 2, kMaxHeadDim, 64),
                           .positions = kLeastPositions,
                           .activation = activation,
                           .tied = true},
                          {.hidden = "d_model",
                           .intermediate = "d_ff",
                           .layers = c.has(layers) ? layers : "num_layers",
                           .heads = "num_heads",
                           .positions = "n_positions",
                           .norm_eps = "layer_norm_epsilon",
                           .activation = "activation_of_feed_forward_proj"});
  t.max_positions = std::max(t.max_positions, kLeastPositions);
  t.gated = is_gated;
  t.attention_scale = 1;
  t.bias_buckets = c.integer("relative_attention_num_buckets", 4, 4096, 32);
  t.bias_distance = c.integer("relative_attention_max_distance", 2, 1 << 16, 128);
  if (t.bias_buckets % 4 != 0 || t.bias_distance <= t.bias_buckets / 4)
    c.fail("relative_attention_num_buckets",
           fmt::format("{} is not a multiple of 4, or relative_attention_max_distance {} is not "
                       "above a quarter of it",
                       t.bias_buckets, t.bias_distance));
  if (!c.boolean("is_encoder_decoder", true)) c.fail("is_encoder_decoder", "is false");
  return t;
}

}  // namespace

const DecoderWeights kT5Weights = {.model = kT5DecoderModel,
                                   .layers = "decoder.block.{}.",
                                   .layer = {kT5SelfAttention, kT5DecoderLayer}};
const EncoderWeights kT5Encoder = {.own = {.model = kT5EncoderModel,
                                           .layers = "encoder.block.{}.",
                                           .layer = {kT5SelfAttention, kT5EncoderLayer}},
                                   .cross_layers = "decoder.block.{}.",
                                   .cross = kT5Cross};

Traits read_t5_traits(Config& c) {
  Traits t = read_t5_stack(c, "num_decoder_layers");
  t.cross = true;
  if (t.tied_embedding) t.logits_scale = 1 / std::sqrt(static_cast<float>(t.hidden_size));
  return t;
}

Traits read_t5_encoder_traits(Config& c) {
  Traits t = read_t5_stack(c, "num_layers");
  t.bidirectional = true;
  return t;
}

}  // namespace nereid::models
