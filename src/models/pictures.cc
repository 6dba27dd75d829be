#include "models/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "models/text_part.h"

namespace nereid::models {
namespace {

using graph::Builder;
using graph::kNone;
using graph::ValueId;

ValueId activation_of(Builder& b, const std::string& name, ValueId x,
                      kernels::Activation activation) {
  return b.emit(name, graph::Activate{.x = x, .activation = activation}).out;
}

// norm(mean of n rows, eps) == norm(their sum, n^2 eps).
ValueId averaged(Builder& b, const Traits& t, const Weights& w, ValueId hidden) {
  const int32_t count = t.pictures.merge * t.pictures.merge;
  const int64_t width = b.cols(hidden);
  const ValueId all =
      b.emit("merged", graph::GatherRows{.x = hidden, .count = count}, count * width, DType::kF32)
          .out;
  // A value of its own: sums are made in place.
  ValueId sum = b.emit("patches.sum",
                       graph::Activate{.x = b.slice("patches.0", all, 0, width),
                                       .activation = kernels::Activation::kNone},
                       width, DType::kF32)
                    .out;
  for (int32_t i = 1; i < count; ++i)
    sum = b.add("patches.sum", sum, b.slice(fmt::format("patches.{}", i), all, i * width, width));
  const auto squared = static_cast<float>(count) * static_cast<float>(count);
  return b.norm("proj.norm", sum, w["proj.norm"],
                {.eps = t.norm_eps * squared, .weight_offset = 1});
}

// Features, f32: a row for each block of patches, or for each patch where they are blended.
ValueId project(Builder& b, const Traits& t, const Weights& w, ValueId hidden) {
  const int32_t count = t.pictures.merge * t.pictures.merge;
  ValueId x = hidden;
  if (t.pictures.blended_tiles == 0)
    x = b.emit("merged", graph::GatherRows{.x = hidden, .count = count}, count * b.cols(hidden),
               DType::kBF16)
            .out;
  if (w["proj.norm"] != kNone)
    x = b.norm("proj.norm", x, w["proj.norm"], {.eps = 1e-5f, .centered = true},
               w["proj.norm.bias"]);
  if (w["proj.merge"] != kNone)
    x = activation_of(b, "proj.merged", b.linear("proj.merge", x, w["proj.merge"]),
                      kernels::Activation::kNone);
  if (w["proj.up"] != kNone)
    x = activation_of(b, "proj.act", b.linear("proj.up", x, w["proj.up"], w["proj.up.bias"]),
                      kernels::Activation::kGelu);
  return b.linear("proj.down", x, w["proj.down"], w["proj.down.bias"]);
}

// A feature's columns of a tapped layer, f32; `hidden`: its hidden states.
ValueId tap(Builder& b, const Traits& t, const DecoderWeights& weights, size_t index,
            ValueId hidden) {
  const std::string name = fmt::format("taps.{}.", index);
  const Weights w(b, t, weights.tap, name, fmt::format(fmt::runtime(weights.taps), index));
  const int32_t count = t.pictures.merge * t.pictures.merge;
  ValueId x = b.emit(name + "merged", graph::GatherRows{.x = hidden, .count = count},
                     count * b.cols(hidden), DType::kF32)
                  .out;
  x = b.norm(name + "norm", x, w["norm"], {.eps = t.norm_eps, .centered = true}, w["norm.bias"]);
  x = activation_of(b, name + "act", b.linear(name + "up", x, w["up"], w["up.bias"]),
                    kernels::Activation::kGelu);
  return b.linear(name + "down", x, w["down"], w["down.bias"]);
}

}  // namespace

ValueId patch_rows(Builder& b, const Traits& t, const graph::Weight& patch) {
  graph::Weight table{.name = "patches", .n = 1, .k = t.pictures.patch_width};
  graph::WeightPart part = patch.parts.front();
  part.total = part.size, part.size = 1;
  table.parts = {std::move(part)};
  const ValueId x = b.embed("patches", b.add(std::move(table)));
  return activation_of(b, "patches.rounded", x, kernels::Activation::kNone);
}

StatusOr<graph::Graph> build_picture_encoder(const Traits& t, const DecoderWeights& weights,
                                             io::ModelFacts facts) {
  Builder b(std::move(facts));
  const Weights w(b, t, weights.model);
  const graph::Weight patch = b.weight(w["patch"]);
  ValueId x = b.linear("patch", patch_rows(b, t, patch), w["patch"], w["patch.bias"]);
  if (w["class"] != kNone)
    x = b.emit("class", graph::AddPositions{.x = x, .table = w["class"]}).out;
  std::vector<ValueId> columns = {kNone};
  const auto behind = [&](int32_t layer, ValueId hidden) {
    if (std::ranges::find(t.tapped_layers, layer) != t.tapped_layers.end())
      columns.push_back(tap(b, t, weights, columns.size() - 1, hidden));
  };
  ValueId features;
  if (t.averages_patches)
    features =
        b.linear("proj.down", averaged(b, t, w, add_layers(b, t, weights, w, x, DType::kF32)),
                 w["proj.down"]);
  else
    features = project(b, t, w, add_layers(b, t, weights, w, x, DType::kBF16, behind));
  if (t.pictures.blended_tiles > 0)
    features = b.emit("features.blended", graph::BlendRows{.x = features}).out;
  if (t.feature_scale != 1)
    features =
        b.emit("features.scaled", graph::SoftCap{.x = features, .scale = t.feature_scale}).out;
  columns.front() = features;
  for (ValueId& part : columns)
    part = activation_of(b, "features", part, kernels::Activation::kNone);
  const ValueId all = columns.size() > 1 ? b.concat("features.all", columns) : columns.front();
  return std::move(b).finish(kNone, all);
}

std::string name_in_picture_part(const std::string& tensor) {
  std::string_view name = tensor;
  if (name.starts_with("model.")) name.remove_prefix(6);
  for (const std::string_view part :
       {"visual.", "multi_modal_projector.", "vision_model.", "connector."})
    if (name.starts_with(part)) return std::string(name);
  if (is_cross_key(name)) return decoder_name(tensor);
  constexpr std::string_view kTower = "vision_tower.", kInner = "vision_model.";
  if (!name.starts_with(kTower)) return "";
  name.remove_prefix(kTower.size());
  if (name.starts_with(kInner)) name.remove_prefix(kInner.size());
  return std::string(kTower).append(name);
}

bool picture_encoder_ignores(const Traits& traits, std::string_view tensor) {
  constexpr std::string_view kLayers = "vision_tower.encoder.layers.";
  for (const std::string_view part :
       {"vision_tower.post_layernorm.", "vision_tower.head.",
        "vision_tower.embeddings.position_ids", "vision_tower.embeddings.mask_token"})
    if (tensor.starts_with(part)) return true;
  if (!tensor.starts_with(kLayers)) return false;
  tensor.remove_prefix(kLayers.size());
  int32_t layer = 0;
  std::from_chars(tensor.data(), tensor.data() + tensor.size(), layer);
  return layer >= traits.num_layers;
}

}  // namespace nereid::models
