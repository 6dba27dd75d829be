// BART and its kin: LayerNorm, norms behind the sums (BART, Marian) or in front. BART and mBART:
// learned positions from row 2 of the table, norms of the embeddings. The others: sinusoids.
#include <cmath>

#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule sines_rule(Order order, int32_t skipped) {
  return {"positions", "",    Dim::kPositions, Dim::kHidden, ShardAxis::kNone,
          nullptr,     false, order,           skipped};
}

constexpr WeightRule kBartEncoderModel[] = {
    embed_rule("model.shared.weight"),
    positions_rule("model.encoder.embed_positions.weight", 2),
    norm_rule("embed.norm", "model.encoder.layernorm_embedding.weight"),
    norm_rule("norm", "model.encoder.layer_norm.weight", norms_in_front),
};
constexpr WeightRule kBartDecoderModel[] = {
    embed_rule("model.shared.weight"),
    positions_rule("model.decoder.embed_positions.weight", 2),
    norm_rule("embed.norm", "model.decoder.layernorm_embedding.weight"),
    norm_rule("norm", "model.decoder.layer_norm.weight", norms_in_front),
    head_rule("model.shared.weight", tied),
    head_rule("lm_head.weight"),
    in_order(head_bias_rule("final_logits_bias"), Order::kOneRow),
};
constexpr WeightRule kMarianEncoderModel[] = {
    embed_rule("model.shared.weight"),
    sines_rule(Order::kPowerSinusoids, 0),
    norm_rule("norm", "model.encoder.layer_norm.weight", norms_in_front),
};
constexpr WeightRule kMarianDecoderModel[] = {
    embed_rule("model.shared.weight"),
    sines_rule(Order::kPowerSinusoids, 0),
    norm_rule("norm", "model.decoder.layer_norm.weight", norms_in_front),
    head_rule("model.shared.weight", tied),
    head_rule("lm_head.weight"),
    in_order(head_bias_rule("final_logits_bias"), Order::kOneRow),
};
// The first two rows are of padding.
constexpr WeightRule kM2mEncoderModel[] = {
    embed_rule("model.shared.weight"),
    sines_rule(Order::kSpannedSinusoids, 2),
    norm_rule("norm", "model.encoder.layer_norm.weight"),
};
constexpr WeightRule kM2mDecoderModel[] = {
    embed_rule("model.shared.weight"),
    sines_rule(Order::kSpannedSinusoids, 2),
    norm_rule("norm", "model.decoder.layer_norm.weight"),
    head_rule("model.shared.weight", tied),
    head_rule("lm_head.weight"),
};
constexpr WeightRule kBartCrossQueries[] = {
    norm_rule("cross.norm", "encoder_attn_layer_norm.weight", norms_in_front),
    norm_rule("cross.sum.norm", "encoder_attn_layer_norm.weight", norms_behind),
    cross_q_rule("encoder_attn.q_proj.weight"),
    cross_out_rule("encoder_attn.out_proj.weight"),
};
constexpr WeightRule kBartCross[] = {
    cross_k_rule("encoder_attn.k_proj.weight"),
    cross_v_rule("encoder_attn.v_proj.weight"),
};

constexpr DecoderNames kBartDecoderNames = {.hidden = "d_model",
                                            .intermediate = "decoder_ffn_dim",
                                            .layers = "decoder_layers",
                                            .heads = "decoder_attention_heads",
                                            .norm_eps = "layer_norm_eps",
                                            .activation = "activation_function"};
constexpr DecoderNames kBartEncoderNames = {.hidden = "d_model",
                                            .intermediate = "encoder_ffn_dim",
                                            .layers = "encoder_layers",
                                            .heads = "encoder_attention_heads",
                                            .norm_eps = "layer_norm_eps",
                                            .activation = "activation_function"};

Traits read_bart_stack(Config& c, const DecoderNames& names, bool norms_behind,
                       std::string_view activation) {
  Traits t = read_decoder(
      c, {.positions = 1024, .norm_eps = 1e-5, .activation = activation, .tied = true}, names);
  t.layer_norm = t.norm_bias = t.qkv_bias = t.attention_out_bias = t.mlp_bias = true;
  t.embed_norm = true;
  t.head_bias = c.boolean("has_lm_head_bias", true);  // TensorRT-LLM's layout may have none
  t.gated = false;
  t.norms_behind = norms_behind;
  if (c.boolean("scale_embedding", false))
    t.embed_scale = std::sqrt(static_cast<float>(t.hidden_size));
  if (!c.boolean("is_encoder_decoder", true)) c.fail("is_encoder_decoder", "is false");
  return t;
}

// One half of a model.
Traits read_half(Config& c, bool is_encoder, bool norms_behind, std::string_view activation) {
  Traits t = read_bart_stack(c, is_encoder ? kBartEncoderNames : kBartDecoderNames, norms_behind,
                             activation);
  t.bidirectional = is_encoder;
  t.cross = !is_encoder;
  if (is_encoder) t.head_bias = false;
  return t;
}

// One half of a model with learned positions and a norm of the embeddings.
Traits read_bart_half(Config& c, bool is_encoder, bool norms_behind) {
  c.require("normalize_before", !norms_behind);
  c.require("add_final_layer_norm", !norms_behind);
  c.require("normalize_embedding", true);
  c.require("static_position_embeddings", false);
  return read_half(c, is_encoder, norms_behind, "gelu");
}

// One half of a model with sinusoidal positions.
Traits read_marian_half(Config& c, bool is_encoder, bool norms_behind,
                        std::string_view activation) {
  Traits t = read_half(c, is_encoder, norms_behind, activation);
  c.require("normalize_embedding", false);
  c.require("static_position_embeddings", true);
  c.require("share_encoder_decoder_embeddings", true);
  return t;
}

constexpr EncoderWeights encoder_weights(std::span<const WeightRule> model) {
  return {.own = {.model = model,
                  .layers = "model.encoder.layers.{}.",
                  .layer = {kLlamaQkv, kOptLayer}},
          .cross_layers = "model.decoder.layers.{}.",
          .cross = kBartCross};
}
constexpr DecoderWeights decoder_weights(std::span<const WeightRule> model) {
  return {.model = model,
          .layers = "model.decoder.layers.{}.",
          .layer = {kLlamaQkv, kOptLayer, kBartCrossQueries}};
}

}  // namespace

const DecoderWeights kBartWeights = decoder_weights(kBartDecoderModel);
const EncoderWeights kBartEncoder = encoder_weights(kBartEncoderModel);
const DecoderWeights kMarianWeights = decoder_weights(kMarianDecoderModel);
const EncoderWeights kMarianEncoder = encoder_weights(kMarianEncoderModel);
const DecoderWeights kM2mWeights = decoder_weights(kM2mDecoderModel);
const EncoderWeights kM2mEncoder = encoder_weights(kM2mEncoderModel);

Traits read_bart_traits(Config& c) { return read_bart_half(c, false, true); }
Traits read_bart_encoder_traits(Config& c) { return read_bart_half(c, true, true); }
Traits read_mbart_traits(Config& c) { return read_bart_half(c, false, false); }
Traits read_mbart_encoder_traits(Config& c) { return read_bart_half(c, true, false); }
Traits read_marian_traits(Config& c) { return read_marian_half(c, false, true, "gelu"); }
Traits read_marian_encoder_traits(Config& c) { return read_marian_half(c, true, true, "gelu"); }
Traits read_pegasus_traits(Config& c) { return read_marian_half(c, false, false, "gelu"); }
Traits read_pegasus_encoder_traits(Config& c) { return read_marian_half(c, true, false, "gelu"); }
Traits read_m2m100_traits(Config& c) {
  Traits t = read_half(c, false, false, "relu");
  t.head_bias = false;
  return t;
}
Traits read_m2m100_encoder_traits(Config& c) { return read_half(c, true, false, "relu"); }

}  // namespace nereid::models
