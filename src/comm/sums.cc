// Pairwise sums, a block of elements at a time, so that partial sums stay in the first cache. The
// loops are compiled for several instruction sets; each does the same f32 additions.
#include "comm/sums.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace nereid::comm {
namespace {

constexpr int64_t kBlock = 256;   // elements
constexpr int64_t kGroup = 32;    // elements of two vectors
constexpr size_t kMaxLevels = 8;  // of the tree

#define NEREID_INLINE [[gnu::always_inline]] inline

using Floats = float __attribute__((vector_size(64)));
using Words = uint32_t __attribute__((vector_size(64)));

// A group of elements; of bf16 those with even and those with odd indices, so that no element is
// moved. Sums of groups are f32 in this order.
struct Group {
  Floats a, b;
};
constexpr size_t kVector = sizeof(Floats);

NEREID_INLINE void load(const float* from, Group& to) {
  std::memcpy(&to.a, from, kVector);
  std::memcpy(&to.b, from + kGroup / 2, kVector);
}
NEREID_INLINE void load(const BF16* from, Group& to) {
  Words pairs;
  std::memcpy(&pairs, from, kVector);
  to.a = reinterpret_cast<Floats>(pairs << 16);
  to.b = reinterpret_cast<Floats>(pairs & 0xffff0000u);
}

NEREID_INLINE void store(const Group& from, float* to) {
  std::memcpy(to, &from.a, kVector);
  std::memcpy(to + kGroup / 2, &from.b, kVector);
}
// The bits of to_bf16(), in the upper half.
NEREID_INLINE void round(const Floats& from, Words& to) {
  const Words u = reinterpret_cast<Words>(from);
  const Words is_nan = reinterpret_cast<Words>((u & 0x7fffffffu) > 0x7f800000u);
  const Words rounded = u + 0x7fffu + ((u >> 16) & 1u), nan = u | 0x400000u;
  to = (is_nan & nan) | (~is_nan & rounded);
}
NEREID_INLINE void store(const Group& from, BF16* to) {
  Words even, odd;
  round(from.a, even);
  round(from.b, odd);
  const Words pairs = (even >> 16) | (odd & 0xffff0000u);
  std::memcpy(static_cast<void*>(to), &pairs, kVector);
}

// out [n] = a + b; n is a multiple of kGroup.
template <class A, class B, class Out>
NEREID_INLINE void add(const A* a, const B* b, Out* out, int64_t n) {
  for (int64_t i = 0; i < n; i += kGroup) {
    Group x, y;
    load(a + i, x);
    load(b + i, y);
    store({x.a + y.a, x.b + y.b}, out + i);
  }
}

// out [n] = sum of the parts' elements from `first` on, n <= kBlock. The tree is built as a binary
// counter: sums of 2^k parts wait, in order, for their neighbours.
template <class T>
NEREID_INLINE void sum_block(std::span<const std::byte* const> parts, int64_t first, int64_t n,
                             T* out) {
  const auto part = [&](size_t r) { return reinterpret_cast<const T*>(parts[r]) + first; };
  if (parts.size() == 2) return add(part(0), part(1), out, n);
  alignas(64) float sums[kMaxLevels][kBlock];
  size_t level = 0;  // sums that wait
  for (size_t r = 0; r < parts.size(); r += 2) {
    if (r + 1 < parts.size()) {
      add(part(r), part(r + 1), sums[level++], n);
    } else {
      for (int64_t i = 0; i < n; i += kGroup) {
        Group x;
        load(part(r) + i, x);
        store(x, sums[level] + i);
      }
      ++level;
    }
    // As many merges as pairs before this one are complete; at the end all.
    const size_t num_pairs = r / 2 + 1;
    const bool is_last = r + 2 >= parts.size();
    for (size_t left = is_last ? level - 1 : static_cast<size_t>(std::countr_zero(num_pairs));
         left > 0; --left, --level)
      add(sums[level - 2], sums[level - 1], sums[level - 2], n);
  }
  for (int64_t i = 0; i < n; i += kGroup) {
    Group x;
    load(sums[0] + i, x);
    store(x, out + i);
  }
}

template <class T>
NEREID_INLINE void sum_all(std::span<const std::byte* const> parts, int64_t count, std::byte* out) {
  T* const to = reinterpret_cast<T*>(out);
  const int64_t whole = count / kGroup * kGroup;
  for (int64_t first = 0; first < whole; first += kBlock)
    sum_block(parts, first, std::min(kBlock, whole - first), to + first);
  if (whole == count) return;
  // The last elements, with zeros behind them.
  constexpr size_t kMaxParts = 64;
  const size_t bytes = static_cast<size_t>(count - whole) * sizeof(T);
  T rest[kMaxParts][kGroup] = {}, sums[kGroup];
  const std::byte* rests[kMaxParts];
  for (size_t r = 0; r < parts.size(); ++r) {
    std::memcpy(rest[r], reinterpret_cast<const T*>(parts[r]) + whole, bytes);
    rests[r] = reinterpret_cast<const std::byte*>(rest[r]);
  }
  sum_block(std::span<const std::byte* const>(rests, parts.size()), 0, kGroup, sums);
  std::memcpy(to + whole, sums, bytes);
}

using Sum = void (*)(std::span<const std::byte* const>, int64_t, std::byte*);

template <class T>
void sum_generic(std::span<const std::byte* const> parts, int64_t count, std::byte* out) {
  sum_all<T>(parts, count, out);
}
#if defined(__x86_64__)
template <class T>
[[gnu::target("avx2")]] void sum_avx2(std::span<const std::byte* const> parts, int64_t count,
                                      std::byte* out) {
  sum_all<T>(parts, count, out);
}
template <class T>
[[gnu::target("avx512f,avx512bw,avx512vl")]] void sum_avx512(
    std::span<const std::byte* const> parts, int64_t count, std::byte* out) {
  sum_all<T>(parts, count, out);
}
#endif

template <class T>
Sum best_sum() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    return sum_avx512<T>;
  if (__builtin_cpu_supports("avx2")) return sum_avx2<T>;
#endif
  return sum_generic<T>;
}

}  // namespace

void sum_parts(std::span<const std::byte* const> parts, int64_t count, DType type, std::byte* out) {
  static const Sum f32 = best_sum<float>(), bf16 = best_sum<BF16>();
  (type == DType::kF32 ? f32 : bf16)(parts, count, out);
}

}  // namespace nereid::comm
