// Linear with integer weights in 16-bit products and 32-bit sums, at twice the rate of f32. Rows of
// x are i16: original i8 numbers, or steps of a power of two (fixed_row()). Integer sums are exact;
// a row's sums over pieces of columns are scaled and added in the order of k, for any tile and
// number of rows.
#pragma once

#include "kernels/cpu/simd_narrow.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

constexpr int64_t kQuad = 4;  // columns of a step; pairs: 0 and 2, 1 and 3

// Packed panels read side by side by a register tile.
template <int kBits, int kVecs>
struct PackedWords : IntegerGroup<kBits, kVecs> {
  using IntegerGroup<kBits, kVecs>::IntegerGroup;
  using IntegerGroup<kBits, kVecs>::panels;

  // Vector v: columns i and i + 2 of each row, and i + 1 and i + 3.
  [[gnu::always_inline]] void words(int v, int64_t i, I& even, I& odd) const {
    const uint8_t* const at = panels[v / kVecsPerPanel] + 16 * i * kBits / 8;
    const int part = v % kVecsPerPanel;
    if constexpr (kBits == 4) {
      const I both = words_u8(at, at + 16, part);
      even = low_four(both), odd = next_four(both);
    } else {
      even = words_u8(at, at + 32, part), odd = words_u8(at + 16, at + 48, part);
    }
  }
};

// One or two panels with an unpacked piece in memory.
template <int kVecs>
struct UnpackedWords {
  const uint16_t* data;
  const uint8_t* next;  // prefetched: next piece, `step` bytes per panel at a time
  int64_t next_stride, step;

  static constexpr int64_t kPanel = kPieceColumns * 16;
  [[gnu::always_inline]] void words(int v, int64_t i, I& even, I& odd) const {
    const uint16_t* const at =
        data + v / kVecsPerPanel * kPanel + v % kVecsPerPanel * (2 * kLanes) + 16 * i;
    even = load_words(at), odd = load_words(at + 32);
  }
  [[gnu::always_inline]] void prefetch(int64_t i) const {
#pragma GCC unroll 2
    for (int p = 0; p < kVecs / kVecsPerPanel; ++p)
      _mm_prefetch(reinterpret_cast<const char*>(next + p * next_stride + i / kQuad * step),
                   _MM_HINT_T0);
  }
};

// The FixedPiece data behind a row.
inline const FixedPiece* pieces_at(const int16_t* row, int64_t k) {
  return reinterpret_cast<const FixedPiece*>(row + (k + kQuad - 1) / kQuad * kQuad);
}

// Columns multiplied together: of one group, with one step of x.
struct WordPiece {
  int64_t begin, end, group, index;
};
template <class Each>
inline void for_pieces(const LinearRaw& a, const IntegerPanelsRaw& w, Each each) {
  int64_t index = 0;
  for (int64_t g = 0; g < w.groups; ++g) {
    const int64_t end = min_of(a.k, (g + 1) * w.group);
    for (int64_t begin = g * w.group; begin < end; begin += kPieceColumns)
      each(WordPiece{begin, min_of(begin + kPieceColumns, end), g, index++});
  }
}

// Sums of a piece, from column `first` of the group on.
template <int kRows, int kVecs, class Group>
[[gnu::always_inline]] inline void add_words(const int16_t* x, int64_t x_stride, const Group& w,
                                             int64_t first, int64_t count,
                                             I (&sums)[kRows][kVecs]) {
  for (int64_t i = 0; i < count; i += kQuad) {
    w.prefetch(first + i);
    I even[kVecs], odd[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) w.words(v, first + i, even[v], odd[v]);
    const int16_t* at = x + i;
    asm("" : "+r"(at));  // one pointer for all rows
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) add_products(sums[r][v], even[v], at + r * x_stride);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) add_products(sums[r][v], odd[v], at + r * x_stride + 2);
  }
}

// Rows in steps: f32 totals.
struct FixedTotals {
  using Total = F;

  template <int kRows, int kVecs>
  static void start(const int16_t*, const LinearRaw&, F (&totals)[kRows][kVecs]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) totals[r][v] = set1(0);
  }
  // Adds the piece's products; its columns begin at `first` of w's panels.
  template <int kRows, int kVecs, class Group>
  [[gnu::always_inline]] static void add(const int16_t* x, const LinearRaw& a,
                                         const IntegerPanelsRaw& w, const Group& group,
                                         int64_t panel, const WordPiece& piece, int64_t first,
                                         F (&totals)[kRows][kVecs]) {
    I sums[kRows][kVecs];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) sums[r][v] = zero_words();
    add_words<kRows, kVecs>(x + piece.begin, a.x_stride, group, first, piece.end - piece.begin,
                            sums);
    F scale[kVecs], less[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) {
      const int64_t at =
          ((panel + v / kVecsPerPanel) * w.groups + piece.group) * 16 + v % kVecsPerPanel * kLanes;
      scale[v] = load(w.scales + at);
      const F zero = w.zeros ? load_u8(w.zeros + at) : set1(static_cast<float>(1 << (w.bits - 1)));
      less[v] = sub(set1(0), w.minima ? load(w.minima + at) : mul(scale[v], zero));
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const FixedPiece& of = pieces_at(x + r * a.x_stride, a.k)[piece.index];
      const F step = set1(of.step), sum = set1(of.sum);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v)
        totals[r][v] =
            fma(scale[v], mul(step, to_floats(sums[r][v])), fma(less[v], sum, totals[r][v]));
    }
  }
  static F total(F x) { return x; }
  static F from_memory(F x) { return x; }
  static F to_memory(F x) { return x; }
};

// i8 rows and weights with zero point 128 and row scales: integer totals.
struct ByteTotals {
  using Total = I;

  template <int kRows, int kVecs>
  static void start(const int16_t* x, const LinearRaw& a, I (&totals)[kRows][kVecs]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      int sum;
      __builtin_memcpy(&sum, pieces_at(x + r * a.x_stride, a.k), sizeof(sum));
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) totals[r][v] = same_words(-128 * sum);
    }
  }
  template <int kRows, int kVecs, class Group>
  [[gnu::always_inline]] static void add(const int16_t* x, const LinearRaw& a,
                                         const IntegerPanelsRaw&, const Group& group, int64_t,
                                         const WordPiece& piece, int64_t first,
                                         I (&totals)[kRows][kVecs]) {
    add_words<kRows, kVecs>(x + piece.begin, a.x_stride, group, first, piece.end - piece.begin,
                            totals);
  }
  static F total(I x) { return to_floats(x); }
  static I from_memory(F x) { return as_words(x); }
  static F to_memory(I x) { return as_floats(x); }
};

template <class Totals, int kRows, int kVecs>
inline void store_totals(const LinearRaw& a, int64_t row, int64_t panel,
                         const typename Totals::Total (&totals)[kRows][kVecs]) {
  F out[kRows][kVecs];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) out[r][v] = Totals::total(totals[r][v]);
  store_tile(a, row, panel, out);
}

// `rows` <= kRows rows by packed panels.
template <class Totals, int kBits, int kRows, int kVecs>
void packed_tile(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t rows, int64_t row,
                 int64_t panel) {
  if constexpr (kRows > 1)
    if (rows < kRows) return packed_tile<Totals, kBits, kRows - 1, kVecs>(a, w, rows, row, panel);
  const int16_t* const x = static_cast<const int16_t*>(a.x) + row * a.x_stride;
  const PackedWords<kBits, kVecs> group(w, panel);
  typename Totals::Total totals[kRows][kVecs];
  Totals::start(x, a, totals);
  for_pieces(a, w, [&](const WordPiece& piece) {
    Totals::add(x, a, w, group, panel, piece, piece.begin, totals);
  });
  store_totals<Totals>(a, row, panel, totals);
}

// Many rows: a piece of one or two panels is unpacked into the L1 cache and multiplied by all rows.
template <class Totals, int kBits, int kVecs>
class WordBlock {
 public:
  // `memory`: words_memory().
  WordBlock(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin, int64_t row_end,
            void* memory)
      : a_(a),
        w_(w),
        row_begin_(row_begin),
        rows_(row_end - row_begin),
        tiles_((rows_ + kRows - 1) / kRows),
        unpacked_(static_cast<uint16_t*>(memory)),
        totals_(reinterpret_cast<float*>(unpacked_ + 2 * UnpackedWords<kVecs>::kPanel)) {}

  // Returns the first remaining panel.
  int64_t run(int64_t panel, int64_t end) const {
    for (; panel + kPanels <= end; panel += kPanels) {
      for_tiles([&]<int kTile>(int64_t row) { start<kTile>(row); });
      for_pieces(a_, w_, [&](const WordPiece& piece) {
        unpack(panel, piece);
        UnpackedWords<kVecs> unpacked = {unpacked_, next_of(panel, piece), w_.panel_bytes, kStep};
        for_tiles([&]<int kTile>(int64_t row) {
          add<kTile>(unpacked, panel, piece, row);
          unpacked.step = 0;
        });
      });
      for_tiles([&]<int kTile>(int64_t row) { finish<kTile>(panel, row); });
    }
    return panel;
  }

 private:
  using Total = typename Totals::Total;
  static constexpr int kRows = kRegisters == 32 ? 12 : 6;
  static constexpr int64_t kPanels = kVecs / kVecsPerPanel;
  static constexpr int64_t kStep = 16 * kQuad * kBits / 8;

  // Calls each<kTile>(row) for tiles of nearly equal size.
  template <int kTile = kRows, class Each>
  void for_rows(int64_t rows, int64_t row, Each each) const {
    if constexpr (kTile > 1)
      if (rows < kTile) return for_rows<kTile - 1>(rows, row, each);
    each.template operator()<kTile>(row);
  }
  template <class Each>
  void for_tiles(Each each) const {
    for (int64_t t = 0; t < tiles_; ++t) {
      const int64_t first = rows_ * t / tiles_, last = rows_ * (t + 1) / tiles_;
      for_rows(last - first, first, each);
    }
  }

  const int16_t* x_at(int64_t row) const {
    return static_cast<const int16_t*>(a_.x) + (row_begin_ + row) * a_.x_stride;
  }
  // Address of the next packed columns.
  const uint8_t* next_of(int64_t panel, const WordPiece& piece) const {
    if (piece.end == a_.k) return w_.data + (panel + kPanels) * w_.panel_bytes;
    return w_.data + panel * w_.panel_bytes + 16 * piece.end * kBits / 8;
  }
  void unpack(int64_t panel, const WordPiece& piece) const {
    const PackedWords<kBits, kVecs> packed(w_, panel);
    for (int64_t i = piece.begin; i < piece.end; i += kQuad)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) {
        I even, odd;
        packed.words(v, i, even, odd);
        uint16_t* const out = unpacked_ + v / kVecsPerPanel * UnpackedWords<kVecs>::kPanel +
                              v % kVecsPerPanel * (2 * kLanes) + 16 * (i - piece.begin);
        store_words(out, even), store_words(out + 32, odd);
      }
  }

  template <int kTile>
  void load_totals(int64_t row, Total (&totals)[kTile][kVecs]) const {
    const float* at = totals_ + row * kVecs * kLanes;
#pragma GCC unroll 16
    for (int r = 0; r < kTile; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v, at += kLanes) totals[r][v] = Totals::from_memory(load(at));
  }
  template <int kTile>
  void keep_totals(int64_t row, const Total (&totals)[kTile][kVecs]) const {
    float* at = totals_ + row * kVecs * kLanes;
#pragma GCC unroll 16
    for (int r = 0; r < kTile; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v, at += kLanes) store(at, Totals::to_memory(totals[r][v]));
  }
  template <int kTile>
  void start(int64_t row) const {
    Total totals[kTile][kVecs];
    Totals::start(x_at(row), a_, totals);
    keep_totals(row, totals);
  }
  template <int kTile>
  [[gnu::noinline]] void add(const UnpackedWords<kVecs>& unpacked, int64_t panel,
                             const WordPiece& piece, int64_t row) const {
    Total totals[kTile][kVecs];
    load_totals(row, totals);
    Totals::add(x_at(row), a_, w_, unpacked, panel, piece, 0, totals);
    keep_totals(row, totals);
  }
  template <int kTile>
  void finish(int64_t panel, int64_t row) const {
    Total totals[kTile][kVecs];
    load_totals(row, totals);
    store_totals<Totals>(a_, row_begin_ + row, panel, totals);
  }

  const LinearRaw& a_;
  const IntegerPanelsRaw& w_;
  int64_t row_begin_, rows_, tiles_;
  uint16_t* unpacked_;
  float* totals_;  // [rows][kVecs][kLanes]
};

// a's rows [row_begin, row_end) by the panels of w.
template <class Totals, int kBits>
inline void words_block(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                        int64_t row_end, int64_t panel, int64_t panel_end, void* memory) {
  constexpr int kFewRows = kRegisters == 32 ? 8 : 5, kWideRows = kRegisters == 32 ? 4 : 2;
  const int64_t rows = row_end - row_begin;
  if (rows <= kWideRows)
    for (; panel + kWideVecs / kVecsPerPanel <= panel_end; panel += kWideVecs / kVecsPerPanel)
      packed_tile<Totals, kBits, kWideRows, kWideVecs>(a, w, rows, row_begin, panel);
  if (rows <= kFewRows)
    for (; panel < panel_end; ++panel)
      packed_tile<Totals, kBits, kFewRows, kVecsPerPanel>(a, w, rows, row_begin, panel);
  if (panel == panel_end) return;
  panel = WordBlock<Totals, kBits, 2>(a, w, row_begin, row_end, memory).run(panel, panel_end);
  if constexpr (kVecsPerPanel == 1)
    WordBlock<Totals, kBits, 1>(a, w, row_begin, row_end, memory).run(panel, panel_end);
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
