// Linear over weight panels for all vector instruction sets: register tiles of rows x panels over
// the whole of k, so that an element's sum is one chain in the order of k for any tile shape and
// number of rows.
#pragma once

#include "kernels/cpu/simd.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

// Panel vectors read side by side by a tile of few rows.
constexpr int kWideVecs = 4;

// Prefetches a panel line. Tiles of few rows: kFewRowsAhead; others: a page ahead (the end of
// hardware prefetching), to the L2 cache. Always inline: GCC 12 considers a function that only
// prefetches free of effects and drops its calls.
template <int kVecs>
[[gnu::always_inline]] inline void prefetch_panel(const void* at) {
  const char* const line = static_cast<const char*>(at);
  if constexpr (kVecs == kWideVecs)
    _mm_prefetch(line + kFewRowsAhead, _MM_HINT_T0);
  else
    _mm_prefetch(line + 4096, _MM_HINT_T1);
}

// Consecutive panels, as weights in memory.
struct WeightPanels {
  static constexpr bool kInMemory = true;

  const uint16_t* data;
  int64_t stride;

  const uint16_t* at(int64_t panel) const { return data + panel * stride; }
};

// Unpacked panels in a cache; `packed`: the packed panels behind them.
struct UnpackedPanels : WeightPanels {
  static constexpr bool kInMemory = false;

  const uint8_t* packed;
  int64_t packed_stride;  // bytes
  int bits;
};

// Panels at any addresses.
struct ScatteredPanels {
  static constexpr bool kInMemory = false;  // too short for prefetching

  const uint16_t* const* panels;

  const uint16_t* at(int64_t panel) const { return panels[panel]; }
};

// The panels of kVecs vectors that a register tile reads side by side: bf16 pairs.
template <class Panels, int kVecs>
struct PanelGroup {
  static constexpr int kLinePairs = 1;  // column pairs per panel line

  const uint16_t* panels[kVecs / kVecsPerPanel];

  PanelGroup(const Panels& all, int64_t first) {
    for (int i = 0; i < kVecs / kVecsPerPanel; ++i) panels[i] = all.at(first + i);
  }
  // Vector v of the pairs at i, an even index along k.
  const uint16_t* at(int v, int64_t i) const {
    return panels[v / kVecsPerPanel] + v % kVecsPerPanel * (2 * kLanes) + 16 * i;
  }
  [[gnu::always_inline]] void split(int v, int64_t i, F& low, F& high) const {
    low = pair_low(at(v, i)), high = pair_high(at(v, i));
  }
  [[gnu::always_inline]] void prefetch(int64_t i) const {
    if constexpr (Panels::kInMemory)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; v += kVecsPerPanel) prefetch_panel<kVecs>(at(v, i));
  }
};

// Unpacked panels: prefetches the packed lines behind them.
template <int kVecs>
struct PanelGroup<UnpackedPanels, kVecs> : PanelGroup<WeightPanels, kVecs> {
  const UnpackedPanels all;

  PanelGroup(const UnpackedPanels& panels, int64_t first)
      : PanelGroup<WeightPanels, kVecs>(panels, first), all(panels) {}
  [[gnu::always_inline]] void prefetch(int64_t i) const {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs / kVecsPerPanel; ++v)
      _mm_prefetch(
          reinterpret_cast<const char*>(all.packed) + v * all.packed_stride + 2 * i * all.bits,
          _MM_HINT_T1);
  }
};

// Calls step(i) for column pairs [begin, end) and prefetches w's lines.
template <class Group, class Step>
[[gnu::always_inline]] inline void for_pairs(const Group& w, int64_t begin, int64_t end,
                                             Step step) {
  constexpr int64_t kLine = 2 * Group::kLinePairs;
  int64_t i = begin;
  for (; i + kLine <= end; i += kLine) {
    w.prefetch(i);
#pragma GCC unroll 4
    for (int64_t j = 0; j < kLine; j += 2) step(i + j);
  }
  for (; i < end; i += 2) step(i);
}

// f32 products: weights are widened in registers, x is f32.
struct F32Dot {
  using X = float;
  static constexpr int kMaxRows = kRegisters == 32 ? 12 : 5;  // with two panel vectors
  static constexpr int kWideRows = kRegisters == 32 ? 4 : 2;  // with four panel vectors

  // Sums over columns [begin, end), begin even.
  template <int kRows, int kVecs, class Group>
  [[gnu::always_inline]] static inline void run(const X* x, int64_t x_stride, const Group w,
                                                int64_t begin, int64_t end,
                                                F (&acc)[kRows][kVecs]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = set1(0);
    for_pairs(w, begin, end, [&](int64_t i) [[gnu::always_inline]] {
      F low[kVecs], high[kVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) w.split(v, i, low[v], high[v]);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const F x0 = set1(x[r * x_stride + i]), x1 = set1(x[r * x_stride + i + 1]);
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) acc[r][v] = fma(low[v], x0, acc[r][v]);
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) acc[r][v] = fma(high[v], x1, acc[r][v]);
      }
    });
  }
};

// Sums of `cols` columns from `col` on, scaled, and with the bias.
[[gnu::always_inline]] inline F finished(const LinearRaw& a, F sums, int64_t row, int64_t col,
                                         int64_t cols) {
  if (a.scales) {
    const F scales = load(a.scales + col);
    sums = mul(sums, a.x_scales ? mul(scales, set1(a.x_scales[row * a.x_scales_stride])) : scales);
  }
  if (a.bias)
    sums = add(sums, cols == kLanes ? load_bf16(a.bias + col) : load_bf16_part(a.bias + col, cols));
  return sums;
}

template <int kRows, int kVecs>
inline void store_tile(const LinearRaw& a, int64_t row, int64_t panel, F (&acc)[kRows][kVecs]) {
#pragma GCC unroll 8
  for (int v = 0; v < kVecs; ++v) {
    const int64_t col = (panel * kVecsPerPanel + v) * kLanes;
    const int64_t cols = min_of(a.n - col, kLanes);
    if (cols <= 0) return;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F value = finished(a, acc[r][v], row + r, col, cols);
      const int64_t at = (a.out_at ? a.out_at[row + r] : (row + r) * a.out_stride) + col;
      if (a.out_bf16) {
        uint16_t* out = static_cast<uint16_t*>(a.out) + at;
        cols == kLanes ? store_bf16(out, value) : store_bf16_part(out, value, cols);
      } else {
        float* out = static_cast<float*>(a.out) + at;
        cols == kLanes ? store(out, value) : store_part(out, value, cols);
      }
    }
  }
}

// kRows rows from `row` by the panels of `weight` from `panel` on.
template <class Dot, int kRows, int kVecs, class Group>
void linear_tile(const LinearRaw& a, const Group& weight, int64_t row, int64_t panel) {
  F acc[kRows][kVecs];
  Dot::run(static_cast<const typename Dot::X*>(a.x) + row * a.x_stride, a.x_stride, weight, 0, a.k,
           acc);
  store_tile(a, row, panel, acc);
}

// linear_tile for `rows` <= kRows rows.
template <class Dot, int kRows, int kVecs, class Panels>
inline void linear_rows(const LinearRaw& a, const Panels& panels, int64_t rows, int64_t row,
                        int64_t panel) {
  if constexpr (kRows > 1)
    if (rows < kRows) return linear_rows<Dot, kRows - 1, kVecs>(a, panels, rows, row, panel);
  linear_tile<Dot, kRows, kVecs>(a, PanelGroup<Panels, kVecs>(panels, panel), row, panel);
}

// All rows by panels [begin, end) in groups of kVecs vectors; returns the first remaining panel.
template <class Dot, int kMaxRows, int kVecs, class Panels>
inline int64_t linear_groups(const LinearRaw& a, const Panels& panels, int64_t row_begin,
                             int64_t row_end, int64_t begin, int64_t end) {
  constexpr int64_t kPanels = kVecs / kVecsPerPanel;
  const int64_t rows = row_end - row_begin;
  const int64_t tiles = (rows + kMaxRows - 1) / kMaxRows;
  for (; begin + kPanels <= end; begin += kPanels)
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t first = rows * t / tiles, last = rows * (t + 1) / tiles;
      linear_rows<Dot, kMaxRows, kVecs>(a, panels, last - first, row_begin + first, begin);
    }
  return begin;
}

// a's rows [row_begin, row_end) by `panels`, which replace a's weight.
template <class Dot, class Panels>
inline void linear_block(const LinearRaw& a, const Panels& panels, int64_t row_begin,
                         int64_t row_end, int64_t panel_begin, int64_t panel_end) {
  if (row_end - row_begin <= Dot::kWideRows)
    panel_begin = linear_groups<Dot, Dot::kWideRows, kWideVecs>(a, panels, row_begin, row_end,
                                                                panel_begin, panel_end);
  panel_begin =
      linear_groups<Dot, Dot::kMaxRows, 2>(a, panels, row_begin, row_end, panel_begin, panel_end);
  if constexpr (kVecsPerPanel == 1)
    linear_groups<Dot, Dot::kMaxRows, 1>(a, panels, row_begin, row_end, panel_begin, panel_end);
}

template <class Dot>
inline void linear_block(const LinearRaw& a, int64_t row_begin, int64_t row_end,
                         int64_t panel_begin, int64_t panel_end) {
  linear_block<Dot>(a, WeightPanels{a.weight, a.panel_stride}, row_begin, row_end, panel_begin,
                    panel_end);
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
