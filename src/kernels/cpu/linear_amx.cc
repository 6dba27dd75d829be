// Linear with AMX tiles and bf16 weights, and the peak rate of AMX.
#include "kernels/cpu/simd_amx_product.h"

namespace nereid::kernels::cpu {

void linear_amx(const LinearRaw& a, const IntegerPanelsRaw&, int64_t row_begin, int64_t row_end,
                int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  using namespace amx;
  IntegerPanelsRaw w = {};
  w.data = reinterpret_cast<const uint8_t*>(a.weight);
  w.panel_bytes = a.panel_stride * 2;
  Product<Pairs, Scales::kByRows>(a, w, memory).run(row_begin, row_end, panel_begin, panel_end);
}

double peak_flops_amx(int64_t iterations) {
  // Numbers with random digits: of zeros the processor multiplies up to 1.3 times as many.
  constexpr int64_t kTileElements = amx::kTileBytes / 2;
  alignas(64) uint16_t numbers[4 * kTileElements];
  uint32_t random = 1;
  for (uint16_t& number : numbers) {
    random = random * 1664525 + 1013904223;
    number = static_cast<uint16_t>((random >> 16 & 0x807f) | 0x3f00);
  }
  amx::configure({16, 16, 16, 16, 16, 16, 16, 16});
  asm volatile("" : : "r"(numbers) : "memory");  // the intrinsics do not declare that they read it
  _tile_loadd(4, numbers, amx::kLineBytes);
  _tile_loadd(5, numbers + kTileElements, amx::kLineBytes);
  _tile_loadd(6, numbers + 2 * kTileElements, amx::kLineBytes);
  _tile_loadd(7, numbers + 3 * kTileElements, amx::kLineBytes);
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
