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
  store_sums<0>(a, rows, row, panel);
  store_sums<1>(a, rows, row, panel + 1);
  store_sums<2>(a, rows, row, panel + 2);
  store_sums<3>(a, rows, row, panel + 3);
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
  store_sums<0>(a, rows, row, panel);
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

// 16 + `rows_high` rows by two panels, tiles of configure_high(). kFirst: the first rows, which
// read the panels from memory.
template <bool kFirst>
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
    if constexpr (kFirst) prefetch_tile(w), prefetch_tile(w + a.panel_stride);
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
  store_sums<0>(a, kTileRows, row, panel);
  store_sums<1>(a, kTileRows, row, panel + 1);
  store_sums<2>(a, rows_high, row + kTileRows, panel);
  store_sums<3>(a, rows_high, row + kTileRows, panel + 1);
}

// The thread's tile configuration: that of configure_low() or configure_high() for a number of
// rows. Loading it takes longer than a few products.
class Configured {
 public:
  void low(int64_t rows) {
    if (rows != rows_) configure_low(rows);
    rows_ = rows;
  }
  void high(int64_t rows) {
    if (kTileRows + rows != rows_) configure_high(rows);
    rows_ = kTileRows + rows;
  }

 private:
  int64_t rows_ = 0;
};

// At most 16 rows from `row` by all panels.
void low_rows(const LinearRaw& a, int64_t row, int64_t rows, int64_t panel, int64_t panel_end,
              Configured& configured) {
  configured.low(rows);
  for (; panel + 4 <= panel_end; panel += 4) rows16_panels4(a, rows, row, panel);
  for (; panel < panel_end; ++panel) rows16_panel(a, rows, row, panel);
}

// 17 to 32 rows; panels in pairs, so that both x tiles are used twice.
void high_rows(const LinearRaw& a, int64_t row, int64_t rows, int64_t panel, int64_t panel_end,
               bool first, Ahead& ahead, Configured& configured) {
  const int64_t high = rows - kTileRows;
  configured.high(high);
  for (; panel + 2 <= panel_end; panel += 2)
    first ? rows32_panels2<true>(a, high, row, panel, ahead)
          : rows32_panels2<false>(a, high, row, panel, ahead);
  if (panel == panel_end) return;
  low_rows(a, row, kTileRows, panel, panel_end, configured);
  low_rows(a, row + kTileRows, high, panel, panel_end, configured);
}

}  // namespace
}  // namespace amx

void linear_amx(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                int64_t panel_end) {
  using namespace amx;
  // Elements of the panels of a pass, which stay in the L2 cache for all rows, next to the next
  // pass's and x.
  constexpr int64_t kMostElements = int64_t{1} << 18;
  const int64_t all_rows = row_end - row_begin, last_rows = all_rows % (2 * kTileRows);
  const bool one_block = all_rows <= 2 * kTileRows;
  const bool ends_low = last_rows > 0 && last_rows <= kTileRows;  // low_rows() takes four panels
  const int64_t per_pass = one_block || ends_low || 4 * a.panel_stride <= kMostElements ? 4 : 2;
  Configured configured;
  const int64_t steps_of_pass = (all_rows + 2 * kTileRows - 1) / (2 * kTileRows) *
                                ((a.k + kStepK - 1) / kStepK) * (per_pass / 2);
  for (int64_t panel = panel_begin; panel < panel_end; panel += per_pass) {
    const int64_t end = min_of(panel + per_pass, panel_end);
    int64_t next = min_of(end + per_pass, panel_end) - end;
    if (one_block || next * a.panel_stride > kMostElements) next = 0;
    Ahead ahead(a.weight + end * a.panel_stride, next * a.panel_stride, steps_of_pass);
    for (int64_t row = row_begin; row < row_end; row += 2 * kTileRows) {
      const int64_t rows = min_of(row_end - row, 2 * kTileRows);
      if (rows <= kTileRows)
        low_rows(a, row, rows, panel, end, configured);
      else
        high_rows(a, row, rows, panel, end, row == row_begin, ahead, configured);
    }
  }
  _tile_release();
}

double peak_flops_amx(int64_t iterations) {
  // Numbers with random digits: of zeros the processor multiplies up to 1.3 times as many.
  alignas(64) uint16_t numbers[4 * amx::kTileElements];
  uint32_t random = 1;
  for (uint16_t& number : numbers) {
    random = random * 1664525 + 1013904223;
    number = static_cast<uint16_t>((random >> 16 & 0x807f) | 0x3f00);
  }
  amx::configure({16, 16, 16, 16, 16, 16, 16, 16});
  asm volatile("" : : "r"(numbers) : "memory");  // the intrinsics do not declare that they read it
  _tile_loadd(4, numbers, amx::kLineBytes);
  _tile_loadd(5, numbers + amx::kTileElements, amx::kLineBytes);
  _tile_loadd(6, numbers + 2 * amx::kTileElements, amx::kLineBytes);
  _tile_loadd(7, numbers + 3 * amx::kTileElements, amx::kLineBytes);
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
