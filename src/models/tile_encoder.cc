#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "models/pictures.h"

namespace nereid::models {
namespace {

using graph::Builder;
using graph::kNone;
using graph::ValueId;

// See runtime/prompts/pictures.cc: the tile in its arrangement, the place in the tile, and the tile
// again for patches alone.
constexpr int32_t kTile = 0, kPlace = 1, kTileOfPatch = 2;

ValueId in_bf16(Builder& b, const std::string& name, ValueId x) {
  return b.emit(name, graph::Activate{.x = x, .activation = kernels::Activation::kNone}).out;
}

struct TileTable {
  const char* name;
  const char* gate;  // null: none
  int32_t component;
  int32_t rows = 0;
  bool is_rest = false;
};

ValueId add_table(Builder& b, const Weights& w, const TileTable& table, ValueId x) {
  return b
      .emit(table.name,
            graph::AddTilePositions{.x = x,
                                    .table = w[table.name],
                                    .gate = table.gate ? w[table.gate] : graph::WeightId(kNone),
                                    .component = table.component,
                                    .rows = table.rows,
                                    .is_rest = table.is_rest})
      .out;
}

// The rows of all tiles; those behind a tile's last place are zeros.
ValueId embedded_tiles(Builder& b, const Traits& t, const Weights& w) {
  const graph::Weight patch = b.weight(w["patch"]);
  ValueId x = b.linear("patch", patch_rows(b, t, patch), w["patch"]);
  const int32_t places = t.places_of_tile();
  for (const TileTable& table : {TileTable{"tiles.before", "tiles.before.gate", kTileOfPatch},
                                 TileTable{"class", nullptr, kPlace},
                                 TileTable{"positions", "positions.gate", kPlace, 0, true},
                                 TileTable{"positions.tiles", "positions.gate", kTile, places}})
    x = add_table(b, w, table, x);
  x = b.norm("embed.norm", x, w["embed.norm"], {.eps = t.norm_eps, .centered = true},
             w["embed.norm.bias"], DType::kF32);
  return b.emit("embed.places", graph::GateRows{.x = x, .places = places}).out;
}

}  // namespace

StatusOr<graph::Graph> build_tile_encoder(const Traits& t, const TileEncoderWeights& weights,
                                          const Traits& decoder, io::ModelFacts facts) {
  Builder b(std::move(facts));
  const Weights w(b, t, weights.own.model);
  ValueId x = embedded_tiles(b, t, w);
  std::vector<ValueId> parts = {kNone};
  for (int32_t i = 0; i < t.num_layers; ++i) {
    b.add_residual(x);
    x = add_decoder_layer(b, t, weights.own, i, x);
    if (std::ranges::find(t.tapped_layers, i) != t.tapped_layers.end())
      parts.push_back(in_bf16(b, fmt::format("layers.{}.tapped", i), x));
  }
  x = b.norm("norm", x, w["norm"], {.eps = t.norm_eps, .centered = true}, w["norm.bias"],
             DType::kF32);
  x = add_table(b, w, {"tiles.behind", "tiles.behind.gate", kTile}, x);
  DecoderWeights global = weights.global;
  global.first_layer = t.num_layers;
  for (int32_t i = 0; i < t.num_global_layers; ++i) {
    b.add_residual(x);
    x = add_decoder_layer(b, t, global, t.num_layers + i, x);
  }
  parts.front() = in_bf16(b, "last", x);
  const ValueId all = b.concat("states", parts);
  const ValueId features = in_bf16(b, "features", b.linear("proj", all, w["proj"], w["proj.bias"]));
  const graph::Heads heads = {decoder.num_heads, decoder.num_kv_heads, decoder.head_dim};
  for (int32_t layer = 0, index = 0; layer < decoder.num_layers; ++layer) {
    if (!decoder.crosses[static_cast<size_t>(layer)]) continue;
    const std::string scope = fmt::format("cross.{}.", index);
    const Weights cross(b, decoder, weights.cross, scope,
                        fmt::format(fmt::runtime(weights.cross_layers), layer));
    const ValueId keys = b.head_norm(scope + "k.norm", b.linear(scope + "k", features, cross["k"]),
                                     cross["k.norm"], {.eps = decoder.norm_eps});
    const ValueId values = b.linear(scope + "v", features, cross["v"]);
    b.store_kv(b.concat(scope + "kv", {keys, values}), heads, index++);
  }
  return std::move(b).finish(kNone, features);
}

}  // namespace nereid::models
