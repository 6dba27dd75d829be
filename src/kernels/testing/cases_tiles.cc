// Cases of rows by tile and by visible keys: add_tile_positions, gate_rows.
#include <cmath>

#include "kernels/testing/cases_rows.h"

namespace nereid::kernels::testing {
namespace {

constexpr int32_t kPlaces = 5;  // on a tile
constexpr int32_t kTiles = 7;

// Components (tile, place, any number) of a token; places behind the last one are padding.
std::vector<int32_t> components_of(int64_t tokens) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < tokens; ++i) {
    out.push_back(static_cast<int32_t>(i * 3 % (kTiles + 1)));
    out.push_back(static_cast<int32_t>(i % (kPlaces + 2)));
    out.push_back(static_cast<int32_t>(i * 5 % (2 * kTiles)));
  }
  return out;
}

// f32 rounding, and the error of tanh.
template <class Op>
void set_region(Case<Op>& c, Offset x, const RowsShape& s, int64_t stride) {
  Region region{"x", x, DType::kF32, s.tokens, s.width, stride, {}, {}};
  for (int64_t r = 0; r < region.rows; ++r)
    for (int64_t col = 0; col < region.cols; ++col)
      region.tolerance.push_back(
          static_cast<float>(16 * kEpsF32 * (1 + std::fabs(cell_value(c.after, region, r, col)))));
  c.outputs = {region};
}

WeightView gate_view(std::byte* base, Offset gate) {
  WeightView view{base + gate, WeightLayout::kRowMajor, 1, 1};
  view.format = kFloat32;
  return view;
}

struct TilePositions {
  int32_t component = 0, rows = 0;
  bool has_gate = false, is_rest = false;
  WeightLayout layout = WeightLayout::kRowMajor;
};

Case<AddTilePositions> tile_positions_case(const RowsShape& s, const TilePositions& t) {
  Case<AddTilePositions> c;
  c.name =
      fmt::format("tokens={} hidden={} component={} rows={} gate={} rest={} layout={}", s.tokens,
                  s.width, t.component, t.rows, t.has_gate, t.is_rest, static_cast<int>(t.layout));
  const int64_t hidden = s.width, stride = hidden + 2;
  const int64_t rows = t.rows > 0 ? kTiles * kPlaces : kTiles;
  const Offset at = c.before.add(components_of(s.tokens));
  const Offset gate = c.before.add(std::vector<float>{0.75f});
  std::vector<BF16> values = noise_bf16(3, rows * hidden);
  const StoredWeight table = add_weight(c.before, values, {nullptr, t.layout, rows, hidden, {}});
  const Offset x = c.before.add(noise(1, s.tokens * stride));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    AddTilePositions a;
    a.step.components = ints(base, at, begin * kPositionComponents);
    a.table = table.at(base);
    if (t.has_gate) a.gate = gate_view(base, gate);
    a.component = t.component, a.rows = t.rows, a.is_rest = t.is_rest;
    a.x = a.out = view(base, x, DType::kF32, begin, count, hidden, stride);
    return a;
  };
  finish(c, s.tokens);
  set_region(c, x, s, stride);
  return c;
}

struct Gate {
  bool has_gate = false, needs_keys = false, has_lengths = true, has_mask = false;
  int32_t places = 0;
};

// Rows of three tokens, with 0, 33 or 70 keys of an encoder's output. Masks of one word hide all
// keys, all but the last, or none; those behind a row's last key are set.
Case<GateRows> gate_case(const RowsShape& s, const Gate& g) {
  constexpr int32_t kLengths[] = {0, 33, 70};
  constexpr int32_t kWords = 3;
  Case<GateRows> c;
  c.name = fmt::format("tokens={} width={} gate={} keys={} lengths={} mask={} places={}", s.tokens,
                       s.width, g.has_gate, g.needs_keys, g.has_lengths, g.has_mask, g.places);
  const int64_t stride = s.width + 2;
  std::vector<int32_t> row_of_token, lengths, mask;
  for (int64_t i = 0; i < s.tokens; ++i) {
    if (i % 3 == 0) lengths.push_back(kLengths[i / 3 % 3]);
    row_of_token.push_back(static_cast<int32_t>(i / 3));
    const int32_t length = lengths.back();
    std::vector<uint32_t> words(kWords, 0);
    if (i % 4 == 1 && length > 0)
      words[static_cast<size_t>((length - 1) / 32)] = 1u << ((length - 1) % 32);
    if (i % 4 == 2) words.assign(kWords, ~0u);
    for (int32_t at = length; at < 32 * kWords; ++at)
      words[static_cast<size_t>(at / 32)] |= 1u << (at % 32);
    for (const uint32_t word : words) mask.push_back(static_cast<int32_t>(word));
  }
  const Offset at = c.before.add(components_of(s.tokens));
  const Offset rows = c.before.add(row_of_token), sizes = c.before.add(lengths);
  const Offset bits = c.before.add(mask);
  const Offset gate = c.before.add(std::vector<float>{-1.25f});
  const Offset x = c.before.add(noise(1, s.tokens * stride));
  c.args = [=](std::byte* base, int64_t begin, int64_t count) {
    GateRows a;
    a.step.components = ints(base, at, begin * kPositionComponents);
    a.step.row_of_token = ints(base, rows, begin);
    if (g.has_lengths) a.step.cross_lengths = ints(base, sizes, 0);
    if (g.has_mask) {
      a.step.cross_mask = reinterpret_cast<const uint32_t*>(ints(base, bits, begin * kWords));
      a.step.cross_mask_words = kWords;
    }
    if (g.has_gate) a.gate = gate_view(base, gate);
    a.needs_keys = g.needs_keys, a.places = g.places;
    a.x = a.out = view(base, x, DType::kF32, begin, count, s.width, stride);
    return a;
  };
  finish(c, s.tokens);
  set_region(c, x, s, stride);
  return c;
}

}  // namespace

template <>
const std::vector<Case<AddTilePositions>>& cases<AddTilePositions>() {
  return over_shapes<AddTilePositions>([](const RowsShape& s, auto& list) {
    list.push_back(tile_positions_case(s, {}));
    list.push_back(tile_positions_case(s, {.component = 1, .has_gate = true, .is_rest = true}));
    list.push_back(tile_positions_case(s, {.component = 2, .has_gate = true}));
    list.push_back(tile_positions_case(s, {.rows = kPlaces, .has_gate = true}));
    list.push_back(tile_positions_case(s, {.rows = kPlaces, .layout = WeightLayout::kPanel16}));
  });
}

template <>
const std::vector<Case<GateRows>>& cases<GateRows>() {
  return over_shapes<GateRows>([](const RowsShape& s, auto& list) {
    list.push_back(gate_case(s, {.has_gate = true}));
    list.push_back(gate_case(s, {.places = kPlaces}));
    list.push_back(gate_case(s, {.has_gate = true, .needs_keys = true}));
    list.push_back(gate_case(s, {.needs_keys = true, .has_mask = true}));
    list.push_back(gate_case(s, {.needs_keys = true, .has_lengths = false}));
    list.push_back(
        gate_case(s, {.has_gate = true, .needs_keys = true, .has_mask = true, .places = 3}));
  });
}

}  // namespace nereid::kernels::testing
