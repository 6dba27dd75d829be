// Linear with AMX bf16 tiles. One path for every number of rows: a tile has as many rows as there
// are, so a row's sum is the same chain of tile products alone or among others.
#include "kernels/cpu/simd_linear.h"

namespace nereid::kernels::cpu {
namespace amx {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kStepK = 32;                  // bf16 columns of an A tile
constexpr int64_t kTileElements = 16 * kStepK;  // of a B tile
constexpr int64_t kLineBytes = 64;

// Memory format of ldtilecfg, Intel SDM volume 1, chapter 18.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// Gives the tiles of this thread their rows; `rows[t]` for the eight tiles. Contents become zero.
void configure(const uint8_t (&rows)[8]) {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.bytes_per_row[t] = kLineBytes;
    config.rows[t] = rows[t];
  }
  // The intrinsic tells the compiler about the first bytes of its operand only: without this the
  // stores above may be dropped.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

struct alignas(64) Block {
  float cells[kTileRows][16];
};

void store_block(const LinearRaw& a, const Block& block, int64_t rows, int64_t row, int64_t panel) {
  for (int64_t r = 0; r < rows; ++r) {
    F acc[1][1] = {{load(block.cells[r])}};
    store_tile(a, row + r, panel, acc);
  }
}

// The first tile of the block of rows that `row`, a multiple of 16, starts.
const uint16_t* x_at(const LinearRaw& a, int64_t row) {
  return static_cast<const uint16_t*>(a.x) + row / kTileRows * a.x_stride;
}

void prefetch_tile(const uint16_t* p) {
  constexpr int64_t kAhead = 4 * kTileElements;
  for (int64_t line = 0; line < kTileElements; line += kLineBytes / 2)
    _mm_prefetch(reinterpret_cast<const char*>(p + kAhead + line), _MM_HINT_T0);
}

// Up to 16 rows by four panels. Tiles: 0-3 sums, 4 x, 5-7 weights.
void rows16_panels4(const LinearRaw& a, int64_t rows, int64_t row, int64_t panel) {
  const uint16_t* x = x_at(a, row);
  const uint16_t* w = a.weight + panel * a.panel_stride;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < a.k; k += kStepK, x += kTileElements, w += kTileElements) {
    for (int p = 0; p < 4; ++p) prefetch_tile(w + p * a.panel_stride);
    _tile_loadd(4, x, kLineBytes);
    _tile_loadd(5, w, kLineBytes);
    _tile_dpbf16ps(0, 4, 5);
    _tile_loadd(6, w + a.panel_stride, kLineBytes);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(7, w + 2 * a.panel_stride, kLineBytes);
    _tile_dpbf16ps(2, 4, 7);
    _tile_loadd(5, w + 3 * a.panel_stride, kLineBytes);
    _tile_dpbf16ps(3, 4, 5);
  }
  Block block[4];
  _tile_stored(0, block[0].cells, kLineBytes);
  _tile_stored(1, block[1].cells, kLineBytes);
  _tile_stored(2, block[2].cells, kLineBytes);
  _tile_stored(3, block[3].cells, kLineBytes);
  for (int p = 0; p < 4; ++p) store_block(a, block[p], rows, row, panel + p);
}

// Up to 16 rows by one panel, with the tiles of rows16_panels4.
void rows16_panel(const LinearRaw& a, int64_t rows, int64_t row, int64_t panel) {
  const uint16_t* x = x_at(a, row);
  const uint16_t* w = a.weight + panel * a.panel_stride;
  _tile_zero(0);
  for (int64_t k = 0; k < a.k; k += kStepK, x += kTileElements, w += kTileElements) {
    prefetch_tile(w);
    _tile_loadd(4, x, kLineBytes);
    _tile_loadd(5, w, kLineBytes);
    _tile_dpbf16ps(0, 4, 5);
  }
  Block block;
  _tile_stored(0, block.cells, kLineBytes);
  store_block(a, block, rows, row, panel);
}

// Fetches the weights of the next panels into the level-2 cache while these are multiplied.
class Ahead {
 public:
  Ahead(const uint16_t* begin, int64_t elements, int64_t steps)
      : next_(reinterpret_cast<const char*>(begin)),
        end_(next_ + elements * 2),
        bytes_per_step_((elements * 2 / kLineBytes + steps - 1) / steps * kLineBytes) {}
  void step() {
    const char* const stop = next_ + bytes_per_step_ < end_ ? next_ + bytes_per_step_ : end_;
    for (; next_ < stop; next_ += kLineBytes) _mm_prefetch(next_, _MM_HINT_T1);
  }

 private:
  const char* next_;
  const char* end_;
  int64_t bytes_per_step_;
};

// 16 + `rows_high` rows by two panels. Tiles: 0, 1 sums of the low rows, 2, 3 of the high ones, 4,
// 5 x, 6, 7 weights.
void rows32_panels2(const LinearRaw& a, int64_t rows_high, int64_t row, int64_t panel,
                    Ahead& ahead) {
  const uint16_t* x = x_at(a, row);
  const uint16_t* x_high = x_at(a, row + kTileRows);
  const uint16_t* w = a.weight + panel * a.panel_stride;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < a.k; k += kStepK, x += kTileElements, w += kTileElements) {
    ahead.step();
    _tile_loadd(6, w, kLineBytes);
    _tile_loadd(4, x, kLineBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, w + a.panel_stride, kLineBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, x_high, kLineBytes);
    x_high += kTileElements;
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  Block block[4];
  _tile_stored(0, block[0].cells, kLineBytes);
  _tile_stored(1, block[1].cells, kLineBytes);
  _tile_stored(2, block[2].cells, kLineBytes);
  _tile_stored(3, block[3].cells, kLineBytes);
  for (int p = 0; p < 2; ++p) {
    store_block(a, block[p], kTileRows, row, panel + p);
    store_block(a, block[2 + p], rows_high, row + kTileRows, panel + p);
  }
}

// Rows [row_begin, row_end) of at most 16 by all panels.
void low_rows(const LinearRaw& a, int64_t row, int64_t rows, int64_t panel, int64_t panel_end) {
  const auto m = static_cast<uint8_t>(rows);
  configure({m, m, m, m, m, 16, 16, 16});
  for (; panel + 4 <= panel_end; panel += 4) rows16_panels4(a, rows, row, panel);
  for (; panel < panel_end; ++panel) rows16_panel(a, rows, row, panel);
}

// 17 to 32 rows; panels come in pairs so that both x tiles are used twice.
void high_rows(const LinearRaw& a, int64_t row, int64_t rows, int64_t panel, int64_t panel_end,
               Ahead& ahead) {
  const auto high = static_cast<uint8_t>(rows - kTileRows);
  configure({16, 16, high, high, 16, high, 16, 16});
  for (; panel + 2 <= panel_end; panel += 2) rows32_panels2(a, high, row, panel, ahead);
  if (panel == panel_end) return;
  low_rows(a, row, kTileRows, panel, panel_end);
  low_rows(a, row + kTileRows, high, panel, panel_end);
}

template <int kBits, bool kMinima>
void unpack(const IntegerPanelsRaw& a, int64_t panel, uint16_t* out) {
  const uint8_t* data = a.data + panel * a.panel_bytes;
  for (int v = 0; v < kVecsPerPanel; ++v) {
    const int first = v * kLanes;  // row of the panel
    for (int64_t g = 0; g < a.groups; ++g) {
      const int64_t at = (panel * a.groups + g) * 16 + first;
      const int64_t end = g + 1 == a.groups ? a.columns : (g + 1) * a.group;
      const F scale = load(a.scales + at);
      // Taken from the integer, or from the product.
      F zero = set1(1 << (kBits - 1));
      if (a.zeros) zero = load_u8(a.zeros + at);
      if (kMinima) zero = sub(set1(0), load(a.minima + at));
      const auto number = [&](F u) {
        if constexpr (kMinima) return fma(scale, u, zero);
        return mul(scale, sub(u, zero));
      };
      for (int64_t col = g * a.group; col < end; col += 2) {
        F low, high;
        if constexpr (kBits == 8) {
          low = load_u8(data + col * 16 + first);
          high = load_u8(data + (col + 1) * 16 + first);
        } else {
          load_u4(data + col * 8 + first, low, high);
        }
        store_pairs(out + col * 16 + 2 * first, number(low), number(high));
      }
    }
  }
}

void widen_f8(const IntegerPanelsRaw& a, int64_t panel, uint16_t* out) {
  const uint8_t* data = a.data + panel * a.panel_bytes;
  const F factor = set1(0x1p120f);
  for (int64_t col = 0; col < a.columns; col += 2)
    for (int first = 0; first < 16; first += kLanes)
      store_pairs(out + col * 16 + 2 * first, mul(factor, load_f8(data + col * 16 + first)),
                  mul(factor, load_f8(data + (col + 1) * 16 + first)));
}

}  // namespace
}  // namespace amx

void linear_amx(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  using namespace amx;
  constexpr int64_t kPanelsPerPass = 4;            // their weights stay in the cache for all rows
  constexpr int64_t kMaxAhead = int64_t{1} << 18;  // elements that fit beside them and x
  const int64_t steps_of_pass = (row_end - row_begin + 2 * kTileRows - 1) / (2 * kTileRows) *
                                ((a.k + kStepK - 1) / kStepK) * (kPanelsPerPass / 2);
  for (int64_t panel = panel_begin; panel < panel_end; panel += kPanelsPerPass) {
    const int64_t end = min_of(panel + kPanelsPerPass, panel_end);
    int64_t next = min_of(end + kPanelsPerPass, panel_end) - end;
    if (next * a.panel_stride > kMaxAhead) next = 0;
    Ahead ahead(a.weight + end * a.panel_stride, next * a.panel_stride, steps_of_pass);
    for (int64_t row = row_begin; row < row_end; row += 2 * kTileRows) {
      const int64_t rows = min_of(row_end - row, 2 * kTileRows);
      if (rows <= kTileRows)
        low_rows(a, row, rows, panel, end);
      else
        high_rows(a, row, rows, panel, end, ahead);
    }
  }
  _tile_release();
}

void unpack_panel_amx(const IntegerPanelsRaw& a, int64_t panel, uint16_t* out) {
  if (a.float8) return amx::widen_f8(a, panel, out);
  if (a.minima)
    return a.bits == 8 ? amx::unpack<8, true>(a, panel, out) : amx::unpack<4, true>(a, panel, out);
  a.bits == 8 ? amx::unpack<8, false>(a, panel, out) : amx::unpack<4, false>(a, panel, out);
}

double peak_flops_amx(int64_t iterations) {
  amx::configure({16, 16, 16, 16, 16, 16, 16, 16});
  for (int64_t i = 0; i < iterations; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 4.0 * 2 * 16 * 16 * 32 * static_cast<double>(iterations);
}

}  // namespace nereid::kernels::cpu
