// Numbers of the tensors that a quantised matrix is made of, and checks of these.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "io/checkpoint.h"
#include "io/encoding.h"

namespace nereid::io {

inline constexpr int32_t kWordBits = 32;

template <class T>
T load_at(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// Floats of any type, or u8 exponents of two.
struct NumberView {
  const std::byte* data = nullptr;
  DType type = DType::kF32;

  float operator[](int64_t i) const {
    switch (type) {
      case DType::kF32:
        return load_at<float>(data, i);
      case DType::kBF16:
        return to_float(load_at<BF16>(data, i));
      case DType::kF16:
        return to_float(load_at<F16>(data, i));
      case DType::kF8E4M3:
        return to_float(load_at<F8E4M3>(data, i));
      default:
        return power_of_two(load_at<uint8_t>(data, i) - 127);
    }
  }
};

inline int64_t count_of(const StoredTensor& t) {
  return static_cast<int64_t>(t.data.size() / size_of(t.type.value_or(DType::kF32)));
}

inline Status wrong(const StoredTensor& t, std::string_view wanted) {
  return invalid_argument("tensor '{}': {} {} is not {}", t.name.substr(0, 200), t.dtype,
                          t.shape_text(), wanted);
}

inline Status expect(const StoredTensor* t, std::initializer_list<DType> types, int64_t count,
                     std::string_view wanted) {
  if (!t) return invalid_argument("a tensor ({}) is missing", wanted);
  const bool typed = t->type && std::ranges::find(types, *t->type) != types.end();
  if (!typed || count_of(*t) != count) return wrong(*t, wanted);
  return ok();
}

inline constexpr std::initializer_list<DType> kFloats = {DType::kF32, DType::kBF16, DType::kF16};
inline constexpr std::initializer_list<DType> kFloatsOrPowers = {DType::kF32, DType::kBF16,
                                                                 DType::kF16, DType::kU8};

inline NumberView numbers_in(const StoredTensor* t) {
  return t ? NumberView{t->data.data(), *t->type} : NumberView{};
}

// Factors that are all 1 count as none.
inline NumberView factors_of(const StoredTensor* t) {
  const NumberView factors = numbers_in(t);
  bool is_one = true;
  for (int64_t i = 0; t && is_one && i < count_of(*t); ++i) is_one = factors[i] == 1;
  return is_one ? NumberView{} : factors;
}

inline StoredTensor encoded(std::string name, const StoredTensor& data, std::string_view dtype,
                            std::vector<int64_t> shape, std::shared_ptr<const Encoding> encoding) {
  StoredTensor out;
  out.name = std::move(name);
  out.dtype = dtype;
  out.shape = std::move(shape);
  out.data = data.data;
  out.encoding = std::move(encoding);
  return out;
}

}  // namespace nereid::io
