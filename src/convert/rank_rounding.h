// Weights of a TensorRT-LLM checkpoint without calibration: numbers of 8 bits or 4 with a scale for
// each row of a rank's tensor, as convert_checkpoint's flags ask for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace nereid::convert {

enum class RankType : uint8_t {
  kFloat,
  kInt8,
  kInt4,  // bytes [out / 2, in] with rows 2 i in the low halves
  kFp8Rows,
};

// A number as f32, f16 or bf16, to the nearest even; false when it is too large.
bool store_as(DType type, float value, std::byte* out);

// Appends the codes of whole rows [n, k] to `codes` (n is even for four bits), and their scales.
// Integers are rounded with scales of `dtype`: largest magnitude / 128 or / 8; f8e4m3 with largest
// magnitude / 448, at least 1 / (448 * 512). Source: models/convert_utils.py of
// NVIDIA/TensorRT-LLM.
void round_rows(RankType type, DType dtype, std::span<const float> rows, int64_t k,
                std::vector<std::byte>& codes, std::vector<float>& scales);

}  // namespace nereid::convert
