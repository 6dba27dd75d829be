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

struct alignas(64) Block {
  float cells[kTileRows][16];
};

// Stores the first `rows` rows of a block as rows `row` and on.
inline void store_block(const LinearRaw& a, const Block& block, int64_t rows, int64_t row,
                        int64_t panel) {
  for (int64_t r = 0; r < rows; ++r) {
    F acc[1][1] = {{load(block.cells[r])}};
    store_tile(a, row + r, panel, acc);
  }
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
