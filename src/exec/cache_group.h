// Cache groups of a model's KV cache.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "nereid/stats.h"

namespace nereid::exec {

inline constexpr size_t kMaxCacheGroups = kMaxKvGroups;

// One value per cache group. A single value sets group 0, the only one of most models.
template <class T>
struct PerGroup {
  T of[kMaxCacheGroups] = {};

  constexpr PerGroup() = default;
  template <std::convertible_to<T> U>
  constexpr PerGroup(U&& first) : of{T(std::forward<U>(first))} {}  // NOLINT: implicit
  constexpr T& operator[](size_t group) { return of[group]; }
  constexpr const T& operator[](size_t group) const { return of[group]; }
  bool operator==(const PerGroup&) const = default;
};

// Cache group: layers with equal window, KV heads and widths. One block table of each sequence.
struct CacheGroup {
  int32_t window = 0;  // sliding window: positions a token attends to, itself included; 0 = all
  int32_t sink = 0;    // attention sinks: leading positions visible beyond the window
  int32_t num_kv_heads = 0, head_dim = 0;
  int32_t latent = 0;  // MLA: width of a value, stored in its key; 0: separate values
  std::vector<int32_t> layers;

  // Whether no token at positions >= `start` attends to [begin, end).
  bool is_unseen(int64_t begin, int64_t end, int32_t start) const {
    return window > 0 && begin >= sink && end <= int64_t{start} + 1 - window;
  }
};

}  // namespace nereid::exec
