// What adapters add to products.
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {
namespace {

constexpr int64_t kAtOnce = 4;  // independent sums, so that one does not wait for the other

// low[j] = a[j] . x for kCount rows of a; each row's sum is made alike, whatever kCount is.
template <int64_t kCount>
void low_sums(const LowRankRaw& a, int64_t first, float* low) {
  F sums[kCount];
  for (F& s : sums) s = set1(0);
  const uint16_t* const rows = a.a + first * a.k;
  int64_t i = 0;
  for (; i + kLanes <= a.k; i += kLanes) {
    const F x = load_bf16(a.x + i);
    for (int64_t j = 0; j < kCount; ++j) sums[j] = fma(load_bf16(rows + j * a.k + i), x, sums[j]);
  }
  if (i < a.k) {
    const F x = load_bf16_part(a.x + i, a.k - i);
    for (int64_t j = 0; j < kCount; ++j)
      sums[j] = fma(load_bf16_part(rows + j * a.k + i, a.k - i), x, sums[j]);
  }
  for (int64_t j = 0; j < kCount; ++j) low[first + j] = sum(sums[j]);
}

}  // namespace

void low_rank(const LowRankRaw& a) {
  float low[kMaxLowRank];
  int64_t j = 0;
  for (; j + kAtOnce <= a.rank; j += kAtOnce) low_sums<kAtOnce>(a, j, low);
  for (; j < a.rank; ++j) low_sums<1>(a, j, low);
  const F scale = set1(a.scale);
  int64_t c = 0;
  for (; c + kLanes <= a.n; c += kLanes) {
    F total = set1(0);
    for (j = 0; j < a.rank; ++j) total = fma(set1(low[j]), load_bf16(a.b + j * a.n + c), total);
    F y = add(load(a.y + c), mul(total, scale));
    if (a.gain) y = add(fma(load_bf16(a.gain + c), y, y), load_bf16(a.gain + a.n + c));
    store(a.y + c, y);
  }
  if (c == a.n) return;
  const int64_t left = a.n - c;
  F total = set1(0);
  for (j = 0; j < a.rank; ++j)
    total = fma(set1(low[j]), load_bf16_part(a.b + j * a.n + c, left), total);
  F y = add(load_part(a.y + c, left), mul(total, scale));
  if (a.gain)
    y = add(fma(load_bf16_part(a.gain + c, left), y, y), load_bf16_part(a.gain + a.n + c, left));
  store_part(a.y + c, y, left);
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
