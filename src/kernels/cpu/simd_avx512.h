// Sixteen f32 lanes of AVX-512 (F, BW, DQ, VL), with the names of simd_avx2.h; included by simd.h
// inside the instruction set's namespace.
#pragma once

using F = __m512;
inline constexpr int kLanes = 16;
inline constexpr int kRegisters = 32;

inline F set1(float x) { return _mm512_set1_ps(x); }
inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F div(F a, F b) { return _mm512_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
// The second operand if either is NaN.
inline F vmin(F a, F b) { return _mm512_min_ps(a, b); }
inline F vmax(F a, F b) { return _mm512_max_ps(a, b); }
inline F round_nearest(F x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// 2^n for integral n in [-126, 127].
inline F power_of_two(F n) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
// a < b ? x : y
inline F if_less(F a, F b, F x, F y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
// Bit i = a[i] < b[i]; 0 for NaN.
inline uint32_t less_bits(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }

// Element 0 (1) of each pair of bf16.
inline F pair_low(const void* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
inline F pair_high(const void* p) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

inline F load_bf16(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}

// Round to nearest even; NaN stays NaN.
inline void store_bf16(uint16_t* p, F x) {
  const __m512i u = _mm512_castps_si512(x);
  const __m512i high = _mm512_srli_epi32(u, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  __m512i rounded =
      _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), high,
                                 _mm512_set1_epi32(0x40));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(rounded));
}

inline float sum(F x) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
// The sums of four vectors, each as sum().
inline void sums(F a, F b, F c, F d, float* out) {
  const auto halves = [](F x, F y) {
    return add(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  };
  const F ab = halves(a, b), cd = halves(c, d);
  F all = add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  all = add(all, _mm512_permute_ps(all, 0x4e));
  all = add(all, _mm512_permute_ps(all, 0xb1));
  _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, all)));
}
inline float largest(F x) { return _mm512_reduce_max_ps(x); }

using I = __m512i;
inline I load_words(const void* p) { return _mm512_loadu_si512(p); }

// Signed bytes.
inline F load_i8(const int8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
template <int kByte>
inline F byte_i8(I words) {
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(words, 24 - 8 * kByte), 24));
}
// Integers in [-128, 127], rounded to nearest even.
inline void store_i8(int8_t* p, F x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
}

// Integers within 16 bits; elements 1 and 2 of every four are swapped.
inline void store_quads(int16_t* p, F x) {
  const __m256i order = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_shuffle_epi8(_mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(x)), order));
}

// Unsigned bytes.
inline F load_u8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
// 16-bit pairs (a, b) of 16 rows, of bytes at two addresses.
inline I words_u8(const uint8_t* a, const uint8_t* b, int) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
  const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  return _mm512_cvtepu8_epi16(_mm256_inserti128_si256(
      _mm256_castsi128_si256(_mm_unpacklo_epi8(x, y)), _mm_unpackhi_epi8(x, y), 1));
}
// The lower, and the next four bits of words.
inline I low_four(I x) { return _mm512_and_si512(x, _mm512_set1_epi16(15)); }
inline I next_four(I x) { return _mm512_srli_epi16(x, 4); }
// sum += products of 16-bit pairs with the pair at p. Inline assembly: GCC 12 reorders sums and
// runs out of registers.
[[gnu::always_inline]] inline void add_products(I& sum, I pairs, const int16_t* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi32(pair)));
  asm("" : "+v"(sum));
}
inline I zero_words() { return _mm512_setzero_si512(); }
inline I same_words(int x) { return _mm512_set1_epi32(x); }
// Bit casts.
inline I as_words(F x) { return _mm512_castps_si512(x); }
inline F as_floats(I x) { return _mm512_castsi512_ps(x); }
inline F to_floats(I x) { return _mm512_cvtepi32_ps(x); }
// The lower and upper halves of bytes.
inline void load_u4(const uint8_t* p, F& low, F& high) {
  const I x = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  low = _mm512_cvtepi32_ps(_mm512_and_si512(x, _mm512_set1_epi32(15)));
  high = _mm512_cvtepi32_ps(_mm512_srli_epi32(x, 4));
}
// bf16 pairs of exact numbers.
inline I pairs_of(F low, F high) {
  return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(low), 16),
                         _mm512_castps_si512(high));
}
inline void store_words(void* p, I x) { _mm512_storeu_si512(p, x); }
// bf16 pairs: of the lower and upper halves of bytes; of bytes at two addresses.
inline I pairs_u4(const uint8_t* p) {
  // bf16 of 0 to 15, twice: 5 bits of a 16-bit element select, the fifth is ignored.
  alignas(64) static constexpr uint16_t kNumbers[] = {
      0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120,
      0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0,
      0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120, 0x4130, 0x4140, 0x4150, 0x4160, 0x4170};
  const I x = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  // x | x << 12 in one instruction that does not use the shift ports.
  const I both = _mm512_madd_epi16(x, _mm512_set1_epi32(1 + (1 << 12)));
  return _mm512_permutexvar_epi16(both, _mm512_load_si512(kNumbers));
}
inline I pairs_u8(const uint8_t* low, const uint8_t* high) {
  const I even = _mm512_castps_si512(load_u8(low)), odd = _mm512_castps_si512(load_u8(high));
  constexpr __mmask64 kLowHalves = 0x3333333333333333;
  return _mm512_mask_alignr_epi8(odd, kLowHalves, even, even, 2);
}
// Pairs (low, high) rounded to bf16 (nearest even).
inline void store_pairs(uint16_t* p, F low, F high) {
  const auto rounded = [](I u) {
    const I odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  };
  const I top = _mm512_and_si512(rounded(_mm512_castps_si512(high)),
                                 _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
  const I bottom = _mm512_srli_epi32(rounded(_mm512_castps_si512(low)), 16);
  _mm512_storeu_si512(p, _mm512_or_si512(top, bottom));
}

// f8e4m3 numbers times 2^-120: their bits shifted to a float's position.
inline F load_f8(const uint8_t* p) {
  const I x = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_slli_epi32(x, 20), _mm512_set1_epi32(static_cast<int>(0x87f00000u))));
}
template <int kByte>
inline F byte_f8(I words) {
  const I x = _mm512_srai_epi32(_mm512_slli_epi32(words, 24 - 8 * kByte), 4);
  return _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0x87f00000u))));
}
// to_f8e4m3() of tensor/dtype.h, except NaN.
inline void store_f8(uint8_t* p, F x) {
  const I u = _mm512_castps_si512(x);
  const I magnitude = _mm512_min_epi32(_mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff)),
                                       _mm512_set1_epi32(0x43e00000));  // 448
  const I odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, 20), _mm512_set1_epi32(1));
  const I rounded = _mm512_add_epi32(magnitude, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7ffff)));
  const I normal = _mm512_sub_epi32(_mm512_srli_epi32(rounded, 20), _mm512_set1_epi32(120 << 3));
  const F shifted = _mm512_add_ps(_mm512_castsi512_ps(magnitude), set1(0x1p14f));
  const I steps =
      _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_castps_si512(set1(0x1p14f)));
  const __mmask16 small = _mm512_cmplt_epi32_mask(magnitude, _mm512_set1_epi32(0x3c800000));
  const I sign = _mm512_and_si512(_mm512_srli_epi32(u, 24), _mm512_set1_epi32(0x80));
  const I code = _mm512_or_si512(_mm512_mask_blend_epi32(small, normal, steps), sign);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(code));
}
inline F vabs(F x) { return _mm512_abs_ps(x); }
