// Thin vector type F and its operations, in a namespace named after the instruction set
// (NEREID_SIMD, set by CMake per compilation), plus exp and partial loads. Included by simd_*.cc
// and linear_*.cc only.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "kernels/cpu/raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

#ifdef __AVX512F__
#include "kernels/cpu/simd_avx512.h"
#else
#include "kernels/cpu/simd_avx2.h"
#endif

inline constexpr int kVecsPerPanel = 16 / kLanes;  // 16 rows of a weight panel
inline constexpr float kInfinity = __builtin_inff();

inline int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t max_of(int64_t a, int64_t b) { return a < b ? b : a; }

// The first n < kLanes elements; the others are `fill` on loads, untouched on stores.
inline F load_part(const float* p, int64_t n, float fill = 0) {
  float buffer[kLanes];
  store(buffer, set1(fill));
  for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  return load(buffer);
}
inline F load_bf16_part(const uint16_t* p, int64_t n) {
  uint16_t buffer[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  return load_bf16(buffer);
}
inline void store_part(float* p, F x, int64_t n) {
  float buffer[kLanes];
  store(buffer, x);
  for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
}
inline void store_bf16_part(uint16_t* p, F x, int64_t n) {
  uint16_t buffer[kLanes];
  store_bf16(buffer, x);
  for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
}

// exp(x) with a relative error below 2^-22; 0 below -87.3, exp(88.3) above 88.3, NaN for NaN.
// Cody-Waite reduction to |r| <= ln(2)/2 and a degree 5 polynomial (S. L. Moshier, Cephes, expf).
inline F exp(F x) {
  const F lowest = set1(-87.3f);
  const F y = vmin(set1(88.3f), vmax(lowest, x));
  const F n = round_nearest(mul(y, set1(1.44269504f)));
  const F r = fma(n, set1(2.12194440e-4f), fma(n, set1(-0.693359375f), y));
  F p = fma(set1(1.9875691500e-4f), r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = add(fma(mul(r, r), p, r), set1(1));
  return if_less(x, lowest, set1(0), mul(p, power_of_two(n)));
}

// tanh(x) with an absolute error below 2^-21.
inline F tanh(F x) { return sub(set1(1), div(set1(2), add(exp(add(x, x)), set1(1)))); }

}  // namespace nereid::kernels::cpu::NEREID_SIMD
