// Linear with f32 products.
#include "kernels/cpu/simd_linear.h"

#include "kernels/cpu/simd_integers.h"
#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

void linear(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
            int64_t panel_end) {
  linear_block<F32Dot>(a, row_begin, row_end, panel_begin, panel_end);
}

void linear_integers(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                     int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  integer_block<F32Dot>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
}

void group_sums(const uint16_t* x, int64_t count, int64_t group, float* out) {
  for (int64_t begin = 0; begin < count; begin += group) {
    const int64_t end = min_of(begin + group, count);
    F total = set1(0);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) total = add(total, load_bf16(x + i));
    if (i < end) total = add(total, load_bf16_part(x + i, end - i));
    *out++ = sum(total);
  }
}

void widen_row(const uint16_t* x, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(out + i, load_bf16(x + i));
  if (i < count) store_part(out + i, load_bf16_part(x + i, count - i), count - i);
}

namespace {

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

void unpack_panel(const IntegerPanelsRaw& a, int64_t panel, uint16_t* out) {
  if (a.float8) return widen_f8(a, panel, out);
  if (a.minima)
    return a.bits == 8 ? unpack<8, true>(a, panel, out) : unpack<4, true>(a, panel, out);
  a.bits == 8 ? unpack<8, false>(a, panel, out) : unpack<4, false>(a, panel, out);
}

double peak_flops(int64_t iterations) {
  constexpr int kChains = 12;
  F acc[kChains];
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) acc[c] = set1(static_cast<float>(c));
  const F factor = set1(0.999f), term = set1(0.001f);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) acc[c] = fma(acc[c], factor, term);
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) asm volatile("" : "+v"(acc[c]));
  }
  float total = 0;
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) total += sum(acc[c]);
  asm volatile("" : : "x"(total));
  return 2.0 * kLanes * kChains * static_cast<double>(iterations);
}

float read_bytes(const void* data, int64_t bytes) {
  const char* p = static_cast<const char*>(data);
  F total[4] = {set1(0), set1(0), set1(0), set1(0)};
  constexpr int64_t kStep = 4 * kLanes * 4;
  for (int64_t i = 0; i + kStep <= bytes; i += kStep) {
    _mm_prefetch(p + i + 4096, _MM_HINT_T0);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v)
      total[v] = add(total[v], load(reinterpret_cast<const float*>(p + i) + v * kLanes));
  }
  return sum(add(add(total[0], total[1]), add(total[2], total[3])));
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
