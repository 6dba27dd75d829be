// Linear with f32 products.
#include "kernels/cpu/simd_linear.h"

#include "kernels/cpu/simd_narrow.h"
#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

void linear(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
            int64_t panel_end) {
  linear_block<F32Dot>(a, row_begin, row_end, panel_begin, panel_end);
}

void linear_narrow(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                   int64_t row_end, int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  narrow_block<F32Dot>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
}

namespace {

// Panels of 8-bit integers for rows of i16: pairs of what they stand for, also where unpacked.
template <int kVecs>
struct WordGroup : IntegerGroup<8, kVecs> {
  using IntegerGroup<8, kVecs>::IntegerGroup;
  using IntegerGroup<8, kVecs>::at;
  static constexpr bool kWholeRows = true;

  I pairs(int v, int64_t i) const { return words_u8(at(v, i), at(v, i + 1)); }
  static void unpack(const IntegerPanelsRaw& w, int64_t panel, uint16_t* out) {
    const WordGroup<kVecsPerPanel> one(w, panel);
    for (int64_t i = 0; i < w.columns; i += 2)
      for (int v = 0; v < kVecsPerPanel; ++v)
        store_words(out + i * 16 + v * (2 * kLanes), one.pairs(v, i));
  }
};
template <int kVecs>
[[gnu::always_inline]] inline I word_pairs(const WordGroup<kVecs>& w, int v, int64_t i) {
  return w.pairs(v, i);
}
template <class Panels, int kVecs>
[[gnu::always_inline]] inline I word_pairs(const PanelGroup<Panels, kVecs>& w, int v, int64_t i) {
  return load_words(w.at(v, i));
}

struct WordDot {
  using X = int16_t;
  static constexpr int kMaxRows = F32Dot::kMaxRows;
  static constexpr int kWideRows = F32Dot::kWideRows;

  template <int kRows, int kVecs, class Group>
  [[gnu::always_inline]] static inline void run(const X* x, int64_t x_stride, const Group& w,
                                                int64_t begin, int64_t end,
                                                F (&acc)[kRows][kVecs]) {
    I sums[kRows][kVecs];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) sums[r][v] = zero_words();
    for_pairs(w, begin, end, [&](int64_t i) [[gnu::always_inline]] {
      I pairs[kVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) pairs[v] = word_pairs(w, v, i);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v)
          sums[r][v] = add_products(sums[r][v], pairs[v], x + r * x_stride + i);
    });
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = to_floats(sums[r][v]);
  }
};

}  // namespace

void linear_bytes(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin, int64_t row_end,
                  int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  narrow_block<WordDot, WordGroup>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
}

void byte_row(const int8_t* x, int64_t count, void* out) {
  auto* words = static_cast<int16_t*>(out);
  for (int64_t i = 0; i < count; ++i) words[i] = x[i];
  if (count % 2 != 0) words[count] = 0;
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
