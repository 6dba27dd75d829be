// LLaVA 1.5: the patches' hidden states of a CLIP encoder, through two products.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/vision_tower.h"
#include "models/read_fields.h"

namespace nereid::models {

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

}  // namespace nereid::models
