// LLaVA 1.5, 1.6 (NeXT) and OneVision: the patches' hidden states of a CLIP or SigLIP encoder,
// through two products. 1.6, OneVision: of the whole picture, and of the tiles of a size that fits
// it; OneVision: blended where they are many.
#include <algorithm>

#include "base/blended_plane.h"
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/vision_tower.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr int32_t kMaxNextTiles = 64;
constexpr std::string_view kSizes = "image_grid_pinpoints";

// `layer`, `strategy`: without vision_feature_layer, vision_feature_select_strategy.
Traits read_projected(Config& c, const Traits& decoder, int32_t layer, const char* strategy) {
  Traits t =
      read_vision_tower(c, c.integer("vision_feature_layer", -kMaxLayers, kMaxLayers, layer));
  const std::string kept = c.string("vision_feature_select_strategy", strategy);
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

// Sets the tiles of kSizes, of encoders of squares of `side` pixels; `usual`: without the list.
void read_tiles(Config& c, int32_t side, std::vector<std::array<int32_t, 2>> usual, Traits& t) {
  constexpr int64_t kMaxSide = 1 << 16;
  c.inside("vision_config",
           [&](Config& vision) { side = vision.integer("image_size", 1, kMaxSide, side); });
  std::vector<std::array<int32_t, 2>> sizes = c.pairs(kSizes, 1, kMaxSide);
  if (!c.has(kSizes)) sizes = std::move(usual);
  int64_t most = 0;
  for (const auto& [height, width] : sizes) {
    if (height % side != 0 || width % side != 0)
      c.fail(kSizes,
             fmt::format("{} x {} is no multiple of the encoder's {}", height, width, side));
    most = std::max(most, int64_t{height / side} * (width / side));
  }
  if (most < 1 || most > kMaxNextTiles)
    c.fail(kSizes, fmt::format("has sizes of {} tiles; allowed are 1 to {}", most, kMaxNextTiles));
  t.pictures.max_frames = static_cast<int32_t>(std::clamp<int64_t>(most, 1, kMaxNextTiles)) + 1;
  t.pictures.tiles_in_plane = true;
}

}  // namespace

const DecoderWeights kLlavaEncoder = {.model = kTowerModel,
                                      .layers = "vision_tower.encoder.layers.{}.",
                                      .layer = {kLlamaQkv, kTowerLayer}};

Traits read_llava_encoder_traits(Config& c, const Traits& decoder) {
  return read_projected(c, decoder, -2, "default");
}

Traits read_llava_next_encoder_traits(Config& c, const Traits& decoder) {
  Traits t = read_llava_encoder_traits(c, decoder);
  read_tiles(c, 336, {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}, t);
  c.require("use_image_newline_parameter", true);
  return t;
}

Traits read_llava_onevision_encoder_traits(Config& c, const Traits& decoder) {
  constexpr std::string_view kRatio = "vision_aspect_ratio";
  constexpr int32_t kSide = 384, kTiles = 6, kMostBlended = 64;
  Traits t = read_projected(c, decoder, -1, "full");
  if (t.pictures.class_tokens > 0)
    c.fail("vision_config", "is of CLIP; allowed is siglip_vision_model");
  std::vector<std::array<int32_t, 2>> usual;
  for (int32_t rows = 1; rows <= kTiles; ++rows)
    for (int32_t columns = 1; columns <= kTiles; ++columns)
      usual.push_back({rows * kSide, columns * kSide});
  read_tiles(c, kSide, std::move(usual), t);
  const std::string ratio = c.string(kRatio, "anyres_max_9");
  const int32_t most = blended_tiles_of(ratio);
  if (most < 1 || most > kMostBlended)
    c.fail(kRatio, fmt::format("'{}' is not one of anyres_max_1 to anyres_max_{}",
                               ratio.substr(0, 40), kMostBlended));
  t.pictures.blended_tiles = most;
  return t;
}

}  // namespace nereid::models
