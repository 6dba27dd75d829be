// KV cache element types for all vector instruction sets: storing, reading, and products of packed
// lines with queries. Numbers are read in units of 2^-kShift, compensated half in the query and
// half in the scale, so that nothing overflows.
#pragma once

#include "kernels/cpu/simd_linear.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

// Dot products of f32 rows with quad panels: words of four 8-bit elements of a key, 16 keys side by
// side. As F32Dot with twice the elements per word.
template <class Cache>
struct QuadDot {
  using X = float;
  static constexpr int kMaxRows = F32Dot::kMaxRows;
  static constexpr int kWideRows = F32Dot::kWideRows;

  template <int kByte, int kRows, int kVecs>
  [[gnu::always_inline]] static inline void add_byte(const X* x, int64_t x_stride,
                                                     const I (&words)[kVecs],
                                                     F (&acc)[kRows][kVecs]) {
    F key[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) key[v] = Cache::template byte<kByte>(words[v]);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F query = set1(x[r * x_stride + kByte]);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = fma(key[v], query, acc[r][v]);
    }
  }

  template <int kRows, int kVecs, class Panels>
  [[gnu::always_inline]] static inline void run(const X* x, int64_t x_stride,
                                                const PanelGroup<Panels, kVecs>& w, int64_t begin,
                                                int64_t end, F (&acc)[kRows][kVecs]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = set1(0);
    for (int64_t i = begin; i < end; i += 4) {
      I words[kVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) words[v] = load_words(w.at(v, i / 2));
      add_byte<0>(x + i, x_stride, words, acc);
      add_byte<1>(x + i, x_stride, words, acc);
      add_byte<2>(x + i, x_stride, words, acc);
      add_byte<3>(x + i, x_stride, words, acc);
    }
  }
};

struct Bf16Cache {
  using Cell = uint16_t;
  using Dot = F32Dot;
  static constexpr bool kHasScales = false;
  static constexpr float kUnit = 1;  // of a query, and of a scale

  static F read(const Cell* p) { return load_bf16(p); }
  static void write(Cell* p, F x) { store_bf16(p, x); }
};

struct Int8Cache {
  using Cell = int8_t;
  using Dot = QuadDot<Int8Cache>;
  static constexpr bool kHasScales = true;
  static constexpr float kUnit = 1;
  static constexpr float kLimit = 127;

  static F read(const Cell* p) { return load_i8(p); }
  static void write(Cell* p, F x) { store_i8(p, x); }
  template <int kByte>
  static F byte(I words) {
    return byte_i8<kByte>(words);
  }
};

struct Fp8Cache {
  using Cell = uint8_t;
  using Dot = QuadDot<Fp8Cache>;
  static constexpr bool kHasScales = true;
  static constexpr float kUnit = 0x1p60f;
  static constexpr float kLimit = 448;

  static F read(const Cell* p) { return load_f8(p); }
  static void write(Cell* p, F x) { store_f8(p, x); }
  template <int kByte>
  static F byte(I words) {
    return byte_f8<kByte>(words);
  }
};

// The first n < kLanes elements, then zeros.
template <class Cache>
F read_part(const typename Cache::Cell* p, int64_t n) {
  typename Cache::Cell buffer[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = p[i];
  return Cache::read(buffer);
}
template <class Cache>
void write_part(typename Cache::Cell* p, F x, int64_t n) {
  typename Cache::Cell buffer[kLanes];
  Cache::write(buffer, x);
  for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
}

// Stores factor * x.
template <class Cache>
void write_line(const float* x, int64_t count, F factor, typename Cache::Cell* out) {
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) Cache::write(out + c, mul(load(x + c), factor));
  if (c < count) write_part<Cache>(out + c, mul(load_part(x + c, count - c), factor), count - c);
}

// Stores x in units of the returned scale, as defined by Attention in attention_ops.h.
template <class Cache>
float write_scaled(const float* x, int64_t count, typename Cache::Cell* out) {
  F most = set1(0), zeros = set1(0);
  for (int64_t c = 0; c < count; c += kLanes) {
    const F v = c + kLanes <= count ? load(x + c) : load_part(x + c, count - c);
    most = vmax(most, vabs(v));
    zeros = add(zeros, mul(v, set1(0)));  // NaN if v is not finite
  }
  const float amax = largest(most);
  const bool finite = sum(zeros) == 0;
  if (!finite || amax < kSmallestScaledVector) {
    __builtin_memset(out, 0, static_cast<size_t>(count));
    return finite ? 0 : __builtin_nanf("");
  }
  write_line<Cache>(x, count, set1(Cache::kLimit / amax), out);
  return amax / Cache::kLimit;
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
