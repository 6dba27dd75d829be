// Unpacking of integer and f8e4m3 panels. lines(): a weight tile, or some lines of it: 16 lines of
// 64 bytes for 16 panel rows: pairs of columns in bf16, or four columns in signed bytes. floats():
// calls each(i, F) with the same numbers of 16 rows, for each of kFloats columns.
#pragma once

#include "kernels/cpu/simd_amx.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

// Stored numbers of some panels, and the reads per tile. `kTileColumns`: columns of a tile.
template <int kBits, int64_t kTileColumns>
struct StoredPanels {
  static constexpr bool kInPlace = false;
  static constexpr int64_t kColumns = kTileColumns;
  static constexpr int64_t kStepBytes = kTileColumns * 16 * kBits / 8;

  const IntegerPanelsRaw& w;
  int64_t first;

  StoredPanels(const IntegerPanelsRaw& weight, int64_t panel) : w(weight), first(panel) {}
  const uint8_t* at(int64_t p, int64_t column) const {
    return w.data + (first + p) * w.panel_bytes + 16 * column * kBits / 8;
  }
  // Index of the first of 16 entries of panel p's group.
  int64_t group_at(int64_t p, int64_t group) const { return ((first + p) * w.groups + group) * 16; }
  // Constants of a group's columns of panel p.
  struct Of {};
  Of of(int64_t, int64_t) const { return {}; }
  // Prefetches data a few tiles ahead; past the end, of the panels behind `panels`.
  [[gnu::always_inline]] void prefetch(int64_t p, int64_t column, int64_t panels) const {
    int64_t from = 16 * column * kBits / 8 + kFewRowsAhead;
    if (from >= w.panel_bytes) from += (panels - 1) * w.panel_bytes;
    const char* const line = reinterpret_cast<const char*>(at(p, 0)) + from;
    for (int64_t i = 0; i < kStepBytes; i += kLineBytes) _mm_prefetch(line + i, _MM_HINT_T0);
  }
};

// bf16: tiles as they are.
struct Pairs : StoredPanels<16, 32> {
  using StoredPanels::StoredPanels;
  static constexpr bool kInPlace = true;
};

// Four bytes per row for 16 rows, from bytes 16 apart.
[[gnu::always_inline]] inline I bytes_by_rows(const uint8_t* p) {
  alignas(64) static constexpr uint8_t kOrder[] = {
      0,  16, 32, 48, 1,  17, 33, 49, 2,  18, 34, 50, 3,  19, 35, 51, 4,  20, 36, 52, 5,  21,
      37, 53, 6,  22, 38, 54, 7,  23, 39, 55, 8,  24, 40, 56, 9,  25, 41, 57, 10, 26, 42, 58,
      11, 27, 43, 59, 12, 28, 44, 60, 13, 29, 45, 61, 14, 30, 46, 62, 15, 31, 47, 63};
  return _mm512_permutexvar_epi8(load_words(kOrder), load_words(p));
}

// 0 to 15.
inline F small_integers() {
  alignas(64) static constexpr float kNumbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
  return _mm512_load_ps(kNumbers);
}

// Eight 4-bit columns, looked up in `table`.
template <class Each>
[[gnu::always_inline]] inline void each_of_fours(const uint8_t* p, F table, Each each) {
  const I eights = bytes_by_rows(p);
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)  // 4 bits of an element select
    each(i, _mm512_permutexvar_ps(_mm512_srli_epi32(eights, 4 * i), table));
}

// Bits from 0 (8) on of this float hold an integer added to it.
constexpr float kWhole = 0x1p23f, kWhole8 = 0x1p15f;

// Four 8-bit columns minus `less` and `less8`.
template <class Each>
[[gnu::always_inline]] inline void each_of_eights(const uint8_t* p, F less, F less8, Each each) {
  constexpr int kAndOr = 0xea;  // (a & b) | c
  const I low = _mm512_set1_epi32(0xff), high = _mm512_set1_epi32(0xff00);
  I fours = bytes_by_rows(p);
#pragma GCC unroll 2
  for (int i = 0; i < 4; i += 2, fours = _mm512_srli_epi32(fours, 16)) {
    const I even = _mm512_ternarylogic_epi32(fours, low, as_words(set1(kWhole)), kAndOr);
    const I odd = _mm512_ternarylogic_epi32(fours, high, as_words(set1(kWhole8)), kAndOr);
    each(i, sub(as_floats(even), less));
    each(i + 1, sub(as_floats(odd), less8));
  }
}

// Columns i and i + 1, given as bf16 pairs.
template <class Each>
[[gnu::always_inline]] inline void each_of_pairs(I pairs, int i, Each each) {
  each(i, as_floats(_mm512_slli_epi32(pairs, 16)));
  each(i + 1, as_floats(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536))));
}

// Calls each(i / 2, column i, column i + 1) for the columns passed by columns().
template <class Columns, class Each>
[[gnu::always_inline]] inline void by_pairs(Columns columns, Each each) {
  F even = set1(0);
  columns([&](int i, F number) [[gnu::always_inline]] {
    if (i % 2 == 0)
      even = number;
    else
      each(i / 2, even, number);
  });
}

// Lines of numbers exact in bf16.
template <int kLines, class Numbers>
[[gnu::always_inline]] inline void lines_of_floats(const Numbers& numbers, int64_t p,
                                                   int64_t column, int64_t group, int64_t first,
                                                   uint8_t* out) {
  const auto of = numbers.of(p, group);
  constexpr int kAtOnce = Numbers::kFloats / 2;
#pragma GCC unroll 8
  for (int64_t i = 0; i < kLines; i += kAtOnce)
    by_pairs([&](auto each)
                 [[gnu::always_inline]] { numbers.floats(p, column + 2 * (first + i), of, each); },
             [&](int line, F even, F odd) [[gnu::always_inline]] {
               // As pairs_of(), in one operation.
               constexpr __mmask64 kLowHalves = 0x3333333333333333;
               store_words(out + kLineBytes * (i + line),
                           _mm512_mask_alignr_epi8(as_words(odd), kLowHalves, as_words(even),
                                                   as_words(even), 2));
             });
}

// Order of bytes: byte r of two 16-byte lines, kLine and the next, in both halves of word r.
template <int kLine>
[[gnu::always_inline]] inline I two_lines() {
  struct Order {
    alignas(64) uint8_t bytes[64];
    constexpr Order() : bytes() {
      for (int i = 0; i < 64; ++i) bytes[i] = static_cast<uint8_t>(16 * (kLine + i % 2) + i / 4);
    }
  };
  static constexpr Order kOrder;
  return load_words(kOrder.bytes);
}

// 4-bit integers minus 8.
struct MiddleFours : StoredPanels<4, 32> {
  using StoredPanels::StoredPanels;
  static constexpr int kFloats = 8;

  template <class Each>
  [[gnu::always_inline]] void floats(int64_t p, int64_t column, Of, Each each) const {
    each_of_fours(at(p, column), sub(small_integers(), set1(8)), each);
  }
  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t, int64_t first,
                                    uint8_t* out) const {
    // bf16 of -8 to 7, twice: 5 bits of a 16-bit element select, the fifth is ignored.
    alignas(64) static constexpr uint16_t kNumbers[] = {
        0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000,
        0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040,
        0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
    const I numbers = _mm512_load_si512(kNumbers);
    const uint8_t* const from = at(p, column) + 16 * first;
    // Bytes of two lines in both halves of their rows' words; bits of each half's column.
    const I first_two = two_lines<0>(), next_two = two_lines<2>();
    const I low = _mm512_set1_epi32(0x00040000), high = _mm512_set1_epi32(0x000c0008);
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLines; i += 4) {
      const I lines = load_words(from + 16 * i);
      const auto put = [&](int64_t line, I two, I bits) [[gnu::always_inline]] {
        store_words(out + kLineBytes * line,
                    _mm512_permutexvar_epi16(_mm512_srlv_epi16(two, bits), numbers));
      };
      const I first = _mm512_permutexvar_epi8(first_two, lines);
      put(i, first, low), put(i + 1, first, high);
      const I next = _mm512_permutexvar_epi8(next_two, lines);
      put(i + 2, next, low), put(i + 3, next, high);
    }
  }
};

// Integers minus their groups' zero points; exact in bf16.
struct ZeroedFours : StoredPanels<4, 32> {
  using StoredPanels::StoredPanels;
  static constexpr int kFloats = 8;
  struct Of {
    F zero;
  };

  Of of(int64_t p, int64_t group) const { return {load_u8(w.zeros + group_at(p, group))}; }
  template <class Each>
  [[gnu::always_inline]] void floats(int64_t p, int64_t column, Of of, Each each) const {
    each_of_fours(at(p, column), small_integers(),
                  [&](int i, F u) [[gnu::always_inline]] { each(i, sub(u, of.zero)); });
  }
  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t group, int64_t first,
                                    uint8_t* out) const {
    lines_of_floats<kLines>(*this, p, column, group, first, out);
  }
};

struct Eights : StoredPanels<8, 32> {
  using StoredPanels::StoredPanels;
  static constexpr int kFloats = 4;
  struct Of {
    F less, less8;
  };

  Of of(int64_t p, int64_t group) const {
    const F zero = w.zeros ? load_u8(w.zeros + group_at(p, group)) : set1(128);
    return {add(set1(kWhole), zero), add(set1(kWhole8), zero)};
  }
  template <class Each>
  [[gnu::always_inline]] void floats(int64_t p, int64_t column, Of of, Each each) const {
    each_of_eights(at(p, column), of.less, of.less8, each);
  }
  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t group, int64_t first,
                                    uint8_t* out) const {
    lines_of_floats<kLines>(*this, p, column, group, first, out);
  }
};

// bf16 of f8e4m3 without sign.
struct Float8Table {
  alignas(64) uint8_t low[128], high[128];

  constexpr Float8Table() : low(), high() {
    for (int code = 0; code < 128; ++code) {
      const int exponent = code >> 3, digits = code & 7;
      int bits = (exponent + 120) << 7 | digits << 4;
      if (exponent == 0) {  // digits * 2^-9
        const int top = digits >= 4 ? 2 : digits >= 2 ? 1 : 0;
        bits = digits == 0 ? 0 : (118 + top) << 7 | (digits - (1 << top)) << (7 - top);
      }
      if (code == 127) bits = 0x7fc0;
      low[code] = static_cast<uint8_t>(bits & 255);
      high[code] = static_cast<uint8_t>(bits >> 8);
    }
  }
};

// bf16 pairs of two f8e4m3 columns, and of the next two.
struct Pairs8 {
  I first, second;
};
[[gnu::always_inline]] inline Pairs8 pairs_of_f8(const uint8_t* from) {
  static constexpr Float8Table kTable;
  // Four columns of 16 rows as pairs of two columns for four rows, then of the other two.
  alignas(64) static constexpr uint8_t kOrder[] = {
      0,  16, 1,  17, 2,  18, 3,  19, 32, 48, 33, 49, 34, 50, 35, 51, 4,  20, 5,  21, 6,  22,
      7,  23, 36, 52, 37, 53, 38, 54, 39, 55, 8,  24, 9,  25, 10, 26, 11, 27, 40, 56, 41, 57,
      42, 58, 43, 59, 12, 28, 13, 29, 14, 30, 15, 31, 44, 60, 45, 61, 46, 62, 47, 63};
  const I codes = _mm512_permutexvar_epi8(load_words(kOrder), load_words(from));
  const I low =
      _mm512_permutex2var_epi8(load_words(kTable.low), codes, load_words(kTable.low + kLineBytes));
  const I high = _mm512_permutex2var_epi8(load_words(kTable.high), codes,
                                          load_words(kTable.high + kLineBytes));
  const I with_signs = _mm512_or_si512(high, _mm512_and_si512(codes, _mm512_set1_epi8(-128)));
  return {_mm512_unpacklo_epi8(low, with_signs), _mm512_unpackhi_epi8(low, with_signs)};
}

struct Floats8 : StoredPanels<8, 32> {
  using StoredPanels::StoredPanels;
  static constexpr int kFloats = 4;

  template <class Each>
  [[gnu::always_inline]] void floats(int64_t p, int64_t column, Of, Each each) const {
    const Pairs8 pairs = pairs_of_f8(at(p, column));
    each_of_pairs(pairs.first, 0, each);
    each_of_pairs(pairs.second, 2, each);
  }
  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t, int64_t first,
                                    uint8_t* out) const {
    const uint8_t* const from = at(p, column) + 32 * first;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLines / 2; ++i) {
      const Pairs8 pairs = pairs_of_f8(from + kLineBytes * i);
      store_words(out + 2 * kLineBytes * i, pairs.first);
      store_words(out + 2 * kLineBytes * i + kLineBytes, pairs.second);
    }
  }
};

// 8-bit integers minus 128, four columns per row.
struct Bytes : StoredPanels<8, 64> {
  using StoredPanels::StoredPanels;

  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t, int64_t first,
                                    uint8_t* out) const {
    const I middle = _mm512_set1_epi8(-128);
    const uint8_t* const from = at(p, column) + kLineBytes * first;
    const auto make = [&](int64_t i) [[gnu::always_inline]] {
      store_words(out + kLineBytes * i,
                  _mm512_xor_si512(bytes_by_rows(from + kLineBytes * i), middle));
    };
    // Half a tile may be left; x is zero for the other half.
    const int64_t count = min_of(kLines, (w.columns - column) / 4 - first);
    if (count == kLines) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLines; ++i) make(i);
    } else {
      for (int64_t i = 0; i < count; ++i) make(i);
    }
  }
};

// Values rounded to bf16, for any groups, with zero points (kZeros, 4 bits) or minima.
template <int kBits, bool kFloat8, bool kZeros = false>
struct Scaled : StoredPanels<kBits, 32> {
  using Base = StoredPanels<kBits, 32>;
  using Base::Base;
  using Base::w;
  static constexpr int kFloats = 32 / kBits;
  static constexpr int kOneGroup = 16;  // columns of one group
  // value = (integer - zero) * scale + plus; 8 bits: zeros as in Eights.
  struct Of {
    F scale, plus, zero, zero8;
  };

  int64_t group_of(int64_t column) const {
    const auto group = static_cast<uint32_t>(column) / static_cast<uint32_t>(w.group);
    return min_of(group, w.groups - 1);
  }
  [[gnu::always_inline]] Of of(int64_t p, int64_t group) const {
    const int64_t at = this->group_at(p, group);
    Of of = {load(w.scales + at), set1(0), set1(0), set1(0)};
    if (w.minima)
      of.plus = mul(set1(-1), load(w.minima + at));
    else if (kBits == 4 && !kZeros)
      of.plus = mul(set1(-8), of.scale);
    else if (!kFloat8)
      of.zero = w.zeros ? load_u8(w.zeros + at) : set1(128);
    if constexpr (kBits == 8)
      of.zero8 = add(set1(kWhole8), of.zero), of.zero = add(set1(kWhole), of.zero);
    return of;
  }
  template <class Each>
  [[gnu::always_inline]] void floats(int64_t p, int64_t column, const Of& of, Each each) const {
    pairs(this->at(p, column), of,
          [&](int line, I pairs) [[gnu::always_inline]] { each_of_pairs(pairs, 2 * line, each); });
  }
  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t, int64_t first,
                                    uint8_t* out) const {
    constexpr int kMost = kLines < kOneGroup / 2 ? kLines : kOneGroup / 2;
    for (int64_t i = 0; i < kLines; i += kMost) {
      const int64_t from = column + 2 * (first + i);
      const Of of = this->of(p, group_of(from));
#pragma GCC unroll 4
      for (int64_t j = 0; j < kMost; j += kFloats / 2)
        pairs(this->at(p, from + 2 * j), of, [&](int line, I pairs) [[gnu::always_inline]] {
          store_words(out + kLineBytes * (i + j + line), pairs);
        });
    }
  }

 private:
  // Calls each(i / 2, columns i and i + 1) for kFloats columns.
  template <class Each>
  [[gnu::always_inline]] static void pairs(const uint8_t* from, const Of& of, Each each) {
    alignas(64) static constexpr uint16_t kPairs[] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    by_pairs(
        [&](auto each_column) [[gnu::always_inline]] {
          if constexpr (kFloat8) {
            const Pairs8 pairs = pairs_of_f8(from);
            each_of_pairs(pairs.first, 0, each_column);
            each_of_pairs(pairs.second, 2, each_column);
          } else if constexpr (kBits == 8) {
            each_of_eights(from, of.zero, of.zero8, each_column);
          } else {
            each_of_fours(from, small_integers(), each_column);
          }
        },
        [&](int line, F even, F odd) [[gnu::always_inline]] {
          const auto number = [&](F u) [[gnu::always_inline]] {
            return kZeros ? mul(of.scale, sub(u, of.zero)) : fma(of.scale, u, of.plus);
          };
          const I halves = reinterpret_cast<I>(_mm512_cvtne2ps_pbh(number(odd), number(even)));
          each(line, _mm512_permutexvar_epi16(load_words(kPairs), halves));
        });
  }
};

}  // namespace nereid::kernels::cpu::NEREID_SIMD
