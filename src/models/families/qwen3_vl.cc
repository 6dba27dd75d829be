// Qwen3-VL: Qwen3, dense or with experts, with positions of three components in turn; an encoder
// with learned and rotary positions in the plane, of which some layers give deep features.
#include <algorithm>
#include <cmath>

#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/qwen_visual.h"
#include "models/families/vision_tower.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr WeightRule kQwen3VisualModel[] = {
    flat_rule({"patch", "visual.patch_embed.proj.weight", Dim::kHidden, Dim::kPatch}, patch_bias),
    {"positions", "visual.pos_embed.weight", Dim::kPlane, Dim::kHidden},
    norm_rule("norm", "visual.merger.norm.weight"),
    with_bias({"proj.up", "visual.merger.linear_fc1.weight", Dim::kProjector, Dim::kMerged,
               ShardAxis::kN},
              projector_bias),
    with_bias({"proj.down", "visual.merger.linear_fc2.weight", Dim::kFeature, Dim::kProjector,
               ShardAxis::kK},
              projector_bias),
};
constexpr WeightRule kQwen3VisualLayer[] = {
    norm_rule("attn.norm", "norm1.weight"), qkv_rule("attn.qkv.weight"),
    out_rule("attn.proj.weight"),           norm_rule("mlp.norm", "norm2.weight"),
    up_rule("mlp.linear_fc1.weight"),       down_rule("mlp.linear_fc2.weight"),
};
constexpr WeightRule kQwen3VisualTap[] = {
    with_bias({"norm", "norm.weight", Dim::kMerged, Dim::kOne}, norm_bias),
    with_bias({"up", "linear_fc1.weight", Dim::kProjector, Dim::kMerged, ShardAxis::kN},
              projector_bias),
    with_bias({"down", "linear_fc2.weight", Dim::kFeature, Dim::kProjector, ShardAxis::kK},
              projector_bias),
};

void read_tapped_layers(Config& c, const Traits& decoder, Traits& t) {
  constexpr std::string_view kName = "deepstack_visual_indexes";
  t.tapped_layers = c.integers(kName, 0, t.num_layers - 1);
  if (!c.has(kName)) t.tapped_layers = {8, 16, 24};
  const auto most = std::min<size_t>(io::kMaxDeepLayers, static_cast<size_t>(decoder.num_layers));
  if (t.tapped_layers.size() > most)
    c.fail(kName, fmt::format("has {} layers; allowed are {}", t.tapped_layers.size(), most));
  if (std::ranges::adjacent_find(t.tapped_layers, std::greater_equal()) != t.tapped_layers.end() ||
      (!t.tapped_layers.empty() && t.tapped_layers.back() >= t.num_layers))
    c.fail(kName, fmt::format("has no ascending layers of {}", t.num_layers));
  t.pictures.deep_layers = static_cast<int32_t>(t.tapped_layers.size());
}

// Pictures alone: frames of videos have time stamps in the text between them.
Traits read_qwen3_visual(Config& c, const Traits& decoder) {
  constexpr int32_t kMaxSide = 1 << 10;
  Traits t = read_qwen_visual(c, decoder, {.width = 1152, .depth = 27, .patch = 16});
  t.pictures.max_frames = 1;
  t.intermediate_size = c.integer("intermediate_size", 1, kMaxIntermediate, 4304);
  t.activation = read_activation(c, "hidden_act", "gelu_pytorch_tanh");
  t.layer_norm = t.norm_bias = t.patch_bias = true;
  t.gated = false;
  const int32_t positions = c.integer("num_position_embeddings", 1, kMaxSide * kMaxSide, 2304);
  t.position_side = static_cast<int32_t>(std::lround(std::sqrt(positions)));
  if (t.position_side * t.position_side != positions)
    c.fail("num_position_embeddings", fmt::format("{} are no square", positions));
  const int32_t width = c.integer("out_hidden_size", 1, kMaxHidden, decoder.hidden_size);
  if (width != decoder.hidden_size)
    c.fail("out_hidden_size",
           fmt::format("{} is not the text part's {}", width, decoder.hidden_size));
  read_tapped_layers(c, decoder, t);
  return t;
}

Traits with_components(Config& c, Traits t) {
  if (c.status().ok() && t.ropes[0].sections.empty())
    c.fail("rope_scaling", "has no mrope_section");
  t.ropes[0].in_turn = true;
  return t;
}

}  // namespace

const DecoderWeights kQwen3VlEncoder = {.model = kQwen3VisualModel,
                                        .layers = "visual.blocks.{}.",
                                        .layer = {kQwen3VisualLayer},
                                        .taps = "visual.deepstack_merger_list.{}.",
                                        .tap = kQwen3VisualTap};

Traits read_qwen3_vl_traits(Config& c) { return with_components(c, read_qwen3_traits(c)); }

// Weights of the selected experts are always normalised.
Traits read_qwen3_vl_moe_traits(Config& c) {
  Traits t = with_components(c, read_qwen3_moe_traits(c));
  t.renormalise_experts = true;
  return t;
}

Traits read_qwen3_vl_encoder_traits(Config& c, const Traits& decoder) {
  Traits t;
  const bool found =
      c.inside("vision_config", [&](Config& vision) { t = read_qwen3_visual(vision, decoder); });
  if (!found) c.fail("vision_config", "is missing");
  return t;
}

}  // namespace nereid::models
