// InternVL 2.5 and 3 as transformers has them: tiles through an encoder with scaled layers, blocks
// of patches through a norm and two products.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/vision_tower.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr int32_t kMaxTiles = 64;

constexpr WeightRule scaled(WeightRule rule, std::string_view scales) {
  rule.row_scales = scales;
  return rule;
}
constexpr WeightRule kInternVlModel[] = {
    flat_rule({"patch", "vision_tower.embeddings.patch_embeddings.projection.weight", Dim::kHidden,
               Dim::kPatch},
              patch_bias),
    flat_rule({"class", "vision_tower.embeddings.cls_token", Dim::kOne, Dim::kHidden}),
    in_blocks(positions_rule("vision_tower.embeddings.position_embeddings")),
    norm_rule("norm", "vision_tower.layernorm.weight", last_norm),
    with_bias({"proj.norm", "multi_modal_projector.layer_norm.weight", Dim::kMerged, Dim::kOne},
              projector_bias),
    with_bias({"proj.up", "multi_modal_projector.linear_1.weight", Dim::kProjector, Dim::kMerged,
               ShardAxis::kN},
              projector_bias),
    with_bias({"proj.down", "multi_modal_projector.linear_2.weight", Dim::kFeature, Dim::kProjector,
               ShardAxis::kK},
              projector_bias),
};
constexpr WeightRule kInternVlLayer[] = {
    norm_rule("attn.norm", "layernorm_before.weight"),
    q_rule("attention.q_proj.weight"),
    k_rule("attention.k_proj.weight"),
    v_rule("attention.v_proj.weight"),
    {"attn.q.norm", "attention.q_norm.weight", Dim::kQuery, Dim::kOne, ShardAxis::kNone, qk_norm},
    {"attn.k.norm", "attention.k_norm.weight", Dim::kQuery, Dim::kOne, ShardAxis::kNone, qk_norm},
    scaled(out_rule("attention.projection_layer.weight"), "lambda_1"),
    norm_rule("mlp.norm", "layernorm_after.weight"),
    up_rule("mlp.fc1.weight"),
    scaled(down_rule("mlp.fc2.weight"), "lambda_2"),
};

// A number, or a list of two equal ones.
int32_t side_of(Config& c, std::string_view key, int64_t most, int32_t usual) {
  const std::vector<int32_t> sides = c.integers(key, 1, most);
  if (sides.empty()) return usual;
  if (sides.front() != sides.back()) c.fail(key, "is not square");
  return sides.front();
}

Traits read_internvl_tower(Config& c, int32_t merge) {
  constexpr int64_t kMaxSide = 1 << 14;
  Traits t = read_decoder(c, {.vocab = 1, .positions = 1, .norm_eps = 1e-6, .activation = "gelu"},
                          {.norm_eps = "layer_norm_eps"});
  const std::string norm = c.string("norm_type", "layer_norm");
  if (norm != "layer_norm" && norm != "rms_norm")
    c.fail("norm_type", fmt::format("'{}' is not one of layer_norm, rms_norm", norm.substr(0, 40)));
  t.layer_norm = t.norm_bias = norm == "layer_norm";
  t.qk_norm = c.boolean("use_qk_norm", false);
  if (t.qk_norm && t.layer_norm) c.fail("use_qk_norm", "is true with norm_type layer_norm");
  t.qkv_bias = c.boolean("attention_bias", false);
  t.attention_out_bias = t.mlp_bias = true;
  t.gated = false;
  t.bidirectional = true;
  t.patch_bias = true;
  c.require("use_mask_token", false);
  c.require("use_absolute_position_embeddings", true);
  t.last_norm = !c.boolean("use_mean_pooling", true);
  const int32_t side = side_of(c, "image_size", kMaxSide, 448);
  const int32_t patch = side_of(c, "patch_size", side, 14);
  t.pictures.grid = side / patch;
  t.pictures.merge = merge;
  if (t.pictures.grid % merge != 0) c.fail("image_size", "has no whole blocks of patches");
  t.pictures.patch_width = c.integer("num_channels", 1, 16, 3) * patch * patch;
  t.pictures.in_raster = true;
  t.pictures.class_tokens = 1;
  t.pictures.max_frames = kMaxTiles;
  t.max_positions = t.pictures.grid * t.pictures.grid + 1;
  return t;
}

}  // namespace

const DecoderWeights kInternVlEncoder = {
    .model = kInternVlModel, .layers = "vision_tower.encoder.layer.{}.", .layer = {kInternVlLayer}};

Traits read_internvl_encoder_traits(Config& c, const Traits& decoder) {
  const double ratio = c.number("downsample_ratio", 0.125, 1, 0.5);
  const auto merge = static_cast<int32_t>(1 / ratio);
  if (merge * ratio != 1) c.fail("downsample_ratio", "is not 1 divided by a whole number");
  Traits t;
  if (!c.inside("vision_config", [&](Config& vision) { t = read_internvl_tower(vision, merge); }))
    c.fail("vision_config", "is missing");
  if (c.integer("vision_feature_layer", -kMaxLayers, kMaxLayers, -1) != -1)
    c.fail("vision_feature_layer", "is not -1, the last layer");
  c.require("vision_feature_select_strategy", "default");
  c.require("projector_hidden_act", "gelu");
  t.projector_size = t.feature_size = decoder.hidden_size;
  t.projector_bias = true;
  return t;
}

}  // namespace nereid::models
