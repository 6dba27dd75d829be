// Linear of i8 rows with vpdpbusd: four columns of 8-bit weights, as stored, by four of x. Stored
// integers exceed their values by 128: each sum starts with the correction.
#include "kernels/cpu/simd_narrow.h"

namespace nereid::kernels::cpu {
namespace avx512_vnni {
namespace {

constexpr int64_t kQuad = 4;

// Transposes four consecutive columns of 16 rows to four columns per row.
[[gnu::always_inline]] inline I quads_of(I columns) {
  alignas(64) static constexpr int kWords[] = {0, 4, 8,  12, 1, 5, 9,  13,
                                               2, 6, 10, 14, 3, 7, 11, 15};
  const __m512i bytes =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
  return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(_mm512_load_si512(kWords), columns), bytes);
}

// Panels read side by side by a register tile.
template <int kVecs>
struct QuadGroup : IntegerGroup<8, kVecs> {
  using IntegerGroup<8, kVecs>::IntegerGroup;
  static constexpr bool kWholeRows = true;

  // Prefetches as for bf16 panels: this product is memory-bound too.
  [[gnu::always_inline]] void prefetch(int64_t i) const {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; v += kVecsPerPanel) prefetch_panel<kVecs>(this->at(v, i));
  }
};

// Vector v of the quads at i.
template <int kVecs>
[[gnu::always_inline]] inline I quads_at(const QuadGroup<kVecs>& w, int v, int64_t i) {
  return quads_of(load_words(w.at(v, i)));
}
template <class Panels, int kVecs>
[[gnu::always_inline]] inline I quads_at(const PanelGroup<Panels, kVecs>& w, int v, int64_t i) {
  return load_words(w.at(v, i / 2));
}

template <int kVecs>
[[gnu::always_inline]] inline I quads_at(const KeptGroup<QuadGroup<kVecs>, kVecs>& w, int v,
                                         int64_t i) {
  const I quads = quads_at(static_cast<const QuadGroup<kVecs>&>(w), v, i);
  w.keep(v, i / 2, quads);
  return quads;
}

// In place: GCC 12 copies every sum before the intrinsic.
[[gnu::always_inline]] inline void add_quads(I& sums, I quads, I x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(quads), "v"(x));
}

struct QuadDot {
  using X = int8_t;
  static constexpr int kMaxRows = 12;
  static constexpr int kWideRows = 4;

  // All columns; `end`: position of the row's sum.
  template <int kRows, int kVecs, class Group>
  [[gnu::always_inline]] static inline void run(const X* x, int64_t x_stride, const Group w,
                                                int64_t begin, int64_t end,
                                                F (&acc)[kRows][kVecs]) {
    end = (end + kQuad - 1) / kQuad * kQuad;
    I sums[kRows][kVecs];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      int sum;
      __builtin_memcpy(&sum, x + r * x_stride + end, sizeof(sum));
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) sums[r][v] = _mm512_set1_epi32(-128 * sum);
    }
    for (int64_t i = begin; i < end; i += kQuad) {
      w.prefetch(i);
      I quads[kVecs];
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) quads[v] = quads_at(w, v, i);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        int quad;
        __builtin_memcpy(&quad, x + r * x_stride + i, sizeof(quad));
        const I both = _mm512_set1_epi32(quad);
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) add_quads(sums[r][v], quads[v], both);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = to_floats(sums[r][v]);
  }
};

}  // namespace
}  // namespace avx512_vnni

void linear_bytes_avx512_vnni(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin,
                              int64_t row_end, int64_t panel_begin, int64_t panel_end,
                              uint16_t* memory) {
  using namespace avx512_vnni;
  narrow_block<QuadDot, QuadGroup>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
}

void byte_row_avx512_vnni(const int8_t* x, int64_t count, void* out) {
  auto* bytes = static_cast<int8_t*>(out);
  int sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i];
  __builtin_memcpy(bytes, x, static_cast<size_t>(count));
  for (; count % avx512_vnni::kQuad != 0; ++count) bytes[count] = 0;
  __builtin_memcpy(bytes + count, &sum, sizeof(sum));
}

}  // namespace nereid::kernels::cpu
