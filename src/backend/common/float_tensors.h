// Tensors of floating-point numbers in the types that models declare for them: FP32, FP16, BF16.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/common/triton.h"
#include "base/status.h"

namespace nereid::backend {

// The elements as bits of bf16 numbers. InvalidArgument, naming the input: another type.
StatusOr<std::vector<uint16_t>> read_bf16(std::string_view name, const InputView& view);

// `values` as elements of `type`. Unimplemented, naming the tensor: another type.
StatusOr<std::string> float_bytes(std::string_view name, std::span<const float> values,
                                  TRITONSERVER_DataType type);

}  // namespace nereid::backend
