// Llama 3.2 vision: a Llama with layers of cross attention to pictures, whose tiles an encoder with
// learned positions reads together.
#include <algorithm>

#include "models/all.h"
#include "models/families/vision_tower.h"
#include "models/read_fields.h"

namespace nereid::models {
namespace {

constexpr int32_t kMaxTiles = 32;

constexpr bool has_row_end(const Traits& t) { return t.extra_row_end; }

constexpr WeightRule gate_of(std::string_view name, std::string_view tensor,
                             Condition when = nullptr) {
  return {.name = name, .tensor = tensor, .when = when, .format = kernels::kFloat32};
}
constexpr WeightRule only(WeightRule rule, Condition when) {
  rule.when = when;
  return rule;
}

constexpr WeightRule kTextModel[] = {
    in_order(embed_rule("model.embed_tokens.weight"), Order::kLeading),
    {.name = "embed.row_end",
     .tensor = "model.embed_tokens.weight",
     .n = Dim::kEmbed,
     .when = has_row_end,
     .order = Order::kExtra},
    norm_rule("norm", "model.norm.weight"),
    head_rule("lm_head.weight"),
};
constexpr WeightRule kTextLayer[] = {
    norm_rule("attn.norm", "input_layernorm.weight"),
    only(q_rule("self_attn.q_proj.weight"), attends_itself),
    only(k_rule("self_attn.k_proj.weight"), attends_itself),
    only(v_rule("self_attn.v_proj.weight"), attends_itself),
    only(out_rule("self_attn.o_proj.weight"), attends_itself),
    only(cross_q_rule("cross_attn.q_proj.weight"), crosses),
    {"cross.q.norm", "cross_attn.q_norm.weight", Dim::kHead, Dim::kOne, ShardAxis::kNone, crosses},
    only(cross_out_rule("cross_attn.o_proj.weight"), crosses),
    gate_of("attn.out.gate", "cross_attn_attn_gate", crosses),
    norm_rule("mlp.norm", "post_attention_layernorm.weight"),
    gate_rule("mlp.gate_proj.weight"),
    up_rule("mlp.up_proj.weight"),
    down_rule("mlp.down_proj.weight"),
    gate_of("mlp.out.gate", "cross_attn_mlp_gate", crosses),
};
constexpr WeightRule kTextCross[] = {
    cross_k_rule("cross_attn.k_proj.weight"),
    {"k.norm", "cross_attn.k_norm.weight", Dim::kHead},
    cross_v_rule("cross_attn.v_proj.weight"),
};

constexpr WeightRule kTileModel[] = {
    flat_rule({"patch", "vision_model.patch_embedding.weight", Dim::kHidden, Dim::kPatch}),
    flat_rule({"class", "vision_model.class_embedding", Dim::kOne, Dim::kHidden}),
    {"positions", "vision_model.gated_positional_embedding.embedding", Dim::kPlaces, Dim::kHidden},
    gate_of("positions.gate", "vision_model.gated_positional_embedding.gate"),
    flat_rule({"positions.tiles", "vision_model.gated_positional_embedding.tile_embedding.weight",
               Dim::kTilePlaces, Dim::kHidden}),
    flat_rule({"tiles.before", "vision_model.pre_tile_positional_embedding.embedding.weight",
               Dim::kTiles, Dim::kHidden}),
    gate_of("tiles.before.gate", "vision_model.pre_tile_positional_embedding.gate"),
    flat_rule({"tiles.behind", "vision_model.post_tile_positional_embedding.embedding.weight",
               Dim::kTiles, Dim::kHidden}),
    gate_of("tiles.behind.gate", "vision_model.post_tile_positional_embedding.gate"),
    norm_rule("embed.norm", "vision_model.layernorm_pre.weight"),
    norm_rule("norm", "vision_model.layernorm_post.weight"),
    with_bias(in_order({"proj", "multi_modal_projector.weight", Dim::kFeature, Dim::kTaps},
                       Order::kTapped),
              projector_bias),
};
constexpr WeightRule kTileLayer[] = {
    norm_rule("attn.norm", "input_layernorm.weight"),
    q_rule("self_attn.q_proj.weight"),
    k_rule("self_attn.k_proj.weight"),
    v_rule("self_attn.v_proj.weight"),
    out_rule("self_attn.o_proj.weight"),
    norm_rule("mlp.norm", "post_attention_layernorm.weight"),
    up_rule("mlp.fc1.weight"),
    down_rule("mlp.fc2.weight"),
};
constexpr WeightRule kTileGates[] = {
    gate_of("attn.out.gate", "gate_attn"),
    gate_of("mlp.out.gate", "gate_ffn"),
};

// Arrangements in the order of their ids: by rows, then by columns.
void check_tilings(Config& c, const Traits& t) {
  constexpr std::string_view kName = "supported_aspect_ratios";
  if (!c.has(kName)) return;
  std::vector<std::array<int32_t, 2>> usual;
  const int32_t most = t.pictures.max_frames;
  for (int32_t rows = 1; rows <= most; ++rows)
    for (int32_t columns = 1; rows * columns <= most; ++columns) usual.push_back({rows, columns});
  if (c.pairs(kName, 1, kMaxTiles) != usual)
    c.fail(kName, fmt::format("is not the list of all arrangements of up to {} tiles", most));
}

Traits read_tile_encoder(Config& c) {
  constexpr int64_t kMaxSide = 1 << 14;
  constexpr int32_t kRows = 8;  // a tile's rows are padded to a multiple
  Traits t = read_decoder(
      c, {.vocab = 1, .heads = 16, .positions = 1, .norm_eps = 1e-5, .activation = "gelu"},
      {.heads = "attention_heads", .norm_eps = "norm_eps"});
  t.layer_norm = t.norm_bias = t.mlp_bias = t.projector_bias = true;
  t.gated = false;
  t.bidirectional = true;
  t.num_global_layers = c.integer("num_global_layers", 0, kMaxLayers, 8);
  const int32_t side = c.integer("image_size", 1, kMaxSide, 448);
  const int32_t patch = c.integer("patch_size", 1, side, 14);
  io::PictureFacts& p = t.pictures;
  p.grid = side / patch;
  p.patch_width = c.integer("num_channels", 1, 16, 3) * patch * patch;
  p.in_raster = p.in_cross = p.has_components = true;
  p.class_tokens = 1;
  p.max_frames = c.integer("max_num_tiles", 1, kMaxTiles, 4);
  p.frame_padding = (kRows - t.places_of_tile() % kRows) % kRows;
  t.max_positions = p.max_frames * (t.places_of_tile() + p.frame_padding);
  if (p.frame_padding == 0)
    c.fail("image_size", fmt::format("{} patches and a class token are a multiple of {}",
                                     p.grid * p.grid, kRows));
  constexpr std::string_view kTapped = "intermediate_layers_indices";
  t.tapped_layers = c.integers(kTapped, 0, t.num_layers - 1);
  if (!c.has(kTapped)) t.tapped_layers = {3, 7, 15, 23, 30};
  if (std::ranges::adjacent_find(t.tapped_layers, std::greater_equal()) != t.tapped_layers.end() ||
      (!t.tapped_layers.empty() && t.tapped_layers.back() >= t.num_layers))
    c.fail(kTapped, fmt::format("has no ascending layers of {}", t.num_layers));
  const int64_t width = (1 + std::ssize(t.tapped_layers)) * t.hidden_size;
  c.require("vision_output_dim", width);
  check_tilings(c, t);
  return t;
}

}  // namespace

const DecoderWeights kMllamaWeights = {.model = kTextModel, .layer = {kTextLayer}};
const TileEncoderWeights kMllamaEncoder = {
    .own = {.model = kTileModel,
            .layers = "vision_model.transformer.layers.{}.",
            .layer = {kTileLayer}},
    .global = {.layers = "vision_model.global_transformer.layers.{}.",
               .layer = {kTileLayer, kTileGates}},
    .cross_layers = "model.layers.{}.",
    .cross = kTextCross};

Traits read_mllama_traits(Config& c) {
  constexpr std::string_view kCrosses = "cross_attention_layers";
  Traits t = read_decoder(c, {.norm_eps = 1e-5});
  t.ropes = {read_rope(c, t, {.theta = 500000})};
  t.extra_embeddings = 8;
  t.crosses.assign(static_cast<size_t>(t.num_layers), false);
  std::vector<int32_t> layers = c.integers(kCrosses, 0, t.num_layers - 1);
  if (!c.has(kCrosses)) layers = {3, 8, 13, 18, 23, 28, 33, 38};
  for (const int32_t layer : layers)
    if (layer < t.num_layers) t.crosses[static_cast<size_t>(layer)] = true;
  const int32_t count = t.num_crosses();
  if (count == 0 || count == t.num_layers || count != std::ssize(layers))
    c.fail(kCrosses, fmt::format("has {} layers of {}; allowed are some, each once", layers.size(),
                                 t.num_layers));
  return t;
}

Traits read_mllama_encoder_traits(Config& c, const Traits& decoder) {
  Traits t;
  if (!c.inside("vision_config", [&](Config& vision) { t = read_tile_encoder(vision); }))
    c.fail("vision_config", "is missing");
  t.feature_size = decoder.hidden_size;
  if (c.has("image_token_index") &&
      c.integer("image_token_index", 0, kMaxVocab) != decoder.vocab_size)
    c.fail("image_token_index",
           fmt::format("is not the first id behind the vocabulary of {}", decoder.vocab_size));
  return t;
}

}  // namespace nereid::models
