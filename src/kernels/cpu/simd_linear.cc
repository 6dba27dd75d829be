// Linear with f32 products.
#include "kernels/cpu/simd_linear.h"

#include "kernels/cpu/simd_narrow.h"
#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

void linear(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
            int64_t panel_end) {
  linear_block<F32Dot>(a, row_begin, row_end, panel_begin, panel_end);
}

void linear_float8(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                   int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  float8_block<F32Dot>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
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

// Four streams, as products read panels: one stream reads at up to 0.8 of their rate.
float read_bytes(const void* data, int64_t bytes) {
  constexpr int64_t kStreams = 4, kStreamBytes = 64 << 10, kLine = 64;
  const char* p = static_cast<const char*>(data);
  F total[kStreams] = {set1(0), set1(0), set1(0), set1(0)};
  for (; bytes >= kStreams * kStreamBytes; bytes -= kStreams * kStreamBytes) {
    for (int64_t i = 0; i < kStreamBytes; i += kLine)
#pragma GCC unroll 4
      for (int64_t s = 0; s < kStreams; ++s) {
        const char* const at = p + s * kStreamBytes + i;
        if (kFewRowsAhead > 0) _mm_prefetch(at + 4096, _MM_HINT_T0);
        for (int64_t v = 0; v < kLine; v += 4 * kLanes)
          total[s] = add(total[s], load(reinterpret_cast<const float*>(at + v)));
      }
    p += kStreams * kStreamBytes;
  }
  for (; bytes >= 4 * kLanes; bytes -= 4 * kLanes, p += 4 * kLanes)
    total[0] = add(total[0], load(reinterpret_cast<const float*>(p)));
  return sum(add(add(total[0], total[1]), add(total[2], total[3])));
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
