// Linear with AMX tiles and weights narrower than bf16. bf16 rows are multiplied by the integers
// (minus zero points) or f8e4m3 numbers, exact in bf16; a group's sum is scaled and added to the
// element's. i8 rows are multiplied by bytes, with exact sums. Numbers of small groups, or with
// minima, are scaled and rounded to bf16 before the product. Tiles are made where they are used for
// up to 32 rows; for more, once for all rows while the previous panels are multiplied. An element's
// sum is the same chain of tile products in all forms; a single row gets it by the same additions,
// without any tile.
#include "kernels/cpu/simd_amx_numbers.h"

namespace nereid::kernels::cpu {
namespace amx {
namespace {

// Wrappers of the intrinsics, which require literal tile numbers and do not declare the memory they
// read to GCC 12.
template <int kTile>
[[gnu::always_inline]] inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// `kPast`: bypasses the L1 cache, for lines that would be evicted before reuse.
template <int kTile, bool kPast = false>
[[gnu::always_inline]] inline void load_tile(const void* from) {
  if constexpr (kPast)
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(kLineBytes), "i"(kTile)
                 : "memory");
  else
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(kLineBytes), "i"(kTile)
                 : "memory");
}
template <bool kBytes, int kSum, int kX, int kW>
[[gnu::always_inline]] inline void add_product() {
  if constexpr (kBytes)
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
  else
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

// Product step: up to 16 rows by up to four panels, or up to 32 by up to two.
template <int kHeights, int kPanels>
struct Step {
  static_assert(kHeights * kPanels <= 4);
  static constexpr int kBlocks = kHeights * kPanels;

  // Calls each<tile>(block of sums) for the sum tiles; blocks are panel by panel.
  template <class Each>
  [[gnu::always_inline]] static void for_sums(Each each) {
    each.template operator()<0>(0);
    if constexpr (kPanels > 1) each.template operator()<1>(1);
    if constexpr (kHeights > 1) each.template operator()<2>(kPanels);
    if constexpr (kHeights > 1 && kPanels > 1) each.template operator()<3>(kPanels + 1);
    if constexpr (kPanels > 2) each.template operator()<2>(2);
    if constexpr (kPanels > 3) each.template operator()<3>(3);
  }
  // x's tiles are at `x` and, for the high rows, `x_high`; weight tiles are consecutive.
  template <bool kBytes, bool kPast>
  [[gnu::always_inline]] static void run(const uint8_t* x, const uint8_t* x_high,
                                         const uint8_t* w) {
    if constexpr (kHeights == 1) {
      load_tile<4, kPast>(x);
      load_tile<5, kPast>(w);
      add_product<kBytes, 0, 4, 5>();
      if constexpr (kPanels > 1)
        load_tile<6, kPast>(w + kTileBytes), add_product<kBytes, 1, 4, 6>();
      if constexpr (kPanels > 2)
        load_tile<7, kPast>(w + 2 * kTileBytes), add_product<kBytes, 2, 4, 7>();
      if constexpr (kPanels > 3)
        load_tile<5, kPast>(w + 3 * kTileBytes), add_product<kBytes, 3, 4, 5>();
    } else {
      load_tile<6, kPast>(w);
      load_tile<4, kPast>(x);
      add_product<kBytes, 0, 4, 6>();
      load_tile<5, kPast>(x_high);
      add_product<kBytes, 2, 5, 6>();
      if constexpr (kPanels > 1) {
        load_tile<7, kPast>(w + kTileBytes);
        add_product<kBytes, 1, 4, 7>();
        add_product<kBytes, 3, 5, 7>();
      }
    }
  }
};

// Flushes numbers below 2^-126 to zero during its lifetime, as tile products do.
class FlushToZero {
 public:
  FlushToZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~FlushToZero() { _mm_setcsr(before_); }
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;

 private:
  const unsigned before_;
};

enum class Scales { kBySums, kInNumbers, kByRows };

// Tiles of kPanels panels, made when they are multiplied.
template <class Numbers, int kPanels>
class MadeHere {
 public:
  // Whether all sum tiles have 16 rows, and multiplied tiles are far apart.
  static constexpr bool kTall = false;

  MadeHere(const IntegerPanelsRaw& w, int64_t panel) : numbers_(w, panel) {}

  // The tiles of a step; valid until the step after the next.
  [[gnu::always_inline]] const uint8_t* tiles(int64_t step, int64_t group) {
    uint8_t* const to = made_[step & 1];
    for (int p = 0; p < kPanels; ++p) {
      numbers_.prefetch(p, step * Numbers::kColumns, kPanels);
      numbers_.template lines<kTileRows>(p, step * Numbers::kColumns, group, 0,
                                         to + p * kTileBytes);
    }
    return to;
  }
  void end_step() const {}

 private:
  const Numbers numbers_;
  alignas(64) uint8_t made_[2][kPanels * kTileBytes];
};

// Steps of a weight row: whole groups, or a part of the only group.
struct Slab {
  int64_t step, end;
  int64_t group, group_end;
};

// Makes the tiles of a slab of up to two panels, some lines at a time while others are multiplied.
template <class Numbers>
class Maker {
 public:
  // end_step() is called `calls` times, after which all tiles are made. No panels: no work.
  Maker(const IntegerPanelsRaw& w, int64_t panel, int64_t panels, const Slab& slab,
        int64_t group_steps, int64_t calls, uint8_t* to)
      : numbers_(w, panel),
        panels_(panels),
        group_steps_(group_steps),
        all_(panels * kParts * (slab.end - slab.step)),
        calls_(calls),
        to_(to),
        left_(all_),
        step_(slab.step),
        group_(slab.group) {}

  [[gnu::always_inline]] void end_step() {
    for (due_ += all_; due_ >= calls_; due_ -= calls_)
      if (left_ > 0) make();
  }
  void make_all() {
    while (left_ > 0) make();
  }

 private:
  // lines made at a time; such parts of a tile
  static constexpr int kLines = 4, kParts = kTileRows / kLines;

  [[gnu::always_inline]] void make() {
    const int64_t column = step_ * Numbers::kColumns;
    if (line_ == 0) numbers_.prefetch(p_, column, panels_);
    numbers_.template lines<kLines>(p_, column, group_, line_, to_);
    to_ += kLines * kLineBytes, --left_;
    if ((line_ += kLines) < kTileRows) return;
    line_ = 0;
    if (++p_ < panels_) return;
    p_ = 0;
    if (++step_ % group_steps_ == 0) ++group_;
  }

  const Numbers numbers_;
  const int64_t panels_, group_steps_, all_, calls_;
  uint8_t* to_;
  int64_t left_, step_, group_, due_ = 0, p_ = 0, line_ = 0;
};

// Tiles made by a Maker, from a slab's first step on, while it makes others.
template <class Numbers, int kPanels>
struct MadeBefore {
  static constexpr bool kTall = true;

  const uint8_t* made;
  int64_t first_step;
  Maker<Numbers>& next;

  [[gnu::always_inline]] const uint8_t* tiles(int64_t step, int64_t) const {
    return made + (step - first_step) * kPanels * kTileBytes;
  }
  [[gnu::always_inline]] void end_step() const { next.end_step(); }
};

// Products with weights of one format. kScales: scales are applied to each group's sum, to the
// unpacked weights, or to a row's whole sum (LinearRaw::scales).
template <class Numbers, Scales kScales>
class Product {
 public:
  Product(const LinearRaw& a, const IntegerPanelsRaw& w, uint16_t* memory)
      : a_(a), w_(w), memory_(reinterpret_cast<uint8_t*>(memory)) {}

  void run(int64_t row_begin, int64_t row_end, int64_t panel, int64_t panel_end) const {
    const FlushToZero all;  // for single rows too
    const int64_t rows = row_end - row_begin;
    if constexpr (!kBytes) {
      if (rows == 1) {
        const auto* const x = widen_row(row_begin);
        for (; panel + 4 <= panel_end; panel += 4) one_row<4>(row_begin, x, panel);
        for (; panel < panel_end; ++panel) one_row<1>(row_begin, x, panel);
        return;
      }
    }
    if (rows <= kTileRows) {
      configure_low(rows);
      for (; panel + 4 <= panel_end; panel += 4) few_rows<1, 4>(row_begin, rows, panel);
      for (; panel < panel_end; ++panel) few_rows<1, 1>(row_begin, rows, panel);
    } else if (rows <= 2 * kTileRows) {
      configure_high(rows - kTileRows);
      for (; panel + 2 <= panel_end; panel += 2) few_rows<2, 2>(row_begin, rows, panel);
      if (panel < panel_end) few_rows<2, 1>(row_begin, rows, panel);
    } else {
      configure({16, 16, 16, 16, 16, 16, 16, 16});
      more_rows(row_begin, row_end, panel, panel_end);
    }
    _tile_release();
  }

 private:
  static constexpr bool kBytes = Numbers::kColumns == 64;
  static constexpr int64_t kSide = 2;        // panels made together
  static constexpr int64_t kMostSteps = 64;  // steps of a slab, unless a group has more

  // Number of groups with separate sums.
  int64_t num_groups() const { return kScales == Scales::kBySums ? w_.groups : 1; }
  // First step of a group.
  int64_t first_step(int64_t group) const {
    const int64_t columns = min_of(a_.k, num_groups() > 1 ? group * w_.group : group * a_.k);
    return (columns + Numbers::kColumns - 1) / Numbers::kColumns;
  }
  int64_t num_steps() const { return first_step(num_groups()); }
  const uint8_t* x_at(int64_t row) const {
    return static_cast<const uint8_t*>(a_.x) + row / kTileRows * a_.x_stride * (kBytes ? 1 : 2);
  }

  [[gnu::always_inline]] static F sums_at(const float* cells) {
    return kBytes ? to_floats(load_words(cells)) : load(cells);
  }
  // totals + scaled group sums, for 16 rows of a panel and one row of x.
  [[gnu::always_inline]] F total_of(F sums, int64_t panel, int64_t group, F totals) const {
    if constexpr (kScales != Scales::kBySums) return sums;
    const F scale = load(w_.scales + (panel * w_.groups + group) * 16);
    return group == 0 ? mul(scale, sums) : fma(scale, sums, totals);
  }
  // Adds a group's sums to the totals, or initialises them.
  [[gnu::always_inline]] void add_sums(const Block& sums, int64_t rows, int64_t panel,
                                       int64_t group, Block& totals) const {
    if constexpr (kScales != Scales::kBySums) {
      for (int64_t r = 0; r < rows; ++r) store(totals.cells[r], sums_at(sums.cells[r]));
      return;
    }
    const F scale = load(w_.scales + (panel * w_.groups + group) * 16);
    if (group == 0) {
      for (int64_t r = 0; r < rows; ++r) store(totals.cells[r], mul(scale, sums_at(sums.cells[r])));
      return;
    }
#pragma GCC unroll 16
    for (int64_t r = 0; r < rows; ++r)
      store(totals.cells[r], fma(scale, sums_at(sums.cells[r]), load(totals.cells[r])));
  }

  // A slab: up to 16 * kHeights rows by kPanels panels. A group's sums are added to the totals
  // while the next group is multiplied. `kept`: state carried to the next slab, sums of the only
  // group or totals.
  template <int kHeights, int kPanels, class Weights>
  [[gnu::always_inline]] void multiply(int64_t row, int64_t rows, int64_t panel, const Slab& slab,
                                       Weights weights, Block* kept) const {
    using Tiles = Step<kHeights, kPanels>;
    Block sums[2][Tiles::kBlocks];
    const int64_t offset = slab.step * kTileBytes;
    const uint8_t* x = x_at(row) + offset;
    const uint8_t* x_high = kHeights > 1 ? x_at(row + kTileRows) + offset : nullptr;
    const auto rows_of = [&](int block) {
      return block < kPanels ? min_of(rows, kTileRows) : rows - kTileRows;
    };
    const auto add = [&](int block, int64_t group) [[gnu::always_inline]] {
      add_sums(sums[group & 1][block], Weights::kTall ? kTileRows : rows_of(block),
               panel + block % kPanels, group, kept[block]);
    };
    const bool goes_on = num_groups() == 1 && slab.step > 0;
    for (int64_t group = slab.group, step = slab.step; group < slab.group_end; ++group) {
      Tiles::for_sums([&]<int kTile>(int block) [[gnu::always_inline]] {
        goes_on ? load_tile<kTile>(kept[block].cells) : zero_tile<kTile>();
      });
      int added = group > slab.group ? 0 : Tiles::kBlocks;  // of the previous group
      for (const int64_t end = min_of(first_step(group + 1), slab.end); step < end; ++step) {
        Tiles::template run<kBytes, Weights::kTall>(x, x_high, weights.tiles(step, group));
        x += kTileBytes, x_high += kHeights > 1 ? kTileBytes : 0;
        weights.end_step();
        if (added < Tiles::kBlocks) add(added++, group - 1);
      }
      while (added < Tiles::kBlocks) add(added++, group - 1);
      Tiles::for_sums([&]<int kTile>(int block) [[gnu::always_inline]] {
        keep_tile<kTile>(sums[group & 1][block].cells);
      });
    }
    const bool ends = slab.end == num_steps();
    for (int b = 0; b < Tiles::kBlocks; ++b) {
      if (num_groups() == 1 && !ends)
        kept[b] = sums[0][b];
      else
        add(b, slab.group_end - 1);
      if (ends)
        store_block(a_, kept[b], rows_of(b), row + b / kPanels * kTileRows, panel + b % kPanels);
    }
  }

  // The row as f32: per step its even columns, then its odd ones.
  const float* widen_row(int64_t row) const {
    auto* const out = reinterpret_cast<float*>(memory_);
    const uint8_t* x = x_at(row);
    for (int64_t step = 0; step < num_steps(); ++step, x += kTileBytes) {
      store(out + 32 * step, pair_low(x));
      store(out + 32 * step + 16, pair_high(x));
    }
    return out;
  }

  // A single row without tiles, which would take longer to make than to use. A tile product sums
  // even columns and odd columns separately from 0, rounding each time, then both, then the tile's
  // old value: the same order here.
  template <int kPanels>
  void one_row(int64_t row, const float* x, int64_t panel) const {
    const Numbers numbers(w_, panel);
    F totals[kPanels];
    for (int64_t group = 0, step = 0; group < num_groups(); ++group) {
      typename Numbers::Of of[kPanels];
      F sums[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) of[p] = numbers.of(p, group), sums[p] = set1(0);
      for (const int64_t end = first_step(group + 1); step < end; ++step, x += Numbers::kColumns) {
        F even[kPanels], odd[kPanels];
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          even[p] = odd[p] = set1(0);
          numbers.prefetch(p, step * Numbers::kColumns, kPanels);
        }
        constexpr int kSame = kScales == Scales::kInNumbers ? 16 : 32;  // columns of one group
#pragma GCC unroll 2
        for (int c = 0; c < Numbers::kColumns; c += kSame) {
          if constexpr (kScales == Scales::kInNumbers) {
            const int64_t of_numbers = numbers.group_of(step * Numbers::kColumns + c);
#pragma GCC unroll 4
            for (int p = 0; p < kPanels; ++p) of[p] = numbers.of(p, of_numbers);
          }
#pragma GCC unroll 8
          for (int d = c; d < c + kSame; d += Numbers::kFloats)
#pragma GCC unroll 4
            for (int p = 0; p < kPanels; ++p)
              numbers.floats(p, step * Numbers::kColumns + d, of[p],
                             [&](int i, F w) [[gnu::always_inline]] {
                               F& sum = i % 2 ? odd[p] : even[p];
                               sum = fma(w, set1(x[i % 2 * 16 + (d + i) / 2]), sum);
                             });
        }
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) sums[p] = add(sums[p], add(even[p], odd[p]));
      }
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) totals[p] = total_of(sums[p], panel + p, group, totals[p]);
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      F out[1][1] = {{totals[p]}};
      store_tile(a_, row, panel + p, out);
    }
  }

  template <int kHeights, int kPanels>
  void few_rows(int64_t row, int64_t rows, int64_t panel) const {
    Block totals[kHeights * kPanels];
    multiply<kHeights, kPanels, MadeHere<Numbers, kPanels>>(
        row, rows, panel, {0, num_steps(), 0, num_groups()}, {w_, panel}, totals);
  }

  // Steps made together: their tiles fit in the L2 cache next to x.
  int64_t slab_steps() const {
    const int64_t group_steps = first_step(1);
    if (num_groups() == 1) return min_of(group_steps, kMostSteps);
    return group_steps > kMostSteps ? group_steps : kMostSteps / group_steps * group_steps;
  }
  Slab slab_of(int64_t index) const {
    const int64_t size = slab_steps(), end = min_of((index + 1) * size, num_steps());
    if (num_groups() == 1) return {index * size, end, 0, 1};
    const int64_t groups = size / first_step(1);
    return {index * size, end, index * groups, min_of((index + 1) * groups, num_groups())};
  }

  // Any number of rows, in tiles of 16.
  void more_rows(int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) const {
    const int64_t slabs = (num_steps() + slab_steps() - 1) / slab_steps();
    const int64_t turns = (row_end - row_begin + 2 * kTileRows - 1) / (2 * kTileRows);
    const int64_t all = (panel_end - panel_begin + kSide - 1) / kSide * slabs;
    const int64_t bytes = min_of(slab_steps(), num_steps()) * kSide * kTileBytes;
    auto* const kept = reinterpret_cast<Block*>(memory_ + 2 * bytes);
    const auto maker_of = [&](int64_t i, int64_t calls) {
      const int64_t panel = panel_begin + i / slabs * kSide;
      return Maker<Numbers>(w_, panel, i < all ? min_of(kSide, panel_end - panel) : 0,
                            slab_of(i % slabs), first_step(1), calls, memory_ + (i & 1) * bytes);
    };
    maker_of(0, 1).make_all();
    for (int64_t i = 0; i < all; ++i) {
      const int64_t panel = panel_begin + i / slabs * kSide;
      const Slab slab = slab_of(i % slabs);
      Maker<Numbers> ahead = maker_of(i + 1, turns * (slab.end - slab.step));
      const uint8_t* const made = memory_ + (i & 1) * bytes;
      Block* next = kept;
      for (int64_t row = row_begin; row < row_end; row += 2 * kTileRows, next += 2 * kSide) {
        const int64_t rows = min_of(row_end - row, 2 * kTileRows);
        if (panel + 1 < panel_end)
          tall_rows<2>(row, rows, panel, slab, {made, slab.step, ahead}, next);
        else
          tall_rows<1>(row, rows, panel, slab, {made, slab.step, ahead}, next);
      }
      ahead.make_all();
    }
  }
  template <int kPanels>
  void tall_rows(int64_t row, int64_t rows, int64_t panel, const Slab& slab,
                 const MadeBefore<Numbers, kPanels>& weights, Block* kept) const {
    if (rows > kTileRows)
      multiply<2, kPanels>(row, rows, panel, slab, weights, kept);
    else
      multiply<1, kPanels>(row, rows, panel, slab, weights, kept);
  }

  const LinearRaw& a_;
  const IntegerPanelsRaw& w_;
  uint8_t* const memory_;  // tiles_memory(): two slabs of two panels, and the rows' kept state
};

// Whether groups are long enough for scaling their sums.
bool scales_group_sums(const IntegerPanelsRaw& w) {
  constexpr int64_t kLeastColumns = 64;
  return !w.minima && (w.groups == 1 || (w.group >= kLeastColumns && w.group % 32 == 0));
}

}  // namespace
}  // namespace amx

void linear_narrow_amx(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                       int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  using namespace amx;
  const auto run = [&]<class Numbers, Scales kScales>() {
    Product<Numbers, kScales>(a, w, memory).run(row_begin, row_end, panel_begin, panel_end);
  };
  if (w.by_rows) return run.operator()<Floats8, Scales::kByRows>();
  if (!scales_group_sums(w)) {
    if (w.float8) return run.operator()<Scaled<8, true>, Scales::kInNumbers>();
    if (w.bits == 8) return run.operator()<Scaled<8, false>, Scales::kInNumbers>();
    return w.zeros ? run.operator()<Scaled<4, false, true>, Scales::kInNumbers>()
                   : run.operator()<Scaled<4, false>, Scales::kInNumbers>();
  }
  if (w.float8) return run.operator()<Floats8, Scales::kBySums>();
  if (w.bits == 8) return run.operator()<Eights, Scales::kBySums>();
  w.zeros ? run.operator()<ZeroedFours, Scales::kBySums>()
          : run.operator()<MiddleFours, Scales::kBySums>();
}

void linear_bytes_amx(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                      int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  using namespace amx;
  Product<Bytes, Scales::kByRows>(a, w, memory).run(row_begin, row_end, panel_begin, panel_end);
}

}  // namespace nereid::kernels::cpu
