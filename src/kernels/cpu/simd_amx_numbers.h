// Tiles of weights made of panels of integers and of f8e4m3, as they are stored: 16 lines of 64
// bytes, of the 16 rows of a panel each: pairs of columns in bf16, or four columns in signed bytes.
// lines() makes some of them, from the `first` on.
#pragma once

#include "kernels/cpu/simd_amx.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

// Where the numbers of some panels lie, and what is read of them for a tile. `kTileColumns` are
// those of a tile.
template <int kBits, int64_t kTileColumns>
struct StoredPanels {
  static constexpr int64_t kColumns = kTileColumns;
  static constexpr int64_t kStepBytes = kTileColumns * 16 * kBits / 8;

  const IntegerPanelsRaw& w;
  int64_t first;

  StoredPanels(const IntegerPanelsRaw& weight, int64_t panel) : w(weight), first(panel) {}
  const uint8_t* at(int64_t p, int64_t column) const {
    return w.data + (first + p) * w.panel_bytes + 16 * column * kBits / 8;
  }
  // Of panel p's group: the first of 16.
  int64_t group_at(int64_t p, int64_t group) const { return ((first + p) * w.groups + group) * 16; }
  // Asks for what is read a few tiles later, of the panels that come after `panels` where these
  // end.
  [[gnu::always_inline]] void prefetch(int64_t p, int64_t column, int64_t panels) const {
    int64_t from = 16 * column * kBits / 8 + kFewRowsAhead;
    if (from >= w.panel_bytes) from += (panels - 1) * w.panel_bytes;
    const char* const line = reinterpret_cast<const char*>(at(p, 0)) + from;
    for (int64_t i = 0; i < kStepBytes; i += kLineBytes) _mm_prefetch(line + i, _MM_HINT_T0);
  }
};

inline I words_at(const uint8_t* p) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// The lower and the upper four bits of bytes, as floats.
struct Fours {
  F low, high;
};
[[gnu::always_inline]] inline Fours fours_at(const uint8_t* p) {
  alignas(64) static constexpr float kFloats[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                  8, 9, 10, 11, 12, 13, 14, 15};
  const I words = words_at(p);
  const F floats = _mm512_load_ps(kFloats);  // four bits of an element choose
  return {_mm512_permutexvar_ps(words, floats),
          _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4), floats)};
}

// Integers of four bits less 8.
struct MiddleFours : StoredPanels<4, 32> {
  using StoredPanels::StoredPanels;

  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t, int64_t first,
                                    uint8_t* out) const {
    // bf16 of -8 to 7, twice: five bits of a 16-bit element choose, the fifth of them any.
    alignas(64) static constexpr uint16_t kNumbers[] = {
        0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000,
        0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040,
        0xc000, 0xbf80, 0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
    const I numbers = _mm512_load_si512(kNumbers);
    const uint8_t* const from = at(p, column) + 16 * first;
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLines; ++i) {
      const I x = words_at(from + 16 * i);
      store_words(out + kLineBytes * i,
                  _mm512_permutexvar_epi16(_mm512_or_si512(x, _mm512_slli_epi32(x, 12)), numbers));
    }
  }
};

// Integers less the zero points of their groups; all of them are in bf16.
struct ZeroedFours : StoredPanels<4, 32> {
  using StoredPanels::StoredPanels;

  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t group, int64_t first,
                                    uint8_t* out) const {
    const F zero = load_u8(w.zeros + group_at(p, group));
    const uint8_t* const from = at(p, column) + 16 * first;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLines; ++i) {
      const Fours u = fours_at(from + 16 * i);
      store_words(out + kLineBytes * i, pairs_of(sub(u.low, zero), sub(u.high, zero)));
    }
  }
};

struct Eights : StoredPanels<8, 32> {
  using StoredPanels::StoredPanels;

  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t group, int64_t first,
                                    uint8_t* out) const {
    // The lower bits of a float that begins with this are an integer added to it.
    constexpr float kWhole = 0x1p23f;
    const I whole = as_words(set1(kWhole));
    const F less = add(set1(kWhole), w.zeros ? load_u8(w.zeros + group_at(p, group)) : set1(128));
    const uint8_t* const from = at(p, column) + 32 * first;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLines; ++i) {
      const F low = as_floats(_mm512_or_si512(words_at(from + 32 * i), whole));
      const F high = as_floats(_mm512_or_si512(words_at(from + 32 * i + 16), whole));
      store_words(out + kLineBytes * i, pairs_of(sub(low, less), sub(high, less)));
    }
  }
};

// bf16 of f8e4m3 without signs.
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

struct Floats8 : StoredPanels<8, 32> {
  using StoredPanels::StoredPanels;

  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t, int64_t first,
                                    uint8_t* out) const {
    static constexpr Float8Table kTable;
    // Four columns of 16 rows, as pairs of two columns of four rows and then of the other two.
    alignas(64) static constexpr uint8_t kOrder[] = {
        0,  16, 1,  17, 2,  18, 3,  19, 32, 48, 33, 49, 34, 50, 35, 51, 4,  20, 5,  21, 6,  22,
        7,  23, 36, 52, 37, 53, 38, 54, 39, 55, 8,  24, 9,  25, 10, 26, 11, 27, 40, 56, 41, 57,
        42, 58, 43, 59, 12, 28, 13, 29, 14, 30, 15, 31, 44, 60, 45, 61, 46, 62, 47, 63};
    const I order = load_words(kOrder), signs = _mm512_set1_epi8(-128);
    const uint8_t* const from = at(p, column) + 32 * first;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kLines / 2; ++i) {
      const I codes = _mm512_permutexvar_epi8(order, load_words(from + kLineBytes * i));
      const I low = _mm512_permutex2var_epi8(load_words(kTable.low), codes,
                                             load_words(kTable.low + kLineBytes));
      const I high = _mm512_permutex2var_epi8(load_words(kTable.high), codes,
                                              load_words(kTable.high + kLineBytes));
      const I with_signs = _mm512_or_si512(high, _mm512_and_si512(codes, signs));
      store_words(out + 2 * kLineBytes * i, _mm512_unpacklo_epi8(low, with_signs));
      store_words(out + 2 * kLineBytes * i + kLineBytes, _mm512_unpackhi_epi8(low, with_signs));
    }
  }
};

// Integers of 8 bits less 128, four columns of each row.
struct Bytes : StoredPanels<8, 64> {
  using StoredPanels::StoredPanels;

  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t, int64_t first,
                                    uint8_t* out) const {
    alignas(64) static constexpr uint8_t kOrder[] = {
        0,  16, 32, 48, 1,  17, 33, 49, 2,  18, 34, 50, 3,  19, 35, 51, 4,  20, 36, 52, 5,  21,
        37, 53, 6,  22, 38, 54, 7,  23, 39, 55, 8,  24, 40, 56, 9,  25, 41, 57, 10, 26, 42, 58,
        11, 27, 43, 59, 12, 28, 44, 60, 13, 29, 45, 61, 14, 30, 46, 62, 15, 31, 47, 63};
    const I order = load_words(kOrder), middle = _mm512_set1_epi8(-128);
    const uint8_t* const from = at(p, column) + kLineBytes * first;
    // Half a tile may be left; what x has for the other half is zero.
    const int64_t count = min_of(kLines, (w.columns - column) / 4 - first);
#pragma GCC unroll 8
    for (int64_t i = 0; i < count; ++i)
      store_words(out + kLineBytes * i,
                  _mm512_xor_si512(
                      _mm512_permutexvar_epi8(order, load_words(from + kLineBytes * i)), middle));
  }
};

// What numbers stand for, rounded to bf16: of any groups, with zero points or minima.
template <int kBits, bool kFloat8>
struct Scaled : StoredPanels<kBits, 32> {
  using Base = StoredPanels<kBits, 32>;
  using Base::Base;
  using Base::w;

  template <int kLines>
  [[gnu::always_inline]] void lines(int64_t p, int64_t column, int64_t, int64_t first,
                                    uint8_t* out) const {
    constexpr int kMost = kLines < kTileRows / 2 ? kLines : kTileRows / 2;
    for (int64_t i = 0; i < kLines; i += kMost)
      of_group<kMost>(p, column + 2 * (first + i), out + kLineBytes * i);
  }

 private:
  // The columns are of one group.
  template <int kLines>
  [[gnu::always_inline]] void of_group(int64_t p, int64_t column, uint8_t* out) const {
    alignas(64) static constexpr uint16_t kPairs[] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const auto group = static_cast<uint32_t>(column) / static_cast<uint32_t>(w.group);
    const int64_t at = this->group_at(p, min_of(group, w.groups - 1));
    const F scale = load(w.scales + at);
    const F less = w.minima  ? mul(set1(-1), load(w.minima + at))
                   : w.zeros ? mul(set1(-1), load_u8(w.zeros + at))
                             : set1(kFloat8 ? 0 : -(1 << (kBits - 1)));
    const bool minima = w.minima != nullptr;
    const auto number = [&](F u) {
      return minima ? fma(scale, u, less) : mul(scale, add(u, less));
    };
    const uint8_t* from = this->at(p, column);
    for (int64_t i = 0; i < kLines; ++i, from += 4 * kBits, out += kLineBytes) {
      Fours u;
      if constexpr (kBits == 4)
        u = fours_at(from);
      else if constexpr (kFloat8)
        u = {mul(set1(0x1p120f), load_f8(from)), mul(set1(0x1p120f), load_f8(from + 16))};
      else
        u = {load_u8(from), load_u8(from + 16)};
      const I halves = reinterpret_cast<I>(_mm512_cvtne2ps_pbh(number(u.high), number(u.low)));
      store_words(out, _mm512_permutexvar_epi16(load_words(kPairs), halves));
    }
  }
};

}  // namespace nereid::kernels::cpu::NEREID_SIMD
