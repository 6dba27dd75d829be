// Ops on a step's tokens and positions: embeddings, learned positions, gathering of rows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "kernels/api/op.h"

namespace nereid::kernels {

// Id of token i; -1: given embedding or feature, or a failed sample.
inline int64_t id_of(const BatchView& step, int64_t i) {
  const int64_t id = step.tokens[i];
  if (id >= 0 || id < kFirstFeature / 2) return id < 0 ? -1 : id;
  return step.slot_tokens ? std::max(-1, step.slot_tokens[-1 - id]) : -1;
}

// out[i] = scale * table[token(i)]. Token t < 0: slot_tokens[-1 - t] (sampled on the device), or
// below kFirstFeature / 2 a given_row() in place of the table's; kRowEnd: row_end. Ids outside the
// table (e.g. -1 of a failed sample) and missing rows give 0.
template <class F>
struct EmbedOf {
  static constexpr std::string_view kName = "embed";
  static constexpr bool kRowsIndependent = false;  // depends on the step's tokens
  typename F::Weight table;                        // [vocab, hidden]
  typename F::Weight row_end;                      // bf16 [hidden]; may be absent: zeros
  float scale = 1;
  typename F::Value out;       // f32 [n, hidden]
  typename F::Step step = {};  // tokens, slot_tokens, embeddings, features

  static constexpr auto fields() {
    return std::tuple(matrix("table", &EmbedOf::table),
                      vector("row_end", &EmbedOf::row_end).maybe(),
                      attribute("scale", &EmbedOf::scale),
                      kernels::out("out", &EmbedOf::out, {DType::kF32}).of(OutputRows::kTokens),
                      kernels::step(&EmbedOf::step));
  }
  static std::string_view check(const EmbedOf<Views>& a) {
    if (a.out.cols != a.table.k) return "out is not as wide as the table";
    if (is_given(a.row_end) && a.row_end.k != a.table.k) return "row_end is not as wide";
    if (!std::isfinite(a.scale)) return "the scale is not a number";
    return {};
  }
  friend void reference(const EmbedOf<Views>& a);
};

// out[i] = x[i] + columns [column, column + width) of the feature that stands for token i (Meng et
// al. 2024, "DeepStack"); x[i] for tokens without one.
template <class F>
struct AddFeaturesOf {
  static constexpr std::string_view kName = "add_features";
  static constexpr bool kRowsIndependent = false;
  typename F::Value x;  // f32 [n, width]
  int32_t column = 0;
  typename F::Value out;       // in place of x
  typename F::Step step = {};  // tokens, features

  static constexpr auto fields() {
    return std::tuple(in("x", &AddFeaturesOf::x, {DType::kF32}).of(OutputRows::kTokens),
                      attribute("column", &AddFeaturesOf::column),
                      kernels::out("out", &AddFeaturesOf::out, {DType::kF32})
                          .of(OutputRows::kTokens)
                          .in_place_of("x"),
                      kernels::step(&AddFeaturesOf::step));
  }
  static std::string_view check(const AddFeaturesOf<Views>& a) {
    if (a.out.cols != a.x.cols) return "out is not as wide as x";
    if (a.column < 0) return "the column is negative";
    return {};
  }
  friend void reference(const AddFeaturesOf<Views>& a);
};

// Place `at` of `count` on a side, stretched to `side` rows of a table with the ends on the ends:
// between rows `first` and `next`, weights 1 - fraction and fraction.
struct StretchedPlace {
  int32_t first = 0, next = 0;
  float fraction = 0;
};
constexpr StretchedPlace stretched_place(int32_t at, int32_t count, int32_t side) {
  if (count < 2 || at < 0) return {};
  const float place = static_cast<float>(at < count ? at : count - 1) *
                      static_cast<float>(side - 1) / static_cast<float>(count - 1);
  const int32_t floor = static_cast<int32_t>(place), last = side - 1;
  const int32_t first = floor < last ? floor : last;
  return {first, first < last ? first + 1 : last, place - static_cast<float>(first)};
}

inline constexpr int32_t kMaxPlaneSide = 4096;

// Learned positions: out[i] = x[i] + table[position(i)]. Positions outside the table add nothing.
// With a side: the table is a square of side x side rows, row by row, stretched over the plane of
// the token's row, whose last token is in the last place. out[i] = x[i] + the bilinear mean of the
// four rows at the token's place (components 1 and 2 of its position). Rows of a step that has no
// components stay as they are.
template <class F>
struct AddPositionsOf {
  static constexpr std::string_view kName = "add_positions";
  static constexpr bool kRowsIndependent = false;
  typename F::Value x;       // f32 [n, hidden]
  typename F::Weight table;  // [positions, hidden]
  int32_t side = 0;
  typename F::Value out;       // in place of x
  typename F::Step step = {};  // positions; with a side components, row_of_token, row_begin

  static constexpr auto fields() {
    return std::tuple(in("x", &AddPositionsOf::x, {DType::kF32}).of(OutputRows::kTokens),
                      matrix("table", &AddPositionsOf::table),
                      attribute("side", &AddPositionsOf::side),
                      kernels::out("out", &AddPositionsOf::out, {DType::kF32})
                          .of(OutputRows::kTokens)
                          .in_place_of("x"),
                      kernels::step(&AddPositionsOf::step));
  }
  static std::string_view check(const AddPositionsOf<Views>& a) {
    if (a.x.cols != a.table.k || a.out.cols != a.x.cols) return "x and the table differ in width";
    if (a.side < 0 || a.side > kMaxPlaneSide) return "the side is out of range";
    if (a.side > 0 && a.table.n != int64_t{a.side} * a.side) return "the table is no square";
    return {};
  }
  friend void reference(const AddPositionsOf<Views>& a);
};

// Learned positions of tiles: out[i] = x[i] + factor * table[row], row = component `component` of
// the token's position; with `rows` > 0: component * rows + component 1, of tokens whose component
// 1 is below `rows`. Rows outside the table add nothing, nor does a step that has no components.
// factor: 1; with a gate tanh(gate), with `is_rest` 1 - tanh(gate).
template <class F>
struct AddTilePositionsOf {
  static constexpr std::string_view kName = "add_tile_positions";
  static constexpr bool kRowsIndependent = false;
  typename F::Value x;       // f32 [n, hidden]
  typename F::Weight table;  // [positions, hidden]
  typename F::Weight gate;   // f32 [1]; may be absent
  int32_t component = 0, rows = 0;
  bool is_rest = false;
  typename F::Value out;       // in place of x
  typename F::Step step = {};  // components

  static constexpr auto fields() {
    return std::tuple(in("x", &AddTilePositionsOf::x, {DType::kF32}).of(OutputRows::kTokens),
                      matrix("table", &AddTilePositionsOf::table),
                      vector("gate", &AddTilePositionsOf::gate).exact().maybe(),
                      attribute("component", &AddTilePositionsOf::component),
                      attribute("rows", &AddTilePositionsOf::rows),
                      attribute("is_rest", &AddTilePositionsOf::is_rest),
                      kernels::out("out", &AddTilePositionsOf::out, {DType::kF32})
                          .of(OutputRows::kTokens)
                          .in_place_of("x"),
                      kernels::step(&AddTilePositionsOf::step));
  }
  static std::string_view check(const AddTilePositionsOf<Views>& a) {
    if (a.x.cols != a.table.k || a.out.cols != a.x.cols) return "x and the table differ in width";
    if (is_given(a.gate) && a.gate.k != 1) return "the gate is not one number";
    if (a.is_rest && !is_given(a.gate)) return "there is no gate";
    if (a.component < 0 || a.component >= kPositionComponents)
      return "the component is out of range";
    if (a.rows < 0) return "the rows are negative";
    return {};
  }
  friend void reference(const AddTilePositionsOf<Views>& a);
};

// Row of the table for token i; -1: none.
constexpr int64_t tile_row(const int32_t* components, int64_t i, int32_t component, int32_t rows,
                           int64_t table_rows) {
  const int32_t* const own = components + i * kPositionComponents;
  int64_t row = own[component];
  if (rows > 0) row = own[1] < rows ? row * rows + own[1] : -1;
  return row < table_rows ? row : -1;
}

// out[i] = tanh(gate) * x[i]; without a gate x[i]. Zeros with `needs_keys` for tokens that see no
// key of an encoder's output (see CrossAttention), and with `places` > 0 for tokens whose component
// 1 is not below.
template <class F>
struct GateRowsOf {
  static constexpr std::string_view kName = "gate_rows";
  static constexpr bool kRowsIndependent = false;
  typename F::Value x;      // f32 [n, width]
  typename F::Weight gate;  // f32 [1]; may be absent
  bool needs_keys = false;
  int32_t places = 0;
  typename F::Value out;       // in place of x
  typename F::Step step = {};  // row_of_token, cross_lengths, cross_mask, components

  static constexpr auto fields() {
    return std::tuple(in("x", &GateRowsOf::x, {DType::kF32}).of(OutputRows::kTokens),
                      vector("gate", &GateRowsOf::gate).exact().maybe(),
                      attribute("needs_keys", &GateRowsOf::needs_keys),
                      attribute("places", &GateRowsOf::places),
                      kernels::out("out", &GateRowsOf::out, {DType::kF32})
                          .of(OutputRows::kTokens)
                          .in_place_of("x"),
                      kernels::step(&GateRowsOf::step));
  }
  static std::string_view check(const GateRowsOf<Views>& a) {
    if (a.out.cols != a.x.cols) return "out is not as wide as x";
    if (is_given(a.gate) && a.gate.k != 1) return "the gate is not one number";
    if (a.places < 0) return "the places are negative";
    return {};
  }
  friend void reference(const GateRowsOf<Views>& a);
};

// Position-scaled queries (Llama 4): out[i] = x[i] * (1 + growth * ln(1 + floor((position(i) +
// offset) / period))).
template <class F>
struct ScaleByPositionOf {
  static constexpr std::string_view kName = "scale_by_position";
  static constexpr bool kRowsIndependent = false;
  typename F::Value x;  // f32 [n, width]
  float growth = 0;
  int32_t period = 1, offset = 0;
  typename F::Value out;       // in place of x
  typename F::Step step = {};  // positions

  static constexpr auto fields() {
    return std::tuple(in("x", &ScaleByPositionOf::x, {DType::kF32}).of(OutputRows::kTokens),
                      attribute("growth", &ScaleByPositionOf::growth),
                      attribute("period", &ScaleByPositionOf::period),
                      attribute("offset", &ScaleByPositionOf::offset),
                      kernels::out("out", &ScaleByPositionOf::out, {DType::kF32})
                          .of(OutputRows::kTokens)
                          .in_place_of("x"),
                      kernels::step(&ScaleByPositionOf::step));
  }
  static std::string_view check(const ScaleByPositionOf<Views>& a) {
    if (a.out.cols != a.x.cols) return "out is not as wide as x";
    if (!std::isfinite(a.growth)) return "the growth is not a number";
    if (a.period < 1) return "the period is not positive";
    if (a.offset < 0) return "the offset is negative";
    return {};
  }
  friend void reference(const ScaleByPositionOf<Views>& a);
};

inline constexpr int32_t kMaxMergedRows = 64;

// out[i] = rows t - count + 1 to t of x side by side, t = step.logit_tokens[i] >= count - 1.
template <class F>
struct GatherRowsOf {
  static constexpr std::string_view kName = "gather_rows";
  static constexpr bool kRowsIndependent = false;
  typename F::Value x;  // f32 or bf16 [n, width]
  int32_t count = 1;
  typename F::Value out;       // of x's type [m, count * width]
  typename F::Step step = {};  // logit_tokens

  static constexpr auto fields() {
    return std::tuple(
        in("x", &GatherRowsOf::x, {DType::kF32, DType::kBF16}).of(OutputRows::kTokens),
        attribute("count", &GatherRowsOf::count),
        kernels::out("out", &GatherRowsOf::out, {DType::kF32, DType::kBF16})
            .of(OutputRows::kSampled),
        kernels::step(&GatherRowsOf::step));
  }
  static std::string_view check(const GatherRowsOf<Views>& a) {
    if (a.count < 1 || a.count > kMaxMergedRows) return "count is out of range";
    if (a.out.cols != a.count * a.x.cols) return "out is not as wide as `count` rows of x";
    if (a.out.dtype != a.x.dtype) return "x and out differ in type";
    return {};
  }
  friend void reference(const GatherRowsOf<Views>& a);
};

// Weighted sums of four rows, of bilinear means among them: out[i] = sum over j, in order, of
// step.blends[i].weights[j] * x[step.blends[i].tokens[j]]. Zeros in a step without blends.
template <class F>
struct BlendRowsOf {
  static constexpr std::string_view kName = "blend_rows";
  static constexpr bool kRowsIndependent = false;
  typename F::Value x;         // f32 [n, width]
  typename F::Value out;       // f32 [m, width]
  typename F::Step step = {};  // blends

  static constexpr auto fields() {
    return std::tuple(
        in("x", &BlendRowsOf::x, {DType::kF32}).of(OutputRows::kTokens),
        kernels::out("out", &BlendRowsOf::out, {DType::kF32}).of(OutputRows::kSampled),
        kernels::step(&BlendRowsOf::step));
  }
  static std::string_view check(const BlendRowsOf<Views>& a) {
    if (a.out.cols != a.x.cols) return "out is not as wide as x";
    return {};
  }
  friend void reference(const BlendRowsOf<Views>& a);
};

// out[i] = x[i - 1], the row of the position before; 0 at position 0. Rows have all positions of
// their text, as an encoder's.
template <class F>
struct ShiftRowsOf {
  static constexpr std::string_view kName = "shift_rows";
  static constexpr bool kRowsIndependent = false;
  typename F::Value x;         // f32 [n, width]
  typename F::Value out;       // f32 [n, width]
  typename F::Step step = {};  // positions

  static constexpr auto fields() {
    return std::tuple(in("x", &ShiftRowsOf::x, {DType::kF32}).of(OutputRows::kTokens),
                      kernels::out("out", &ShiftRowsOf::out, {DType::kF32}).of(OutputRows::kTokens),
                      kernels::step(&ShiftRowsOf::step));
  }
  static std::string_view check(const ShiftRowsOf<Views>& a) {
    if (a.out.cols != a.x.cols) return "out is not as wide as x";
    return {};
  }
  friend void reference(const ShiftRowsOf<Views>& a);
};

}  // namespace nereid::kernels
