#include "models/families/vision_tower.h"

#include "models/read_fields.h"

namespace nereid::models {
namespace {

Traits read_tower(Config& c, bool is_clip) {
  constexpr int64_t kMaxSide = 1 << 14;
  Traits t = read_decoder(c,
                          {.vocab = 1,
                           .positions = 1,
                           .norm_eps = is_clip ? 1e-5 : 1e-6,
                           .activation = is_clip ? "quick_gelu" : "gelu_pytorch_tanh"},
                          {.norm_eps = "layer_norm_eps"});
  t.layer_norm = t.norm_bias = t.qkv_bias = t.attention_out_bias = t.mlp_bias = true;
  t.gated = false;
  t.bidirectional = true;
  const int32_t side = c.integer("image_size", 1, kMaxSide, 224);
  const int32_t patch = c.integer("patch_size", 1, side, is_clip ? 32 : 16);
  const int32_t channels = c.integer("num_channels", 1, 16, 3);
  t.pictures.grid = side / patch;
  t.pictures.patch_width = channels * patch * patch;
  t.pictures.in_raster = true;
  t.pictures.class_tokens = is_clip ? 1 : 0;
  t.embed_norm = is_clip;
  t.patch_bias = !is_clip;
  t.max_positions = t.pictures.grid * t.pictures.grid + t.pictures.class_tokens;
  return t;
}

}  // namespace

Traits read_siglip(Config& c) {
  Traits t;
  if (!c.inside("vision_config", [&](Config& vision) { t = read_tower(vision, false); }))
    c.fail("vision_config", "is missing");
  return t;
}

Traits read_vision_tower(Config& c, int32_t last) {
  Traits t;
  const bool found = c.inside("vision_config", [&](Config& vision) {
    const std::string kind = vision.string("model_type", "clip_vision_model");
    if (kind != "clip_vision_model" && kind != "siglip_vision_model")
      vision.fail("model_type", fmt::format("'{}' is not one of clip_vision_model, "
                                            "siglip_vision_model",
                                            kind.substr(0, 40)));
    t = read_tower(vision, kind == "clip_vision_model");
  });
  if (!found) c.fail("vision_config", "is missing");
  if (!c.status().ok()) return t;
  const int32_t layers = last < 0 ? t.num_layers + 1 + last : last;
  if (layers < 1 || layers > t.num_layers)
    c.fail("vision_feature_layer",
           fmt::format("{} is not a layer of {}, or counted from behind", last, t.num_layers));
  else
    t.num_layers = layers;
  return t;
}

}  // namespace nereid::models
