// LLaVA 1.5 and 1.6 (NeXT): the patches' hidden states of a CLIP encoder, through two
// products. 1.6: of the whole picture, and of the tiles of a size that fits it.
#include <algorithm>

#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/vision_tower.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr int32_t kMaxNextTiles = 64;

}  // namespace

const DecoderWeights kLlavaEncoder = {.model = kTowerModel,
                                      .layers = "vision_tower.encoder.layers.{}.",
                                      .layer = {kLlamaQkv, kTowerLayer}};

Traits read_llava_encoder_traits(Config& c, const Traits& decoder) {
  Traits t = read_vision_tower(c, c.integer("vision_feature_layer", -kMaxLayers, kMaxLayers, -2));
  const std::string kept = c.string("vision_feature_select_strategy", "default");
  if (kept != "default" && kept != "full")
    c.fail("vision_feature_select_strategy",
           fmt::format("'{}' is not one of default, full", kept.substr(0, 40)));
  if (kept == "full" && t.pictures.class_tokens > 0)
    c.fail("vision_feature_select_strategy",
           "'full' keeps the class token's features, which is not supported; 'default' is");
  t.projector_size = t.feature_size = decoder.hidden_size;
  t.projector_bias = c.boolean("multimodal_projector_bias", true);
  c.require("projector_hidden_act", "gelu");
  return t;
}

Traits read_llava_next_encoder_traits(Config& c, const Traits& decoder) {
  constexpr std::string_view kSizes = "image_grid_pinpoints";
  constexpr int64_t kMaxSide = 1 << 16;
  Traits t = read_llava_encoder_traits(c, decoder);
  int32_t side = 336;
  c.inside("vision_config",
           [&](Config& vision) { side = vision.integer("image_size", 1, kMaxSide, side); });
  std::vector<std::array<int32_t, 2>> sizes = c.pairs(kSizes, 1, kMaxSide);
  if (!c.has(kSizes)) sizes = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
  int64_t most = 0;
  for (const auto& [height, width] : sizes) {
    if (height % side != 0 || width % side != 0)
      c.fail(kSizes,
             fmt::format("{} x {} is no multiple of the encoder's {}", height, width, side));
    most = std::max(most, int64_t{height / side} * (width / side));
  }
  if (most < 1 || most > kMaxNextTiles)
    c.fail(kSizes, fmt::format("has sizes of {} tiles; allowed are 1 to {}", most, kMaxNextTiles));
  c.require("use_image_newline_parameter", true);
  t.pictures.max_frames = static_cast<int32_t>(std::clamp<int64_t>(most, 1, kMaxNextTiles)) + 1;
  t.pictures.tiles_in_plane = true;
  return t;
}

}  // namespace nereid::models
