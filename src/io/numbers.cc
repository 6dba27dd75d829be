#include "io/numbers.h"

#include "tensor/floats.h"

namespace nereid::io {

StatusOr<std::vector<float>> numbers_of(const StoredTensor& tensor) {
  if (tensor.type == DType::kBF16) return floats_of<BF16>(tensor.data);
  if (tensor.type == DType::kF16) return floats_of<F16>(tensor.data);
  if (tensor.type == DType::kF32) return floats_of<float>(tensor.data);
  return invalid_argument("type {} is not one of BF16, F16, F32", tensor.dtype);
}

}  // namespace nereid::io
