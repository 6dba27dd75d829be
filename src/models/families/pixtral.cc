// Pixtral's encoder, in LLaVA models and in Mistral 3: RMS norms, gated MLP, rotary positions in
// the plane; Mistral 3 also makes one row of a block of patches.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/vision_tower.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr bool merges(const Traits& t) { return t.pictures.merge > 1; }

constexpr WeightRule kPixtralModel[] = {
    flat_rule({"patch", "vision_tower.patch_conv.weight", Dim::kHidden, Dim::kPatch}),
    norm_rule("embed.norm", "vision_tower.ln_pre.weight"),
    norm_rule("norm", "multi_modal_projector.norm.weight", last_norm),
    {"proj.merge", "multi_modal_projector.patch_merger.merging_layer.weight", Dim::kHidden,
     Dim::kMerged, ShardAxis::kNone, merges, false, Order::kByChannel},
    with_bias({"proj.up", "multi_modal_projector.linear_1.weight", Dim::kProjector, Dim::kHidden,
               ShardAxis::kN},
              projector_bias),
    with_bias({"proj.down", "multi_modal_projector.linear_2.weight", Dim::kFeature, Dim::kProjector,
               ShardAxis::kK},
              projector_bias),
};
constexpr WeightRule kPixtralLayer[] = {
    norm_rule("attn.norm", "attention_norm.weight"),
    q_rule("attention.q_proj.weight"),
    k_rule("attention.k_proj.weight"),
    v_rule("attention.v_proj.weight"),
    out_rule("attention.o_proj.weight"),
    norm_rule("mlp.norm", "ffn_norm.weight"),
    gate_rule("feed_forward.gate_proj.weight"),
    up_rule("feed_forward.up_proj.weight"),
    down_rule("feed_forward.down_proj.weight"),
};

Traits read_pixtral_tower(Config& c, int32_t merge) {
  constexpr int64_t kMaxSide = 1 << 14;
  Traits t = read_decoder(c, {.vocab = 1, .positions = 1, .norm_eps = 1e-5, .activation = "gelu"},
                          {.norm_eps = "layer_norm_eps"});
  if (t.head_dim % 4 != 0) c.fail("head_dim", fmt::format("{} is not a multiple of 4", t.head_dim));
  t.ropes = {read_rope(c, t, {.in_plane = true})};
  t.ropes[0].plane = Plane::kAlternating;
  t.bidirectional = t.embed_norm = true;
  const int32_t side = c.integer("image_size", 1, kMaxSide, 1024);
  const int32_t patch = c.integer("patch_size", 1, side, 16);
  t.pictures.patch_width = c.integer("num_channels", 1, 16, 3) * patch * patch;
  t.pictures.merge = merge;
  t.pictures.in_raster = t.pictures.row_breaks = t.pictures.has_components = true;
  t.max_positions = side / patch * (side / patch);
  return t;
}

}  // namespace

const DecoderWeights kPixtralEncoder = {.model = kPixtralModel,
                                        .layers = "vision_tower.transformer.layers.{}.",
                                        .layer = {kPixtralLayer}};

namespace {

Traits read_pixtral(Config& c, int32_t merge) {
  Traits t;
  if (!c.inside("vision_config", [&](Config& vision) { t = read_pixtral_tower(vision, merge); }))
    c.fail("vision_config", "is missing");
  if (c.integer("vision_feature_layer", -kMaxLayers, kMaxLayers, -1) != -1)
    c.fail("vision_feature_layer", "is not -1, the last layer");
  c.require("projector_hidden_act", "gelu");
  return t;
}

}  // namespace

Traits read_pixtral_encoder_traits(Config& c, const Traits& decoder) {
  Traits t = read_pixtral(c, 1);
  c.require("vision_feature_select_strategy", "full");
  t.projector_size = t.feature_size = decoder.hidden_size;
  t.projector_bias = c.boolean("multimodal_projector_bias", true);
  return t;
}

Traits read_mistral3_encoder_traits(Config& c, const Traits& decoder) {
  Traits t = read_pixtral(c, c.integer("spatial_merge_size", 1, 8, 2));
  t.last_norm = true;
  t.last_norm_eps = decoder.norm_eps;
  t.projector_size = t.feature_size = decoder.hidden_size;
  t.projector_bias = c.boolean("multimodal_projector_bias", false);
  return t;
}

}  // namespace nereid::models
