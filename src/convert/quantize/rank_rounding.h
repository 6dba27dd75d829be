// Plain rounding of weights for TensorRT-LLM checkpoints: 8 or 4 bits with a scale per row of a
// rank's tensor, as convert_checkpoint's flags.
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
  kInt4,  // bytes [out / 2, in], rows 2 i in the low halves
  kFp8Rows,
};

// Stores a number as f32, f16 or bf16 (round to nearest even); false: out of range.
bool store_as(DType type, float value, std::byte* out);

// Appends the codes of rows [n, k] (n even for 4 bits) and their scales. Integer scales, rounded to
// `dtype`: largest magnitude / 128 or / 8; f8e4m3: max(largest magnitude / 448, 1 / (448 * 512)).
// Source: models/convert_utils.py of NVIDIA/TensorRT-LLM.
void round_rows(RankType type, DType dtype, std::span<const float> rows, int64_t k,
                std::vector<std::byte>& codes, std::vector<float>& scales);

}  // namespace nereid::convert
