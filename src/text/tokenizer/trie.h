// A map of byte strings to values, walked byte by byte. Immutable.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace nereid::text {

class Trie {
 public:
  static constexpr uint32_t kRoot = 0;

  Trie() : Trie(std::vector<std::pair<std::string_view, int32_t>>{}) {}
  // Values are not negative; of equal keys the last counts. The empty key is ignored. 9 bytes for
  // each distinct prefix.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> entries);

  // The child of `node` for `byte`, or kRoot without one.
  uint32_t step(uint32_t node, uint8_t byte) const {
    if (node == kRoot) return root_[byte];
    const uint32_t end = first_child_[node + 1];
    for (uint32_t child = first_child_[node]; child < end; ++child) {
      if (labels_[child] >= byte) return labels_[child] == byte ? child : kRoot;
    }
    return kRoot;
  }
  // The value of the key that ends at `node`, or -1.
  int32_t value(uint32_t node) const { return values_[node]; }

  struct Match {
    int32_t value = -1;  // -1: no key is a prefix of the text
    size_t length = 0;   // bytes of the key
    size_t walked = 0;   // bytes read
  };
  // The longest key that is a prefix of `text`.
  Match longest(std::string_view text) const;

 private:
  std::array<uint32_t, 256> root_{};
  std::vector<uint32_t> first_child_;  // by node; children are consecutive, in order of their label
  std::vector<uint8_t> labels_;
  std::vector<int32_t> values_;
};

}  // namespace nereid::text
