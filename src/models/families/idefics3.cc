// Idefics 3 and SmolVLM: tiles through a SigLIP encoder, blocks of patches through one product.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/vision_tower.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kIdeficsModel[] = {
    flat_rule(
        {"patch", "vision_model.embeddings.patch_embedding.weight", Dim::kHidden, Dim::kPatch},
        patch_bias),
    in_blocks(positions_rule("vision_model.embeddings.position_embedding.weight")),
    norm_rule("norm", "vision_model.post_layernorm.weight"),
    {"proj.down", "connector.modality_projection.proj.weight", Dim::kFeature, Dim::kMerged},
};

}  // namespace

const DecoderWeights kIdefics3Encoder = {.model = kIdeficsModel,
                                         .layers = "vision_model.encoder.layers.{}.",
                                         .layer = {kLlamaQkv, kTowerLayer}};

Traits read_idefics3_encoder_traits(Config& c, const Traits& decoder) {
  Traits t = read_siglip(c);
  t.pictures.merge = c.integer("scale_factor", 1, 8, 2);
  if (t.pictures.grid % t.pictures.merge != 0)
    c.fail("scale_factor", fmt::format("{} does not divide a picture's side of {} patches",
                                       t.pictures.merge, t.pictures.grid));
  t.feature_size = decoder.hidden_size;
  return t;
}

}  // namespace nereid::models
