// Encoders of Gemma 3 and PaliGemma: SigLIP's patches, in Gemma 3 the means of blocks of them
// behind a norm, through one product.
#include <cmath>

#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/vision_tower.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kGemma3Pictures[] = {
    flat_rule(
        {"patch", "vision_tower.embeddings.patch_embedding.weight", Dim::kHidden, Dim::kPatch},
        patch_bias),
    in_blocks(positions_rule("vision_tower.embeddings.position_embedding.weight")),
    norm_rule("norm", "vision_tower.post_layernorm.weight"),
    {"proj.norm", "multi_modal_projector.mm_soft_emb_norm.weight", Dim::kHidden},
    transposed({"proj.down", "multi_modal_projector.mm_input_projection_weight", Dim::kFeature,
                Dim::kHidden}),
};

constexpr WeightRule kPaliGemmaPictures[] = {
    flat_rule(
        {"patch", "vision_tower.embeddings.patch_embedding.weight", Dim::kHidden, Dim::kPatch},
        patch_bias),
    positions_rule("vision_tower.embeddings.position_embedding.weight"),
    norm_rule("norm", "vision_tower.post_layernorm.weight"),
    with_bias({"proj.down", "multi_modal_projector.linear.weight", Dim::kFeature, Dim::kHidden},
              projector_bias),
};

Traits read_gemma_pictures(Config& c, const Traits& decoder) {
  Traits t = read_siglip(c);
  t.feature_size = decoder.hidden_size;
  t.feature_scale = 1 / decoder.embed_scale;  // the decoder scales all rows of its input
  return t;
}

}  // namespace

const DecoderWeights kGemma3Encoder = {.model = kGemma3Pictures,
                                       .layers = "vision_tower.encoder.layers.{}.",
                                       .layer = {kLlamaQkv, kTowerLayer}};
const DecoderWeights kPaliGemmaEncoder = {.model = kPaliGemmaPictures,
                                          .layers = "vision_tower.encoder.layers.{}.",
                                          .layer = {kLlamaQkv, kTowerLayer}};

Traits read_gemma3_encoder_traits(Config& c, const Traits& decoder) {
  Traits t = read_gemma_pictures(c, decoder);
  const int32_t tokens = c.integer("mm_tokens_per_image", 1, 1 << 16, 256);
  const auto side = static_cast<int32_t>(std::lround(std::sqrt(tokens)));
  if (!c.status().ok()) return t;
  if (side * side != tokens || side > t.pictures.grid || t.pictures.grid % side != 0 ||
      t.pictures.grid / side > 8)
    c.fail("mm_tokens_per_image",
           fmt::format("{} is not the number of blocks, of at most 8 x 8 patches, of a picture's "
                       "{} x {} patches",
                       tokens, t.pictures.grid, t.pictures.grid));
  else
    t.pictures.merge = t.pictures.grid / side;
  t.averages_patches = true;
  t.pictures.whole_pictures = true;
  return t;
}

Traits read_paligemma_encoder_traits(Config& c, const Traits& decoder) {
  Traits t = read_gemma_pictures(c, decoder);
  t.projector_bias = true;
  t.pictures.whole_prompts = true;
  return t;
}

}  // namespace nereid::models
