// Linear with AMX tiles by weights of fewer bits than bf16. Rows of bf16 multiply the integers
// (less their zero points) or f8e4m3 numbers themselves, which bf16 has exactly: the sum over a
// group is scaled and added to the element's. Rows of i8 multiply bytes, whose sums are exact.
// Numbers of small groups, or with minima, are scaled and rounded to bf16 in front of the product.
// A tile is made where it is used, for up to 32 rows, or a few steps at a time for all of them; an
// element's sum is the same chain of tile products in every form.
#include "kernels/cpu/simd_amx_numbers.h"

namespace nereid::kernels::cpu {
namespace amx {
namespace {

// As the intrinsics, which take nothing but literals for tiles and tell GCC 12 nothing of the
// memory that is read.
template <int kTile>
[[gnu::always_inline]] inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
template <int kTile>
[[gnu::always_inline]] inline void load_tile(const void* from) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
               :
               : "r"(from), "r"(kLineBytes), "i"(kTile)
               : "memory");
}
template <int kTile>
[[gnu::always_inline]] inline void keep_tile(void* to) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(to), "r"(kLineBytes), "i"(kTile)
               : "memory");
}
template <bool kBytes, int kSum, int kX, int kW>
[[gnu::always_inline]] inline void add_product() {
  if constexpr (kBytes)
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
  else
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

// What one step multiplies: up to 16 rows by up to four panels, or up to 32 by up to two.
template <int kHeights, int kPanels>
struct Step {
  static_assert(kHeights * kPanels <= 4);
  static constexpr int kBlocks = kHeights * kPanels;

  // Calls each<tile>(block of sums) for the tiles of sums; blocks lie panel by panel.
  template <class Each>
  [[gnu::always_inline]] static void for_sums(Each each) {
    each.template operator()<0>(0);
    if constexpr (kPanels > 1) each.template operator()<1>(1);
    if constexpr (kHeights > 1) each.template operator()<2>(kPanels);
    if constexpr (kHeights > 1 && kPanels > 1) each.template operator()<3>(kPanels + 1);
    if constexpr (kPanels > 2) each.template operator()<2>(2);
    if constexpr (kPanels > 3) each.template operator()<3>(3);
  }
  // The tiles of x are at `x` and, of the high rows, `x_high`, those of the weights behind each
  // other.
  template <bool kBytes>
  [[gnu::always_inline]] static void run(const uint8_t* x, const uint8_t* x_high,
                                         const uint8_t* w) {
    if constexpr (kHeights == 1) {
      load_tile<4>(x);
      load_tile<5>(w);
      add_product<kBytes, 0, 4, 5>();
      if constexpr (kPanels > 1) load_tile<6>(w + kTileBytes), add_product<kBytes, 1, 4, 6>();
      if constexpr (kPanels > 2) load_tile<7>(w + 2 * kTileBytes), add_product<kBytes, 2, 4, 7>();
      if constexpr (kPanels > 3) load_tile<5>(w + 3 * kTileBytes), add_product<kBytes, 3, 4, 5>();
    } else {
      load_tile<6>(w);
      load_tile<4>(x);
      add_product<kBytes, 0, 4, 6>();
      load_tile<5>(x_high);
      add_product<kBytes, 2, 5, 6>();
      if constexpr (kPanels > 1) {
        load_tile<7>(w + kTileBytes);
        add_product<kBytes, 1, 4, 7>();
        add_product<kBytes, 3, 5, 7>();
      }
    }
  }
};

enum class Scales { kBySums, kInNumbers, kByRows };

// Products with weights of one format. Where the scales are applied: to each group's sum, to the
// weights when they are unpacked, or to a row's whole sum (see LinearRaw::scales).
template <class Numbers, Scales kScales>
class Product {
 public:
  Product(const LinearRaw& a, const IntegerPanelsRaw& w, uint16_t* memory)
      : a_(a), w_(w), memory_(reinterpret_cast<uint8_t*>(memory)) {}

  void run(int64_t row_begin, int64_t row_end, int64_t panel, int64_t panel_end) const {
    const int64_t rows = row_end - row_begin;
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
      for (; panel < panel_end; panel += kSide)
        more_rows(row_begin, rows, panel, min_of(kSide, panel_end - panel));
    }
    _tile_release();
  }

 private:
  static constexpr bool kBytes = Numbers::kColumns == 64;
  static constexpr int64_t kSide = 4;  // panels that are made side by side
  static constexpr int64_t kPieceSteps =
      4;  // steps of a group that are made before they are multiplied

  // Groups that have a sum of their own.
  int64_t num_groups() const { return kScales == Scales::kBySums ? w_.groups : 1; }
  // The first step of a group.
  int64_t first_step(int64_t group) const {
    const int64_t columns = min_of(a_.k, num_groups() > 1 ? group * w_.group : group * a_.k);
    return (columns + Numbers::kColumns - 1) / Numbers::kColumns;
  }
  const uint8_t* x_at(int64_t row) const {
    return static_cast<const uint8_t*>(a_.x) + row / kTileRows * a_.x_stride * (kBytes ? 1 : 2);
  }

  [[gnu::always_inline]] static F sums_at(const float* cells) {
    return kBytes ? to_floats(load_words(cells)) : load(cells);
  }
  // Adds the sums of a group to the totals, or makes them these.
  void add_sums(const Block& sums, int64_t rows, int64_t panel, int64_t group,
                Block& totals) const {
    F scale = set1(1);
    if constexpr (kScales == Scales::kBySums)
      scale = load(w_.scales + (panel * w_.groups + group) * 16);
    for (int64_t r = 0; r < rows; ++r) {
      F total = sums_at(sums.cells[r]);
      if constexpr (kScales == Scales::kBySums)
        total = group == 0 ? mul(scale, total) : fma(scale, total, load(totals.cells[r]));
      store(totals.cells[r], total);
    }
  }

  // Up to 16 * kHeights rows; the tiles have so many.
  template <int kHeights, int kPanels>
  void few_rows(int64_t row, int64_t rows, int64_t panel) const {
    using Tiles = Step<kHeights, kPanels>;
    const Numbers numbers(w_, panel);
    alignas(64) uint8_t made[2][kPanels * kTileBytes];
    Block sums[Tiles::kBlocks], totals[Tiles::kBlocks];
    const uint8_t* x = x_at(row);
    const uint8_t* x_high = kHeights > 1 ? x_at(row + kTileRows) : nullptr;
    const auto rows_of = [&](int block) {
      return block < kPanels ? min_of(rows, kTileRows) : rows - kTileRows;
    };
    for (int64_t group = 0, step = 0; group < num_groups(); ++group) {
      Tiles::for_sums([&]<int kTile>(int) [[gnu::always_inline]] { zero_tile<kTile>(); });
      for (const int64_t end = first_step(group + 1); step < end; ++step) {
        uint8_t* const w = made[step & 1];
        for (int p = 0; p < kPanels; ++p) {
          numbers.prefetch(p, step * Numbers::kColumns, kPanels);
          numbers.tile(p, step * Numbers::kColumns, group, w + p * kTileBytes);
        }
        Tiles::template run<kBytes>(x, x_high, w);
        x += kTileBytes, x_high += kHeights > 1 ? kTileBytes : 0;
      }
      Tiles::for_sums([&]<int kTile>(int block)
                          [[gnu::always_inline]] { keep_tile<kTile>(sums[block].cells); });
      for (int b = 0; b < Tiles::kBlocks; ++b)
        add_sums(sums[b], rows_of(b), panel + b % kPanels, group, totals[b]);
    }
    for (int b = 0; b < Tiles::kBlocks; ++b)
      store_block(a_, totals[b], rows_of(b), row + b / kPanels * kTileRows, panel + b % kPanels);
  }

  struct Piece {
    int64_t step, steps;
    bool begins, ends;  // the group
    int64_t group, panel, panels;
  };
  // Any number of rows, all of whose tiles have 16. What a row has, sums or totals, are kSide
  // blocks.
  void more_rows(int64_t row, int64_t rows, int64_t panel, int64_t panels) const {
    const Numbers numbers(w_, panel);
    // The sums of one group become the totals.
    const bool one = num_groups() == 1;
    const int64_t most = one ? 4 * kPieceSteps : kPieceSteps;
    const int64_t heights = (rows + kTileRows - 1) / kTileRows;
    auto* const sums = reinterpret_cast<Block*>(memory_ + most * kSide * kTileBytes);
    Block* const totals = one ? sums : sums + heights * kSide;
    for (int64_t group = 0, step = 0; group < num_groups(); ++group) {
      const int64_t begin = step, end = first_step(group + 1);
      for (; step < end; step += most) {
        const int64_t steps = min_of(most, end - step);
        for (int64_t p = 0; p < panels; ++p)
          for (int64_t s = 0; s < steps; ++s) {
            numbers.prefetch(p, (step + s) * Numbers::kColumns, kSide);
            numbers.tile(p, (step + s) * Numbers::kColumns, group,
                         memory_ + ((p / 2 * steps + s) * 2 + p % 2) * kTileBytes);
          }
        multiply({step, steps, step == begin, step + steps == end, group, panel, panels}, row,
                 heights, sums, totals);
      }
      step = end;
    }
    for (int64_t h = 0; h < heights; ++h)
      for (int64_t p = 0; p < panels; ++p)
        store_block(a_, totals[h * kSide + p], min_of(kTileRows, rows - h * kTileRows),
                    row + h * kTileRows, panel + p);
  }

  // Two blocks of rows by two panels at a time. The sums of a group are added to the totals while
  // the next ones are multiplied.
  void multiply(const Piece& piece, int64_t row, int64_t heights, Block* sums,
                Block* totals) const {
    Block kept[2][2 * kSide];
    const Block* last = nullptr;
    int64_t last_h = 0, last_p = 0;
    const auto add_last = [&] {
      for (int64_t h = 0; h < min_of(2, heights - last_h); ++h)
        for (int64_t p = 0; p < min_of(2, piece.panels - last_p); ++p)
          add_sums(last[h * kSide + p], kTileRows, piece.panel + last_p + p, piece.group,
                   totals[(last_h + h) * kSide + last_p + p]);
    };
    for (int64_t h = 0, turn = 0; h < heights; h += 2)
      for (int64_t p = 0; p < piece.panels; p += 2, turn ^= 1) {
        Block* const to = piece.begins && piece.ends ? kept[turn] : sums + h * kSide + p;
        const uint8_t* const w = memory_ + p * piece.steps * kTileBytes;
        const int64_t x_row = row + h * kTileRows;
        const bool pair = p + 1 < piece.panels;
        if (h + 1 < heights)
          pair ? add_steps<2, 2>(piece, x_row, w, to) : add_steps<2, 1>(piece, x_row, w, to);
        else
          pair ? add_steps<1, 2>(piece, x_row, w, to) : add_steps<1, 1>(piece, x_row, w, to);
        if (!piece.ends) continue;
        if (last) add_last();
        last = to, last_h = h, last_p = p;
      }
    if (last) add_last();
  }
  template <int kHeights, int kPanels>
  void add_steps(const Piece& piece, int64_t row, const uint8_t* w, Block* sums) const {
    using Tiles = Step<kHeights, kPanels>;
    const auto at = [&](int block) { return sums + block / kPanels * kSide + block % kPanels; };
    const uint8_t* x = x_at(row) + piece.step * kTileBytes;
    const uint8_t* x_high =
        kHeights > 1 ? x_at(row + kTileRows) + piece.step * kTileBytes : nullptr;
    Tiles::for_sums([&]<int kTile>(int block) [[gnu::always_inline]] {
      if (piece.begins)
        zero_tile<kTile>();
      else
        load_tile<kTile>(at(block)->cells);
    });
    for (int64_t s = 0; s < piece.steps; ++s, x += kTileBytes, w += 2 * kTileBytes) {
      Tiles::template run<kBytes>(x, x_high, w);
      x_high += kHeights > 1 ? kTileBytes : 0;
    }
    Tiles::for_sums([&]<int kTile>(int block)
                        [[gnu::always_inline]] { keep_tile<kTile>(at(block)->cells); });
  }

  const LinearRaw& a_;
  const IntegerPanelsRaw& w_;
  uint8_t* const memory_;  // see tiles_memory(): steps of four panels, sums, totals
};

// Whether the sums of groups are long enough to be scaled for themselves.
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
    return w.bits == 4 ? run.operator()<Scaled<4, false>, Scales::kInNumbers>()
                       : run.operator()<Scaled<8, false>, Scales::kInNumbers>();
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
