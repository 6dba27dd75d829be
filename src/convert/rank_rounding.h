// Weights of a TensorRT-LLM checkpoint without calibration: numbers of 8 bits or 4 with a scale for
// each row of a rank's tensor, as convert_checkpoint's flags ask for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "io/safetensors_writer.h"
#include "models/trtllm.h"

namespace nereid::convert {

enum class RankType : uint8_t {
  kFloat,
  kInt8,     // quant_algo W8A16, row by row
  kInt4,     // W4A16, bytes [out / 2, in] with rows 2 i in the low halves
  kFp8Rows,  // FP8_PER_CHANNEL_PER_TOKEN
};

// A number as f32, f16 or bf16, to the nearest even; false when it is too large.
bool store_as(DType type, float value, std::byte* out);

// "" | int8 | int4 | fp8_rowwise
StatusOr<RankType> rank_type(std::string_view word);

// `quantization` of config.json; `cache`: what is asked for of cached keys and values.
json::object quantization_of(RankType type, DType cache);

// Whether `tensor` is rounded; otherwise it is written as it is.
bool is_rounded(RankType type, const models::RankTensor& tensor);

// The weight's and its scales' place in the file; `dtype` is that of the checkpoint.
// InvalidArgument: an odd number of rows of four bits.
StatusOr<std::vector<io::TensorInfo>> rounded_infos(RankType type, const models::RankTensor& tensor,
                                                    DType dtype);

// Appends the codes of whole rows [n, k] to `codes` (n is even for four bits), and their scales.
// Integers are rounded with scales of `dtype`: largest magnitude / 128 or / 8; f8e4m3 with largest
// magnitude / 448, at least 1 / (448 * 512). Source: models/convert_utils.py of
// NVIDIA/TensorRT-LLM.
void round_rows(RankType type, DType dtype, std::span<const float> rows, int64_t k,
                std::vector<std::byte>& codes, std::vector<float>& scales);

}  // namespace nereid::convert
