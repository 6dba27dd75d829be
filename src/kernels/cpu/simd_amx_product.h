// Linear with AMX tiles, for weights of all formats. Up to 32 rows: tiles are multiplied where they
// are read or made. More rows: tiles of two panels and kSlabSteps steps stay in the L1 cache for
// all rows, whose x and sums are in the L2 cache. An element's sum is the same chain of tile
// products in all forms; a row alone gets it from narrow weights by the same additions, and no tile
// of weights is made for it.
#pragma once

#include <type_traits>

#include "kernels/cpu/simd_amx_numbers.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

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
  // x's tiles are at `x` and, for the high rows, `x_high`; the panels' are `distance` apart. kPast:
  // x's bypass the L1 cache.
  template <bool kBytes, bool kPast>
  [[gnu::always_inline]] static void run(const uint8_t* x, const uint8_t* x_high, const uint8_t* w,
                                         int64_t distance) {
    if constexpr (kHeights == 1) {
      load_tile<4, kPast>(x);
      load_tile<5>(w);
      add_product<kBytes, 0, 4, 5>();
      if constexpr (kPanels > 1) load_tile<6>(w + distance), add_product<kBytes, 1, 4, 6>();
      if constexpr (kPanels > 2) load_tile<7>(w + 2 * distance), add_product<kBytes, 2, 4, 7>();
      if constexpr (kPanels > 3) load_tile<5>(w + 3 * distance), add_product<kBytes, 3, 4, 5>();
    } else {
      load_tile<6>(w);
      load_tile<4, kPast>(x);
      add_product<kBytes, 0, 4, 6>();
      if constexpr (kPanels > 1) load_tile<7>(w + distance), add_product<kBytes, 1, 4, 7>();
      load_tile<5, kPast>(x_high);
      add_product<kBytes, 2, 5, 6>();
      if constexpr (kPanels > 1) add_product<kBytes, 3, 5, 7>();
    }
  }
};

// Where scales apply: to each group's sum, to the numbers before the product, or to whole sums
// (kByRows: LinearRaw's scales).
enum class Scales { kBySums, kInNumbers, kByRows };

// Tiles of kPanels panels, made when they are multiplied.
template <class Numbers, int kPanels>
class MadeHere {
 public:
  // Whether all sum tiles have 16 rows, and x comes from the L2 cache.
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
  int64_t distance() const { return kTileBytes; }  // of panels

 private:
  const Numbers numbers_;
  alignas(64) uint8_t made_[2][kPanels * kTileBytes];
};

// Tiles of kPanels panels, multiplied as they are in memory.
template <class Numbers, int kPanels>
class InPlace {
 public:
  static constexpr bool kTall = false;

  InPlace(const IntegerPanelsRaw& w, int64_t panel) : numbers_(w, panel) {}

  [[gnu::always_inline]] const uint8_t* tiles(int64_t step, int64_t) const {
    for (int p = 0; p < kPanels; ++p) numbers_.prefetch(p, step * Numbers::kColumns, kPanels);
    return numbers_.at(0, step * Numbers::kColumns);
  }
  int64_t distance() const { return numbers_.w.panel_bytes; }

 private:
  const Numbers numbers_;
};

// Steps of a weight row: whole groups, or a part of the only group.
struct Slab {
  int64_t step, end;
  int64_t group, group_end;
};

// Lines of memory prefetched in equal parts.
class Ahead {
 public:
  // `count` lines from `at` on and as many `distance` bytes behind, in `parts` parts.
  Ahead(const void* at, int64_t distance, int64_t count, int64_t parts)
      : at_(static_cast<const char*>(at)),
        end_(at_ + count * kLineBytes),
        distance_(distance),
        part_((count + parts - 1) / parts * kLineBytes) {}

  // Always inline: see prefetch_panel().
  [[gnu::always_inline]] void next_part() {
    const char* const stop = at_ + part_ < end_ ? at_ + part_ : end_;
    for (; at_ < stop; at_ += kLineBytes) {
      _mm_prefetch(at_, _MM_HINT_T1);
      _mm_prefetch(at_ + distance_, _MM_HINT_T1);
    }
  }

 private:
  const char* at_;
  const char* end_;
  int64_t distance_, part_;
};

// A slab's tiles.
struct Ready {
  static constexpr bool kTall = true;

  const uint8_t* at;
  int64_t panel_bytes;

  [[gnu::always_inline]] const uint8_t* tiles(int64_t, int64_t) {
    const uint8_t* const tiles = at;
    at += kTileBytes;
    return tiles;
  }
  int64_t distance() const { return panel_bytes; }
};

// Products with weights of one format.
template <class Numbers, Scales kScales>
class Product {
 public:
  Product(const LinearRaw& a, const IntegerPanelsRaw& w, uint16_t* memory)
      : a_(a), w_(w), memory_(reinterpret_cast<uint8_t*>(memory)) {}

  void run(int64_t row_begin, int64_t row_end, int64_t panel, int64_t panel_end) const {
    const int64_t rows = row_end - row_begin;
    if constexpr (!kBytes && !Numbers::kInPlace) {
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
  static constexpr bool kGroups = kScales == Scales::kBySums;

  // Number of groups with separate sums.
  int64_t num_groups() const { return kGroups ? w_.groups : 1; }
  // First step of a group.
  int64_t first_step(int64_t group) const {
    const int64_t columns = min_of(a_.k, kGroups ? group * w_.group : group * a_.k);
    return (columns + Numbers::kColumns - 1) / Numbers::kColumns;
  }
  int64_t num_steps() const { return first_step(num_groups()); }
  const uint8_t* x_at(int64_t row) const {
    return static_cast<const uint8_t*>(a_.x) + row / kTileRows * a_.x_stride * (kBytes ? 1 : 2);
  }

  // totals + scaled group sums, for 16 rows of a panel and one row of x.
  [[gnu::always_inline]] F total_of(F sums, int64_t panel, int64_t group, F totals) const {
    if constexpr (!kGroups) return sums;
    const F scale = load(w_.scales + (panel * w_.groups + group) * 16);
    return group == 0 ? mul(scale, sums) : fma(scale, sums, totals);
  }
  // Adds a group's sums to the totals, or initialises them.
  [[gnu::always_inline]] void add_sums(const Block& sums, int64_t rows, int64_t panel,
                                       int64_t group, Block& totals) const {
    const F scale = load(w_.scales + (panel * w_.groups + group) * 16);
    if (group == 0) {
      for (int64_t r = 0; r < rows; ++r) store(totals.cells[r], mul(scale, load(sums.cells[r])));
      return;
    }
#pragma GCC unroll 16
    for (int64_t r = 0; r < rows; ++r)
      store(totals.cells[r], fma(scale, load(sums.cells[r]), load(totals.cells[r])));
  }

  // A slab: up to 16 * kHeights rows by kPanels panels. `kept`: state carried to the next slab, the
  // sums or, with groups, their totals. `next`: weights multiplied next.
  template <int kHeights, int kPanels, class Weights>
  [[gnu::always_inline]] void multiply(int64_t row, int64_t rows, int64_t panel, const Slab& slab,
                                       Weights weights, Block* kept, Ahead& next) const {
    using Tiles = Step<kHeights, kPanels>;
    const int64_t offset = slab.step * kTileBytes, distance = weights.distance();
    const uint8_t* x = x_at(row) + offset;
    const uint8_t* x_high = kHeights > 1 ? x_at(row + kTileRows) + offset : nullptr;
    Ahead ahead = next;  // in registers
    const auto rows_of = [&](int block) {
      return block < kPanels ? min_of(rows, kTileRows) : rows - kTileRows;
    };
    const auto multiply_step = [&](int64_t step, int64_t group) [[gnu::always_inline]] {
      Tiles::template run<kBytes, Weights::kTall>(x, x_high, weights.tiles(step, group), distance);
      x += kTileBytes, x_high += kHeights > 1 ? kTileBytes : 0;
      if constexpr (Weights::kTall) ahead.next_part();
    };
    if constexpr (!kGroups) {
      Tiles::for_sums([&]<int kTile>(int block) [[gnu::always_inline]] {
        slab.step > 0 ? load_tile<kTile>(kept[block].cells) : zero_tile<kTile>();
      });
      for (int64_t step = slab.step; step < slab.end; ++step) multiply_step(step, 0);
      next = ahead;
      Tiles::for_sums([&]<int kTile>(int block) [[gnu::always_inline]] {
        if constexpr (Weights::kTall)
          keep_tile<kTile>(kept[block].cells);
        else
          store_sums<kTile, kBytes>(a_, rows_of(block), row + block / kPanels * kTileRows,
                                    panel + block % kPanels);
      });
      return;
    }
    // A group's sums are added to the totals while the next group is multiplied.
    Block sums[2][Tiles::kBlocks];
    const auto add = [&](int block, int64_t group) [[gnu::always_inline]] {
      add_sums(sums[group & 1][block], Weights::kTall ? kTileRows : rows_of(block),
               panel + block % kPanels, group, kept[block]);
    };
    for (int64_t group = slab.group, step = slab.step; group < slab.group_end; ++group) {
      Tiles::for_sums([&]<int kTile>(int) [[gnu::always_inline]] { zero_tile<kTile>(); });
      int added = group > slab.group ? 0 : Tiles::kBlocks;  // of the previous group
      for (const int64_t end = first_step(group + 1); step < end; ++step) {
        multiply_step(step, group);
        if (added < Tiles::kBlocks) add(added++, group - 1);
      }
      while (added < Tiles::kBlocks) add(added++, group - 1);
      Tiles::for_sums([&]<int kTile>(int block) [[gnu::always_inline]] {
        keep_tile<kTile>(sums[group & 1][block].cells);
      });
    }
    next = ahead;
    for (int b = 0; b < Tiles::kBlocks; ++b) {
      add(b, slab.group_end - 1);
      if constexpr (!Weights::kTall)
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
    using Weights = std::conditional_t<Numbers::kInPlace, InPlace<Numbers, kPanels>,
                                       MadeHere<Numbers, kPanels>>;
    Block totals[kHeights * kPanels];
    Ahead none(nullptr, 0, 0, 1);
    multiply<kHeights, kPanels, Weights>(row, rows, panel, {0, num_steps(), 0, num_groups()},
                                         {w_, panel}, totals, none);
  }

  // In the L2 cache together: x of kColumnSteps steps and sums of kPanelsTogether panels.
  static constexpr int64_t kColumnSteps = 64, kPanelsTogether = 4;

  // Steps of a slab: kSlabSteps, unless a group has more.
  int64_t slab_steps() const {
    const int64_t group_steps = first_step(1);
    if (!kGroups) return min_of(group_steps, kSlabSteps);
    return group_steps > kSlabSteps ? group_steps : kSlabSteps / group_steps * group_steps;
  }
  Slab slab_of(int64_t index) const {
    const int64_t size = slab_steps(), end = min_of((index + 1) * size, num_steps());
    if (!kGroups) return {index * size, end, 0, 1};
    const int64_t groups = size / first_step(1);
    return {index * size, end, index * groups, min_of((index + 1) * groups, num_groups())};
  }

  // A slab of one or two panels; none: the end.
  struct Place {
    int64_t panel, panels;
    Slab slab;
  };

  // Any number of rows, in tiles of 16.
  void more_rows(int64_t row_begin, int64_t row_end, int64_t panel_begin, int64_t panel_end) const {
    const int64_t slabs = (num_steps() + slab_steps() - 1) / slab_steps();
    const int64_t slabs_of_columns = kColumnSteps / min_of(slab_steps(), kColumnSteps);
    const int64_t turns = (row_end - row_begin + 2 * kTileRows - 1) / (2 * kTileRows);
    auto* const kept = reinterpret_cast<Block*>(memory_ + 2 * slab_steps() * kTileBytes);
    Place place = {};
    const auto multiply_next = [&](const Place& next) {
      if (place.panels > 0)
        multiply_place(row_begin, row_end, place, next, turns,
                       kept + (place.panel - panel_begin) / 2 * turns * 4);
      place = next;
    };
    for (int64_t columns = 0; columns < slabs; columns += slabs_of_columns)
      for (int64_t first = panel_begin; first < panel_end; first += kPanelsTogether)
        for (int64_t i = columns; i < min_of(columns + slabs_of_columns, slabs); ++i)
          for (int64_t panel = first; panel < min_of(first + kPanelsTogether, panel_end);
               panel += 2)
            multiply_next({panel, min_of(2, panel_end - panel), slab_of(i)});
    multiply_next({});
    for (int64_t row = row_begin; row < row_end; ++row)
      store_row(kept, turns, row - row_begin, row, panel_begin, panel_end);
    _mm_sfence();  // other threads load what stream_sums() stored
  }
  // Stores row `index` of the panels' kept state, which is pair by pair of tiles of 16 rows.
  [[gnu::always_inline]] void store_row(const Block* kept, int64_t turns, int64_t index,
                                        int64_t row, int64_t panel, int64_t panel_end) const {
    kept += index / (2 * kTileRows) * 4;
    const int64_t high = index / kTileRows % 2, line = index % kTileRows;
    for (; panel < panel_end; panel += 2, kept += turns * 4) {
      const int64_t panels = min_of(2, panel_end - panel);
      for (int64_t p = 0; p < panels; ++p) {
        const float* const cells = kept[high * panels + p].cells[line];
        stream_sums(a_, kBytes ? to_floats(load_words(cells)) : load(cells), row, panel + p);
      }
    }
  }
  void multiply_place(int64_t row_begin, int64_t row_end, const Place& place, const Place& next,
                      int64_t turns, Block* kept) const {
    const Slab& slab = place.slab;
    const Numbers numbers(w_, place.panel);
    const uint8_t* tiles = memory_;
    int64_t panel_bytes = slab_steps() * kTileBytes;
    if constexpr (Numbers::kInPlace) {
      tiles = numbers.at(0, slab.step * Numbers::kColumns), panel_bytes = w_.panel_bytes;
    } else {
      const int64_t group_steps = first_step(1);
      for (int64_t p = 0; p < place.panels; ++p)
        for (int64_t step = slab.step; step < slab.end; ++step)
          numbers.template lines<kTileRows>(
              p, step * Numbers::kColumns, kGroups ? step / group_steps : 0, 0,
              memory_ + p * panel_bytes + (step - slab.step) * kTileBytes);
    }
    const Slab& then = next.slab;
    Ahead ahead(Numbers(w_, next.panel).at(0, then.step * Numbers::kColumns), w_.panel_bytes,
                (then.end - then.step) * Numbers::kStepBytes / kLineBytes,
                turns * (slab.end - slab.step));
    const Ready ready{tiles, panel_bytes};
    for (int64_t row = row_begin; row < row_end; row += 2 * kTileRows, kept += 4) {
      const int64_t rows = min_of(row_end - row, 2 * kTileRows);
      if (rows > kTileRows)
        place.panels > 1 ? multiply<2, 2>(row, rows, place.panel, slab, ready, kept, ahead)
                         : multiply<2, 1>(row, rows, place.panel, slab, ready, kept, ahead);
      else
        place.panels > 1 ? multiply<1, 2>(row, rows, place.panel, slab, ready, kept, ahead)
                         : multiply<1, 1>(row, rows, place.panel, slab, ready, kept, ahead);
    }
  }

  const LinearRaw& a_;
  const IntegerPanelsRaw& w_;
  uint8_t* const memory_;  // tiles_memory(): a slab's tiles of two panels, and the rows' kept state
};

}  // namespace nereid::kernels::cpu::NEREID_SIMD
