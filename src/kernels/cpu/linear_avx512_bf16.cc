// Linear with vdpbf16ps: bf16 pairs of x by the weights as stored.
#include "kernels/cpu/simd_narrow.h"

namespace nereid::kernels::cpu {
namespace avx512_bf16 {
namespace {

// Vector v of the pairs at i.
template <class Panels, int kVecs>
[[gnu::always_inline]] inline I pairs_at(const PanelGroup<Panels, kVecs>& w, int v, int64_t i) {
  return load_words(w.at(v, i));
}
template <int kBits, int kVecs>
[[gnu::always_inline]] inline I pairs_at(const IntegerGroup<kBits, kVecs>& w, int v, int64_t i) {
  return kBits == 4 ? pairs_u4(w.at(v, i)) : pairs_u8(w.at(v, i), w.at(v, i + 1));
}

template <int kVecs>
[[gnu::always_inline]] inline I pairs_at(const Float8Group<kVecs>& w, int v, int64_t i) {
  F low, high;
  w.split(v, i, low, high);
  return pairs_of(low, high);
}

template <class Numbers, int kVecs>
[[gnu::always_inline]] inline I pairs_at(const KeptGroup<Numbers, kVecs>& w, int v, int64_t i) {
  const I pairs = pairs_at(static_cast<const Numbers&>(w), v, i);
  w.keep(v, i, pairs);
  return pairs;
}

struct PairDot {
  using X = uint16_t;
  static constexpr int kMaxRows = 12;
  static constexpr int kWideRows = 4;

  template <int kRows, int kVecs, class Group>
  [[gnu::always_inline]] static inline void run(const X* x, int64_t x_stride, const Group w,
                                                int64_t begin, int64_t end,
                                                F (&acc)[kRows][kVecs]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = set1(0);
    for_pairs(w, begin, end, [&](int64_t i) [[gnu::always_inline]] {
      __m512bh pairs[kVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) pairs[v] = reinterpret_cast<__m512bh>(pairs_at(w, v, i));
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        int pair;
        __builtin_memcpy(&pair, x + r * x_stride + i, sizeof(pair));
        const __m512bh both = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], pairs[v], both);
      }
    });
  }
};

}  // namespace
}  // namespace avx512_bf16

void linear_avx512_bf16(const LinearRaw& a, int64_t row_begin, int64_t row_end, int64_t panel_begin,
                        int64_t panel_end) {
  avx512_bf16::linear_block<avx512_bf16::PairDot>(a, row_begin, row_end, panel_begin, panel_end);
}

void linear_narrow_avx512_bf16(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                               int64_t row_end, int64_t panel_begin, int64_t panel_end,
                               uint16_t* memory) {
  avx512_bf16::narrow_block<avx512_bf16::PairDot>(a, w, row_begin, row_end, panel_begin, panel_end,
                                                  memory);
}

double peak_flops_avx512_bf16(int64_t iterations) {
  using namespace avx512_bf16;
  constexpr int kChains = 12;
  F acc[kChains];
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) acc[c] = set1(0);
  const __m512bh ones = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3f803f80));
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) acc[c] = _mm512_dpbf16_ps(acc[c], ones, ones);
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) asm volatile("" : "+v"(acc[c]));
  }
  float total = 0;
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) total += sum(acc[c]);
  asm volatile("" : : "x"(total));
  return 4.0 * kLanes * kChains * static_cast<double>(iterations);
}

}  // namespace nereid::kernels::cpu
