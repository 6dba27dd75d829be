// Whisper: an encoder of audio features behind two convolutions; LayerNorm, keys without bias.
#include "models/all.h"
#include "models/decoder_rules.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule convolution_rule(std::string_view name, std::string_view tensor, Dim k) {
  WeightRule rule = {name, tensor, Dim::kHidden, k};
  rule.order = Order::kWindow;
  rule.window = 3;
  rule.bias = qkv_bias;
  return rule;
}

constexpr WeightRule kWhisperEncoderModel[] = {
    convolution_rule("conv1", "model.encoder.conv1.weight", Dim::kThreeMelBins),
    convolution_rule("conv2", "model.encoder.conv2.weight", Dim::kThreeHidden),
    positions_rule("model.encoder.embed_positions.weight"),
    norm_rule("norm", "model.encoder.layer_norm.weight"),
};
constexpr WeightRule kWhisperDecoderModel[] = {
    embed_rule("model.decoder.embed_tokens.weight"),
    positions_rule("model.decoder.embed_positions.weight"),
    norm_rule("norm", "model.decoder.layer_norm.weight"),
    head_rule("model.decoder.embed_tokens.weight", tied),
    head_rule("proj_out.weight"),
};
constexpr WeightRule kWhisperLayer[] = {
    norm_rule("attn.norm", "self_attn_layer_norm.weight"),
    q_rule("self_attn.q_proj.weight"),
    k_rule("self_attn.k_proj.weight"),
    v_rule("self_attn.v_proj.weight"),
    out_rule("self_attn.out_proj.weight"),
    norm_rule("mlp.norm", "final_layer_norm.weight"),
    up_rule("fc1.weight"),
    down_rule("fc2.weight"),
};
constexpr WeightRule kWhisperCrossQueries[] = {
    norm_rule("cross.norm", "encoder_attn_layer_norm.weight"),
    cross_q_rule("encoder_attn.q_proj.weight"),
    cross_out_rule("encoder_attn.out_proj.weight"),
};
constexpr WeightRule kWhisperCross[] = {
    cross_k_rule("encoder_attn.k_proj.weight"),
    cross_v_rule("encoder_attn.v_proj.weight"),
};

Traits read_whisper_stack(Config& c, const DecoderNames& names, int64_t positions) {
  Traits t = read_decoder(
      c, {.positions = positions, .norm_eps = 1e-5, .activation = "gelu", .tied = true}, names);
  t.layer_norm = t.norm_bias = t.qkv_bias = t.attention_out_bias = t.mlp_bias = true;
  t.key_bias = false;
  t.gated = false;
  c.require("scale_embedding", false);
  if (!c.boolean("is_encoder_decoder", true)) c.fail("is_encoder_decoder", "is false");
  return t;
}

}  // namespace

const DecoderWeights kWhisperWeights = {.model = kWhisperDecoderModel,
                                        .layers = "model.decoder.layers.{}.",
                                        .layer = {kWhisperLayer, kWhisperCrossQueries}};
const EncoderWeights kWhisperEncoder = {.own = {.model = kWhisperEncoderModel,
                                                .layers = "model.encoder.layers.{}.",
                                                .layer = {kWhisperLayer}},
                                        .cross_layers = "model.decoder.layers.{}.",
                                        .cross = kWhisperCross};

Traits read_whisper_traits(Config& c) {
  Traits t = read_whisper_stack(c,
                                {.hidden = "d_model",
                                 .intermediate = "decoder_ffn_dim",
                                 .layers = "decoder_layers",
                                 .heads = "decoder_attention_heads",
                                 .positions = "max_target_positions",
                                 .norm_eps = "layer_norm_eps",
                                 .activation = "activation_function"},
                                448);
  t.cross = true;
  return t;
}

Traits read_whisper_encoder_traits(Config& c) {
  Traits t = read_whisper_stack(c,
                                {.hidden = "d_model",
                                 .intermediate = "encoder_ffn_dim",
                                 .layers = "encoder_layers",
                                 .heads = "encoder_attention_heads",
                                 .positions = "max_source_positions",
                                 .norm_eps = "layer_norm_eps",
                                 .activation = "activation_function"},
                                1500);
  t.mel_bins = c.integer("num_mel_bins", 1, 1024, 80);
  t.bidirectional = true;
  return t;
}

}  // namespace nereid::models
