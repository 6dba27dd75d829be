// Linear with AMX bf16 tiles. One path for all row counts: a tile has as many rows as exist, so a
// row's sum is the same chain of tile products alone or among others.
#include "kernels/cpu/simd_amx.h"

namespace nereid::kernels::cpu {
namespace amx {
namespace {

constexpr int64_t kStepK = 32;                  // bf16 columns of an A tile
constexpr int64_t kTileElements = 16 * kStepK;  // of a B tile

// First tile of the block of rows that starts at `row`, a multiple of 16.
const uint16_t* x_at(const LinearRaw& a, int64_t row) {
  return static_cast<const uint16_t*>(a.x) + row / kTileRows * a.x_stride;
}

void prefetch_tile(const uint16_t* p) {
  constexpr int64_t kAhead = 4 * kTileElements;
  for (int64_t line = 0; line < kTileElements; line += kLineBytes / 2)
    _mm_prefetch(reinterpret_cast<const char*>(p + kAhead + line), _MM_HINT_T0);
}

// Up to 16 rows by four panels, tiles of configure_low().
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

// Up to 16 rows by one panel, the same tiles.
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

// Prefetches the next panels' weights to the L2 cache.
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

// 16 + `rows_high` rows by two panels, tiles of configure_high().
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

// At most 16 rows from `row` by all panels.
void low_rows(const LinearRaw& a, int64_t row, int64_t rows, int64_t panel, int64_t panel_end) {
  configure_low(rows);
  for (; panel + 4 <= panel_end; panel += 4) rows16_panels4(a, rows, row, panel);
  for (; panel < panel_end; ++panel) rows16_panel(a, rows, row, panel);
}

// 17 to 32 rows; panels in pairs, so that both x tiles are used twice.
void high_rows(const LinearRaw& a, int64_t row, int64_t rows, int64_t panel, int64_t panel_end,
               Ahead& ahead) {
  const int64_t high = rows - kTileRows;
  configure_high(high);
  for (; panel + 2 <= panel_end; panel += 2) rows32_panels2(a, high, row, panel, ahead);
  if (panel == panel_end) return;
  low_rows(a, row, kTileRows, panel, panel_end);
  low_rows(a, row + kTileRows, high, panel, panel_end);
}

}  // namespace
}  // namespace amx

void linear_amx(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  using namespace amx;
  constexpr int64_t kPanelsPerPass = 4;            // their weights stay in the cache for all rows
  constexpr int64_t kMaxAhead = int64_t{1} << 18;  // elements cached next to them and x
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
