// Linear with integer weights in 16-bit products, and its rows of x.
#include "kernels/cpu/simd_words.h"

#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

void linear_fixed(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin, int64_t row_end,
                  int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  if (w.bits == 4)
    words_block<FixedTotals, 4>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
  else
    words_block<FixedTotals, 8>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
}

void linear_bytes(const LinearRaw& a, const IntegerPanelsRaw& w, int64_t row_begin, int64_t row_end,
                  int64_t panel_begin, int64_t panel_end, uint16_t* memory) {
  words_block<ByteTotals, 8>(a, w, row_begin, row_end, panel_begin, panel_end, memory);
}

void byte_row(const int8_t* x, int64_t count, void* out) {
  auto* words = static_cast<int16_t*>(out);
  int sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += x[i];
  int64_t i = 0;
  for (; i + kQuad <= count; i += kQuad)
    words[i] = x[i], words[i + 1] = x[i + 2], words[i + 2] = x[i + 1], words[i + 3] = x[i + 3];
  if (i < count) {
    int16_t quad[kQuad] = {};
    for (int64_t j = i; j < count; ++j) quad[j - i] = x[j];
    const int16_t ordered[kQuad] = {quad[0], quad[2], quad[1], quad[3]};
    __builtin_memcpy(words + i, ordered, sizeof(ordered));
    i += kQuad;
  }
  __builtin_memcpy(words + i, &sum, sizeof(sum));
}

namespace {

float float_of(uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof(x));
  return x;
}

// Converts a piece's numbers to steps: i16 in the order of quads.
FixedPiece fixed_piece(const uint16_t* x, int64_t count, int16_t* out) {
  // bf16 magnitudes compare like their bits; infinity and NaN are the largest.
  uint16_t most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto magnitude = static_cast<uint16_t>(x[i] & 0x7fff);
    most = most < magnitude ? magnitude : most;
  }
  // The 8 significant bits of the largest number become the upper ones of 15: numbers up to 128
  // times smaller stay exact.
  constexpr int kBias = 127, kUpper = 14, kLeast = kUpper + 1;
  const int exponent = most >> 7 < kLeast ? kLeast : most >> 7;
  const bool finite = exponent < 255;
  const float step = finite ? float_of(static_cast<uint32_t>(exponent - kUpper) << 23) : 0;
  const F factor =
      set1(finite ? float_of(static_cast<uint32_t>(2 * kBias + kUpper - exponent) << 23) : 0);
  F total = set1(0);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const F number = round_nearest(mul(load_bf16(x + i), factor));
    total = add(total, number);
    store_quads(out + i, number);
  }
  if (i < count) {
    const F number = round_nearest(mul(load_bf16_part(x + i, count - i), factor));
    total = add(total, number);
    int16_t part[kLanes];
    store_quads(part, number);
    __builtin_memcpy(out + i, part,
                     static_cast<size_t>((count - i + kQuad - 1) / kQuad * kQuad) * 2);
  }
  if (!finite) return {__builtin_nanf(""), __builtin_nanf("")};
  return {step, step * sum(total)};
}

}  // namespace

void fixed_row(const uint16_t* x, int64_t k, int64_t group, void* out) {
  auto* const words = static_cast<int16_t*>(out);
  auto* piece = const_cast<FixedPiece*>(pieces_at(words, k));
  for (int64_t g = 0; g < k; g += group) {
    const int64_t end = min_of(k, g + group);
    for (int64_t begin = g; begin < end; begin += kPieceColumns)
      *piece++ = fixed_piece(x + begin, min_of(begin + kPieceColumns, end) - begin, words + begin);
  }
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
