// Linear with weights narrower than bf16, whose numbers (integers, f8e4m3) are exact in bf16 and
// f32. The first tile of rows unpacks them in registers while it multiplies and, for more rows,
// keeps them for later tiles: equal numbers, so equal bits. A group's sum is scaled and added to
// the element's, minus zero point (or minimum) * sum of x. f8e4m3 numbers with a scale per row are
// summed to the row's end.
#pragma once

#include "kernels/cpu/simd_linear.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

// Panels of integers read side by side by a register tile.
template <int kBits, int kVecs>
struct IntegerGroup {
  static constexpr int kLinePairs = 16 / kBits;
  static constexpr int64_t kPrefetchBytes = 1024;

  const uint8_t* panels[kVecs / kVecsPerPanel];

  IntegerGroup(const IntegerPanelsRaw& w, int64_t first) {
    for (int i = 0; i < kVecs / kVecsPerPanel; ++i)
      panels[i] = w.data + (first + i) * w.panel_bytes;
  }
  // Vector v of column i: of bytes, or of the pairs at even i.
  const uint8_t* at(int v, int64_t i) const {
    return panels[v / kVecsPerPanel] + v % kVecsPerPanel * kLanes + 16 * i * kBits / 8;
  }
  [[gnu::always_inline]] void split(int v, int64_t i, F& low, F& high) const {
    if constexpr (kBits == 4)
      load_u4(at(v, i), low, high);
    else
      low = load_u8(at(v, i)), high = load_u8(at(v, i + 1));
  }
  [[gnu::always_inline]] void prefetch(int64_t i) const {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; v += kVecsPerPanel)
      _mm_prefetch(reinterpret_cast<const char*>(at(v, i)) + kPrefetchBytes, _MM_HINT_T0);
  }
};

// Numbers with a scale per row, applied to its sum.
template <class Numbers>
concept WholeRows = requires {
  Numbers::kWholeRows;
};

// f8e4m3 numbers in groups.
template <int kVecs>
struct Float8Group : IntegerGroup<8, kVecs> {
  using IntegerGroup<8, kVecs>::IntegerGroup;
  using IntegerGroup<8, kVecs>::at;

  [[gnu::always_inline]] void split(int v, int64_t i, F& low, F& high) const {
    const F factor = set1(0x1p120f);
    low = mul(factor, load_f8(at(v, i))), high = mul(factor, load_f8(at(v, i + 1)));
  }
};

// f8e4m3 numbers with a scale per row.
template <int kVecs>
struct Float8Rows : Float8Group<kVecs> {
  using Float8Group<kVecs>::Float8Group;
  static constexpr bool kWholeRows = true;
};

// Numbers that are kept when read, for later row tiles: as bf16 panels, or in the product's form.
template <class Numbers, int kVecs>
struct KeptGroup : Numbers {
  uint16_t* memory;
  int64_t stride;

  KeptGroup(const Numbers& numbers, uint16_t* to, int64_t panel_stride)
      : Numbers(numbers), memory(to), stride(panel_stride) {}
  // Keeps vector v of the pairs at i.
  [[gnu::always_inline]] void keep(int v, int64_t i, I pairs) const {
    store_words(memory + v / kVecsPerPanel * stride + v % kVecsPerPanel * (2 * kLanes) + 16 * i,
                pairs);
  }
  [[gnu::always_inline]] void split(int v, int64_t i, F& low, F& high) const {
    Numbers::split(v, i, low, high);
    keep(v, i, pairs_of(low, high));
  }
};

// kRows rows from `row` by the panels of `numbers` from `panel` on.
template <class Dot, int kRows, int kVecs, class Numbers>
void integer_tile(const LinearRaw& a, const IntegerPanelsRaw& w, const Numbers& numbers,
                  int64_t row, int64_t panel) {
  F total[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) total[r][v] = set1(0);
  const F middle = set1(w.float8 ? 0.0f : static_cast<float>(1 << (w.bits - 1)));
  for (int64_t g = 0; g < w.groups; ++g) {
    F acc[kRows][kVecs];
    Dot::run(static_cast<const typename Dot::X*>(a.x) + row * a.x_stride, a.x_stride, numbers,
             g * w.group, min_of(a.k, (g + 1) * w.group), acc);
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      const int64_t at =
          ((panel + v / kVecsPerPanel) * w.groups + g) * 16 + v % kVecsPerPanel * kLanes;
      const F scale = load(w.scales + at);
      const F zero = w.zeros ? load_u8(w.zeros + at) : middle;
      const F less = sub(set1(0), w.minima ? load(w.minima + at) : mul(scale, zero));
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
        total[r][v] =
            fma(less, set1(a.x_sums[(row + r) * w.groups + g]), fma(scale, acc[r][v], total[r][v]));
    }
  }
  store_tile(a, row, panel, total);
}

// A register tile for kLeast to kRows rows; kWhole: scales are applied to row sums.
template <class Dot, int kLeast, int kRows, int kVecs, bool kWhole, class Numbers>
inline void narrow_rows(const LinearRaw& a, const IntegerPanelsRaw& w, const Numbers& numbers,
                        int64_t rows, int64_t row, int64_t panel) {
  if constexpr (kRows > kLeast)
    if (rows < kRows)
      return narrow_rows<Dot, kLeast, kRows - 1, kVecs, kWhole>(a, w, numbers, rows, row, panel);
  if constexpr (kWhole)
    linear_tile<Dot, kRows, kVecs>(a, numbers, row, panel);
  else
    integer_tile<Dot, kRows, kVecs>(a, w, numbers, row, panel);
}

// All rows by panels [begin, end) in groups of kVecs vectors of Numbers; returns the first left.
template <class Dot, int kMaxRows, int kVecs, class Numbers>
inline int64_t few_rows(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                        int64_t row_end, int64_t begin, int64_t end) {
  constexpr int64_t kPanels = kVecs / kVecsPerPanel;
  for (; begin + kPanels <= end; begin += kPanels)
    narrow_rows<Dot, 1, kMaxRows, kVecs, WholeRows<Numbers>>(a, w, Numbers(w, begin),
                                                             row_end - row_begin, row_begin, begin);
  return begin;
}

// The same for more than Dot::kMaxRows rows, with memory for a group's panels.
template <class Dot, int kVecs, class Numbers>
inline int64_t more_rows(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                         int64_t row_end, int64_t begin, int64_t end, uint16_t* memory) {
  constexpr int64_t kPanels = kVecs / kVecsPerPanel;
  constexpr int kMost = Dot::kMaxRows, kLeast = (kMost + 1) / 2;
  constexpr bool kWhole = WholeRows<Numbers>;
  const int64_t rows = row_end - row_begin, tiles = (rows + kMost - 1) / kMost;
  for (; begin + kPanels <= end; begin += kPanels) {
    const KeptGroup<Numbers, kVecs> first(Numbers(w, begin), memory, a.panel_stride);
    narrow_rows<Dot, kLeast, kMost, kVecs, kWhole>(a, w, first, rows / tiles, row_begin, begin);
    const auto kept = [&] {
      const WeightPanels panels = {memory, a.panel_stride};
      // No prefetch for sums over whole rows: f32 products took 7 % more time with it.
      if constexpr (kWhole) {
        return PanelGroup<WeightPanels, kVecs>(panels, 0);
      } else {
        const uint8_t* const next = w.data + (begin + kPanels) * w.panel_bytes;
        return PanelGroup<UnpackedPanels, kVecs>({panels, next, w.panel_bytes, w.bits}, 0);
      }
    }();
    for (int64_t t = 1; t < tiles; ++t) {
      const int64_t row = rows * t / tiles, count = rows * (t + 1) / tiles - row;
      narrow_rows<Dot, kLeast, kMost, kVecs, kWhole>(a, w, kept, count, row_begin + row, begin);
    }
  }
  return begin;
}

template <class Dot, template <int> class Numbers>
inline void narrow_block(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                         int64_t row_end, int64_t panel, int64_t panel_end, uint16_t* memory) {
  constexpr int kMaxRows = Dot::kMaxRows, kWideRows = Dot::kWideRows;
  const int64_t rows = row_end - row_begin;
  if (rows <= kWideRows)
    panel = few_rows<Dot, kWideRows, kWideVecs, Numbers<kWideVecs>>(a, w, row_begin, row_end, panel,
                                                                    panel_end);
  if (rows <= kMaxRows) {
    panel = few_rows<Dot, kMaxRows, 2, Numbers<2>>(a, w, row_begin, row_end, panel, panel_end);
    if constexpr (kVecsPerPanel == 1)
      few_rows<Dot, kMaxRows, 1, Numbers<1>>(a, w, row_begin, row_end, panel, panel_end);
  } else {
    panel = more_rows<Dot, 2, Numbers<2>>(a, w, row_begin, row_end, panel, panel_end, memory);
    if constexpr (kVecsPerPanel == 1)
      more_rows<Dot, 1, Numbers<1>>(a, w, row_begin, row_end, panel, panel_end, memory);
  }
}

template <int kVecs>
using Integers4 = IntegerGroup<4, kVecs>;
template <int kVecs>
using Integers8 = IntegerGroup<8, kVecs>;

// a's rows [row_begin, row_end) by the panels of w, with memory for two panels of bf16.
template <class Dot>
inline void float8_block(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                         int64_t row_end, int64_t panel_begin, int64_t panel_end,
                         uint16_t* memory) {
  if (w.by_rows)
    narrow_block<Dot, Float8Rows>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
  else
    narrow_block<Dot, Float8Group>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
}
template <class Dot>
inline void narrow_block(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                         int64_t row_end, int64_t panel_begin, int64_t panel_end,
                         uint16_t* memory) {
  if (w.float8)
    float8_block<Dot>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
  else if (w.bits == 4)
    narrow_block<Dot, Integers4>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
  else
    narrow_block<Dot, Integers8>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
