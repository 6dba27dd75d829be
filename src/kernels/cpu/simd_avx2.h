// Eight f32 lanes of AVX2 + FMA, with the names of simd_avx512.h; included by simd.h inside the
// instruction set's namespace.
#pragma once

using F = __m256;
inline constexpr int kLanes = 8;
inline constexpr int kRegisters = 16;

inline F set1(float x) { return _mm256_set1_ps(x); }
inline F load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, F x) { _mm256_storeu_ps(p, x); }
inline F add(F a, F b) { return _mm256_add_ps(a, b); }
inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
inline F div(F a, F b) { return _mm256_div_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
// The second operand if either is NaN.
inline F vmin(F a, F b) { return _mm256_min_ps(a, b); }
inline F vmax(F a, F b) { return _mm256_max_ps(a, b); }
inline F round_nearest(F x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// 2^n for integral n in [-126, 127].
inline F power_of_two(F n) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
// a < b ? x : y
inline F if_less(F a, F b, F x, F y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
// Bit i = a[i] < b[i]; 0 for NaN.
inline uint32_t less_bits(F a, F b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_LT_OQ)));
}

// Element 0 (1) of each pair of bf16.
inline F pair_low(const void* p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)), 16));
}
inline F pair_high(const void* p) {
  return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(static_cast<const __m256i*>(p)),
                                              _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}

inline F load_bf16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}

// Round to nearest even; NaN stays NaN.
inline void store_bf16(uint16_t* p, F x) {
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
  rounded =
      _mm256_blendv_epi8(rounded, nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}

inline float sum(F x) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
// The sums of four vectors, each as sum().
inline void sums(F a, F b, F c, F d, float* out) {
  const auto halves = [](F x, F y) {
    return add(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
  };
  const F ab = halves(a, b), cd = halves(c, d);
  F all = add(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));  // a c, b d
  all = _mm256_hadd_ps(all, all);
  _mm_storeu_ps(out, _mm_unpacklo_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}
inline float largest(F x) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

using I = __m256i;
inline I load_words(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Signed bytes.
inline F load_i8(const int8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
template <int kByte>
inline F byte_i8(I words) {
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * kByte), 24));
}
// Integers in [-128, 127], rounded to nearest even.
inline void store_i8(int8_t* p, F x) {
  const I n = _mm256_cvtps_epi32(x);
  const __m128i pairs = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(pairs, pairs));
}

// Integers within 16 bits; elements 1 and 2 of every four are swapped.
inline void store_quads(int16_t* p, F x) {
  const I n = _mm256_cvtps_epi32(x);
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(n), _mm256_extracti128_si256(n, 1));
  const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_shuffle_epi8(words, order));
}

// Unsigned bytes.
inline F load_u8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
// 16-bit pairs (a, b) of kLanes rows from kLanes * part on, of bytes at two addresses.
inline I words_u8(const uint8_t* a, const uint8_t* b, int part) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
  const __m128i y = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  return _mm256_cvtepu8_epi16(part == 0 ? _mm_unpacklo_epi8(x, y) : _mm_unpackhi_epi8(x, y));
}
// The lower, and the next four bits of words.
inline I low_four(I x) { return _mm256_and_si256(x, _mm256_set1_epi16(15)); }
inline I next_four(I x) { return _mm256_srli_epi16(x, 4); }
// sum += products of 16-bit pairs with the pair at p. Inline assembly: GCC 12 reorders sums and
// runs out of registers.
[[gnu::always_inline]] inline void add_products(I& sum, I pairs, const int16_t* p) {
  int pair;
  __builtin_memcpy(&pair, p, sizeof(pair));
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi32(pair)));
  asm("" : "+v"(sum));
}
inline I zero_words() { return _mm256_setzero_si256(); }
inline I same_words(int x) { return _mm256_set1_epi32(x); }
// Bit casts.
inline I as_words(F x) { return _mm256_castps_si256(x); }
inline F as_floats(I x) { return _mm256_castsi256_ps(x); }
inline F to_floats(I x) { return _mm256_cvtepi32_ps(x); }
// The lower and upper halves of bytes.
inline void load_u4(const uint8_t* p, F& low, F& high) {
  const I x = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  low = _mm256_cvtepi32_ps(_mm256_and_si256(x, _mm256_set1_epi32(15)));
  high = _mm256_cvtepi32_ps(_mm256_srli_epi32(x, 4));
}
// bf16 pairs of exact numbers.
inline I pairs_of(F low, F high) {
  return _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(low), 16),
                         _mm256_castps_si256(high));
}
inline void store_words(void* p, I x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
// Pairs (low, high) rounded to bf16 (nearest even).
inline void store_pairs(uint16_t* p, F low, F high) {
  const auto rounded = [](I u) {
    const I odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  };
  const I top = _mm256_and_si256(rounded(_mm256_castps_si256(high)),
                                 _mm256_set1_epi32(static_cast<int>(0xffff0000u)));
  const I bottom = _mm256_srli_epi32(rounded(_mm256_castps_si256(low)), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_or_si256(top, bottom));
}

// f8e4m3 numbers times 2^-120: their bits shifted to a float's position.
inline F load_f8(const uint8_t* p) {
  const I x = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(
      _mm256_and_si256(_mm256_slli_epi32(x, 20), _mm256_set1_epi32(static_cast<int>(0x87f00000u))));
}
template <int kByte>
inline F byte_f8(I words) {
  const I x = _mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * kByte), 4);
  return _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32(static_cast<int>(0x87f00000u))));
}
// to_f8e4m3() of tensor/dtype.h, except NaN.
inline void store_f8(uint8_t* p, F x) {
  const I u = _mm256_castps_si256(x);
  const I magnitude = _mm256_min_epi32(_mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff)),
                                       _mm256_set1_epi32(0x43e00000));  // 448
  const I odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 20), _mm256_set1_epi32(1));
  const I rounded = _mm256_add_epi32(magnitude, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7ffff)));
  const I normal = _mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), _mm256_set1_epi32(120 << 3));
  const F shifted = _mm256_add_ps(_mm256_castsi256_ps(magnitude), set1(0x1p14f));
  const I steps =
      _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(set1(0x1p14f)));
  const I small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3c800000), magnitude);
  const I sign = _mm256_and_si256(_mm256_srli_epi32(u, 24), _mm256_set1_epi32(0x80));
  const I code = _mm256_or_si256(_mm256_blendv_epi8(normal, steps, small), sign);
  const __m128i pairs =
      _mm_packus_epi32(_mm256_castsi256_si128(code), _mm256_extracti128_si256(code, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(pairs, pairs));
}
inline F vabs(F x) { return _mm256_andnot_ps(set1(-0.f), x); }
