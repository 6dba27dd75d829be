// AMX tiles: configuration, loads, and where sums are stored.
#pragma once

#include "kernels/cpu/simd_linear.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

constexpr int64_t kTileRows = 16;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kTileBytes = kTileRows * kLineBytes;

// Memory format of ldtilecfg, Intel SDM volume 1, chapter 18.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// Configures the rows of this thread's eight tiles, which become zero.
inline void configure(const uint8_t (&rows)[8]) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.bytes_per_row[t] = kLineBytes;
    config.rows[t] = rows[t];
  }
  // The intrinsic declares only the first bytes of its operand as read: without this the stores
  // above may be dropped.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}
// Up to 16 rows: tiles 0-3 sums, 4 x, 5-7 weights.
inline void configure_low(int64_t rows) {
  const auto m = static_cast<uint8_t>(rows);
  configure({m, m, m, m, m, 16, 16, 16});
}
// 16 + `high` rows: tiles 0, 1 sums of low rows, 2, 3 of high rows, 4, 5 x, 6, 7 weights.
inline void configure_high(int64_t rows) {
  const auto high = static_cast<uint8_t>(rows);
  configure({16, 16, high, high, 16, high, 16, 16});
}

// Wrappers of the intrinsics, which require literal tile numbers and do not declare the memory they
// read or write to GCC 12.
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
template <int kTile>
[[gnu::always_inline]] inline void keep_tile(void* to, int64_t stride = kLineBytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kTile) : "memory");
}
template <bool kBytes, int kSum, int kX, int kW>
[[gnu::always_inline]] inline void add_product() {
  if constexpr (kBytes)
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
  else
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
}

struct alignas(64) Block {
  float cells[kTileRows][16];
};

// Where 16 columns of f32 outputs of a row and panel are; null: others, or fewer columns.
inline float* whole_out(const LinearRaw& a, int64_t row, int64_t panel) {
  if (a.out_bf16 || (panel + 1) * 16 > a.n) return nullptr;
  return static_cast<float*>(a.out) + (a.out_at ? a.out_at[row] : row * a.out_stride) + panel * 16;
}

// Stores a row's sums of a panel. Whole lines by non-temporal stores: plain ones read a line first.
[[gnu::always_inline]] inline void stream_sums(const LinearRaw& a, F sums, int64_t row,
                                               int64_t panel) {
  float* const out = whole_out(a, row, panel);
  if (!out || reinterpret_cast<uintptr_t>(out) % kLineBytes != 0) {
    F acc[1][1] = {{sums}};
    return store_tile(a, row, panel, acc);
  }
  _mm512_stream_ps(out, finished(a, sums, row, panel * 16, 16));
}

// Stores the first `rows` rows of a block as rows `row` and on.
inline void store_block(const LinearRaw& a, const Block& block, int64_t rows, int64_t row,
                        int64_t panel) {
  for (int64_t r = 0; r < rows; ++r) {
    F acc[1][1] = {{load(block.cells[r])}};
    store_tile(a, row + r, panel, acc);
  }
}

// Stores a tile of `rows` rows of sums (kBytes: integers) as rows `row` and on of a panel.
template <int kTile, bool kBytes>
[[gnu::always_inline]] inline void store_sums(const LinearRaw& a, int64_t rows, int64_t row,
                                              int64_t panel) {
  if constexpr (!kBytes)
    if (!a.scales && !a.bias && !a.out_at)
      if (float* const out = whole_out(a, row, panel))
        return keep_tile<kTile>(out, a.out_stride * static_cast<int64_t>(sizeof(float)));
  Block block;
  keep_tile<kTile>(block.cells);
  if constexpr (kBytes)
    for (int64_t r = 0; r < rows; ++r) store(block.cells[r], to_floats(load_words(block.cells[r])));
  store_block(a, block, rows, row, panel);
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
