// Conversion of stored numbers to f32.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "tensor/dtype.h"

namespace nereid {

// Consecutive numbers of type T (BF16, F16 or float) at any address; trailing bytes are ignored.
template <class T>
std::vector<float> floats_of(std::span<const std::byte> bytes) {
  std::vector<float> numbers;
  numbers.reserve(bytes.size() / sizeof(T));
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T x;
    std::memcpy(&x, &bytes[i], sizeof(T));
    if constexpr (std::is_same_v<T, float>)
      numbers.push_back(x);
    else
      numbers.push_back(to_float(x));
  }
  return numbers;
}

}  // namespace nereid
