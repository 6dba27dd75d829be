// LoRA; Dot computes a x: column step kStep, numbers V of that many columns, load(), load_part(),
// add(sum, a, x).
#pragma once

#include "kernels/cpu/simd.h"

namespace nereid::kernels::cpu::NEREID_SIMD {

constexpr int kSums = 4;  // rows of a computed side by side

// low[r][first + j] = a[first + j] . x[r]; equal bits for any number of rows.
template <class Dot, int kRows>
void low_sums(const LowRankRaw& a, int64_t first, float (&low)[kRows][kMaxLowRank + kSums]) {
  F total[kRows][kSums];
  const uint16_t* rows[kSums];
  for (int j = 0; j < kSums; ++j) {
    rows[j] = a.a + min_of(first + j, a.rank - 1) * a.k;
    for (int r = 0; r < kRows; ++r) total[r][j] = set1(0);
  }
  const auto add_columns = [&](auto load) [[gnu::always_inline]] {
    typename Dot::V x[kRows];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) x[r] = load(a.x[r]);
#pragma GCC unroll 4
    for (int j = 0; j < kSums; ++j) {
      const typename Dot::V row = load(rows[j]);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) total[r][j] = Dot::add(total[r][j], row, x[r]);
    }
  };
  int64_t i = 0;
  for (; i + Dot::kStep <= a.k; i += Dot::kStep)
    add_columns([&](const uint16_t* p) { return Dot::load(p + i); });
  if (i < a.k) add_columns([&](const uint16_t* p) { return Dot::load_part(p + i, a.k - i); });
  for (int r = 0; r < kRows; ++r)
    sums(total[r][0], total[r][1], total[r][2], total[r][3], &low[r][first]);
}

// Columns [c, c + kVecs * kLanes) of all rows.
template <int kRows, int kVecs>
void add_low(const LowRankRaw& a, int64_t c, const float (&low)[kRows][kMaxLowRank + kSums]) {
  F total[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) total[r][v] = set1(0);
  for (int64_t j = 0; j < a.rank; ++j) {
    F b[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) b[v] = load_bf16(a.b + j * a.n + c + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const F factor = set1(low[r][j]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) total[r][v] = fma(factor, b[v], total[r][v]);
    }
  }
  const F scale = set1(a.scale);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      const int64_t at = c + v * kLanes;
      F y = add(load(a.y[r] + at), mul(total[r][v], scale));
      if (a.gain) y = add(fma(load_bf16(a.gain + at), y, y), load_bf16(a.gain + a.n + at));
      store(a.y[r] + at, y);
    }
}

// The remaining columns from c on, fewer than a vector.
template <int kRows>
void add_low_part(const LowRankRaw& a, int64_t c, const float (&low)[kRows][kMaxLowRank + kSums]) {
  const int64_t left = a.n - c;
  for (int r = 0; r < kRows; ++r) {
    F total = set1(0);
    for (int64_t j = 0; j < a.rank; ++j)
      total = fma(set1(low[r][j]), load_bf16_part(a.b + j * a.n + c, left), total);
    F y = add(load_part(a.y[r] + c, left), mul(total, set1(a.scale)));
    if (a.gain)
      y = add(fma(load_bf16_part(a.gain + c, left), y, y), load_bf16_part(a.gain + a.n + c, left));
    store_part(a.y[r] + c, y, left);
  }
}

template <class Dot, int kRows>
void low_rank_rows(const LowRankRaw& a) {
  float low[kRows][kMaxLowRank + kSums];
  if (a.x[0]) {
    for (int64_t j = 0; j < a.rank; j += kSums) low_sums<Dot, kRows>(a, j, low);
  } else {
    for (int64_t j = 0; j < a.rank; ++j) {
      const uint32_t bits = static_cast<uint32_t>(a.a[j]) << 16;
      __builtin_memcpy(&low[0][j], &bits, sizeof(bits));
    }
  }
  constexpr int kVecs = kRegisters == 32 ? 4 : 2;
  int64_t c = 0;
  for (; c + kVecs * kLanes <= a.n; c += kVecs * kLanes) add_low<kRows, kVecs>(a, c, low);
  for (; c + kLanes <= a.n; c += kLanes) add_low<kRows, 1>(a, c, low);
  if (c < a.n) add_low_part(a, c, low);
}

// As many rows at once as registers allow.
template <class Dot>
void low_rank_with(LowRankRaw a) {
  constexpr int kAtOnce = kRegisters == 32 ? kLowRankRows : kLowRankRows / 2;
  for (; a.rows > 0; a.rows -= kAtOnce) {
    if (a.rows == 1)
      low_rank_rows<Dot, 1>(a);
    else if (kAtOnce == 2 || a.rows == 2)
      low_rank_rows<Dot, 2>(a);
    else if (a.rows == 3)
      low_rank_rows<Dot, 3>(a);
    else
      low_rank_rows<Dot, kAtOnce>(a);
    for (int r = 0; r + kAtOnce < kLowRankRows; ++r)
      a.x[r] = a.x[r + kAtOnce], a.y[r] = a.y[r + kAtOnce];
  }
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
