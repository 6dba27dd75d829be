// Qwen2-VL and Qwen2.5-VL: Qwen2 with positions of three components; an encoder with rotary
// positions in the plane, Qwen2.5's with RMS norms, gated MLPs and windows.
#include "models/all.h"
#include "models/families/llama_weights.h"
#include "models/families/qwen_visual.h"
#include "models/families/vision_tower.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr int32_t kMaxPatches = 1 << 16, kMaxFrames = 1 << 10;

constexpr WeightRule kVisualModel[] = {
    flat_rule({"patch", "visual.patch_embed.proj.weight", Dim::kHidden, Dim::kPatch}),
    norm_rule("norm", "visual.merger.ln_q.weight"),
    with_bias(
        {"proj.up", "visual.merger.mlp.0.weight", Dim::kProjector, Dim::kMerged, ShardAxis::kN},
        projector_bias),
    with_bias(
        {"proj.down", "visual.merger.mlp.2.weight", Dim::kFeature, Dim::kProjector, ShardAxis::kK},
        projector_bias),
};
constexpr WeightRule kVisualLayer[] = {
    norm_rule("attn.norm", "norm1.weight"),
    qkv_rule("attn.qkv.weight"),
    out_rule("attn.proj.weight"),
    norm_rule("mlp.norm", "norm2.weight"),
    up_rule("mlp.fc1.weight"),
    down_rule("mlp.fc2.weight"),
};

constexpr WeightRule kVisualGatedLayer[] = {
    norm_rule("attn.norm", "norm1.weight"), qkv_rule("attn.qkv.weight"),
    out_rule("attn.proj.weight"),           norm_rule("mlp.norm", "norm2.weight"),
    gate_rule("mlp.gate_proj.weight"),      up_rule("mlp.up_proj.weight"),
    down_rule("mlp.down_proj.weight"),
};

}  // namespace

Traits read_qwen_visual(Config& c, const Traits& decoder, const VisualDefaults& defaults) {
  Traits t;
  const std::string_view width_name = defaults.width_name;
  t.hidden_size = t.embed_size = c.integer(width_name, 2, kMaxHidden, defaults.width);
  t.num_layers = c.integer("depth", 1, kMaxLayers, defaults.depth);
  t.num_heads = t.num_kv_heads = c.integer("num_heads", 1, kMaxHeads, 16);
  t.head_dim = t.hidden_size / t.num_heads;
  if (t.hidden_size % t.num_heads != 0 || t.head_dim % 4 != 0 || t.head_dim > kMaxHeadDim)
    c.fail(width_name, fmt::format("{} has no {} heads of a multiple of 4 columns", t.hidden_size,
                                   t.num_heads));
  t.norm_eps = 1e-6f;
  t.qkv_bias = t.attention_out_bias = t.mlp_bias = true;
  t.bidirectional = true;
  t.ropes = {{.plane = Plane::kRepeated}};
  const int32_t patch = c.integer("patch_size", 1, 256, defaults.patch);
  t.pictures.patch_width = c.integer("in_channels", 1, 16, 3) *
                           c.integer("temporal_patch_size", 1, 16, 2) * patch * patch;
  t.pictures.merge = c.integer("spatial_merge_size", 1, 8, 2);
  t.pictures.has_components = true;
  t.pictures.max_frames = kMaxFrames;
  t.max_positions = kMaxPatches;
  t.projector_size = t.pictures.merge * t.pictures.merge * t.hidden_size;
  t.projector_bias = true;
  t.feature_size = decoder.hidden_size;
  t.vocab_size = decoder.vocab_size;
  return t;
}

namespace {

Traits read_qwen2_visual(Config& c, const Traits& decoder) {
  Traits t = read_qwen_visual(c, decoder, {.width_name = "embed_dim"});
  t.intermediate_size = static_cast<int32_t>(t.hidden_size * c.number("mlp_ratio", 0.01, 64, 4));
  t.activation = read_activation(c, "hidden_act", "quick_gelu");
  t.layer_norm = t.norm_bias = true;
  t.gated = false;
  return t;
}

// Layers attend within windows, except those of fullatt_block_indexes.
Traits read_qwen25_visual(Config& c, const Traits& decoder) {
  Traits t = read_qwen_visual(c, decoder, {});
  t.intermediate_size = c.integer("intermediate_size", 1, kMaxIntermediate, 3420);
  t.activation = read_activation(c, "hidden_act", "silu");
  const int32_t patch = c.integer("patch_size", 1, 256, 14);
  const int32_t block = patch * t.pictures.merge;
  t.pictures.window = c.integer("window_size", 1, 4096, 112) / block * t.pictures.merge;
  if (t.pictures.window == 0) c.fail("window_size", "is smaller than a block of patches");
  t.pictures.frame_positions = c.integer("tokens_per_second", 1, 1000, 4);
  t.has_window.assign(static_cast<size_t>(t.num_layers), true);
  std::vector<int32_t> whole = c.integers("fullatt_block_indexes", 0, kMaxLayers);
  if (!c.has("fullatt_block_indexes")) whole = {7, 15, 23, 31};
  for (const int32_t layer : whole)
    if (layer < t.num_layers) t.has_window[static_cast<size_t>(layer)] = false;
  return t;
}

}  // namespace

const DecoderWeights kQwen25VlEncoder = {
    .model = kVisualModel, .layers = "visual.blocks.{}.", .layer = {kVisualGatedLayer}};
const DecoderWeights kQwen2VlEncoder = {
    .model = kVisualModel, .layers = "visual.blocks.{}.", .layer = {kVisualLayer}};

Traits read_qwen2_vl_traits(Config& c) {
  Traits t = read_qwen2_traits(c);
  if (c.status().ok() && t.ropes[0].sections.empty())
    c.fail("rope_scaling", "has no mrope_section");
  if (c.status().ok() && t.ropes[0].in_turn)
    c.fail("rope_scaling", "has mrope_interleaved: true, which Qwen3-VL has");
  return t;
}

Traits read_qwen2_vl_encoder_traits(Config& c, const Traits& decoder) {
  Traits t;
  const bool found =
      c.inside("vision_config", [&](Config& vision) { t = read_qwen2_visual(vision, decoder); });
  if (!found) c.fail("vision_config", "is missing");
  return t;
}

Traits read_qwen25_vl_encoder_traits(Config& c, const Traits& decoder) {
  Traits t;
  const bool found =
      c.inside("vision_config", [&](Config& vision) { t = read_qwen25_visual(vision, decoder); });
  if (!found) c.fail("vision_config", "is missing");
  return t;
}

}  // namespace nereid::models
