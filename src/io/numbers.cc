#include "io/numbers.h"

#include <cstring>
#include <type_traits>

namespace nereid::io {
namespace {

template <class T>
std::vector<float> read_numbers(std::span<const std::byte> bytes) {
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

}  // namespace

StatusOr<std::vector<float>> numbers_of(const StoredTensor& tensor) {
  if (tensor.type == DType::kBF16) return read_numbers<BF16>(tensor.data);
  if (tensor.type == DType::kF16) return read_numbers<F16>(tensor.data);
  if (tensor.type == DType::kF32) return read_numbers<float>(tensor.data);
  return invalid_argument("type {} is not one of BF16, F16, F32", tensor.dtype);
}

}  // namespace nereid::io
