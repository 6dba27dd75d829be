// The KV cache of a model by groups of layers.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "nereid/stats.h"

namespace nereid::exec {

inline constexpr size_t kMaxCacheGroups = kMaxKvGroups;

// Something for each cache group of a model, in their order. Made from one value it is that of
// group 0, which most models have alone.
template <class T>
struct PerGroup {
  T of[kMaxCacheGroups] = {};

  constexpr PerGroup() = default;
  template <std::convertible_to<T> U>
  constexpr PerGroup(U&& first) : of{T(std::forward<U>(first))} {}  // NOLINT: a plain value will do
  constexpr T& operator[](size_t group) { return of[group]; }
  constexpr const T& operator[](size_t group) const { return of[group]; }
  bool operator==(const PerGroup&) const = default;
};

// Layers that look equally far back and whose keys and values have one shape: a sequence keeps the
// same positions for all of them, in the blocks of one table.
struct CacheGroup {
  int32_t window = 0;  // positions a token sees, itself included; 0 = all
  int32_t sink = 0;    // leading positions that stay visible beyond the window
  int32_t num_kv_heads = 0, head_dim = 0;
  int32_t latent = 0;  // columns of a value, which lies in its key; 0: it does not
  std::vector<int32_t> layers;

  // Whether no token from position `start` on sees any of [begin, end).
  bool is_unseen(int64_t begin, int64_t end, int32_t start) const {
    return window > 0 && begin >= sink && end <= int64_t{start} + 1 - window;
  }
};

}  // namespace nereid::exec
