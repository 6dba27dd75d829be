// Rounded matrices in compressed-tensors' formats "pack-quantized" and "float-quantized".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "io/safetensors_writer.h"
#include "kernels/api/weight_format.h"

namespace nereid::convert {

// A rounded matrix [n, k]; codes in row-major order.
struct RoundedTensor {
  std::string name;  // "model.layers.0.mlp.up_proj.weight"
  int64_t n = 0, k = 0;
  std::vector<uint8_t> codes;  // [n, k]
  std::vector<float> scales;   // [n, groups]
  std::vector<uint8_t> zeros;  // [n, groups], if the format has zero points
};

// Whether a matrix with k columns can be stored: whole groups and words.
bool can_store_packed(const kernels::WeightFormat& format, int64_t k);

// The tensors of a matrix, in file order.
std::vector<io::TensorInfo> packed_infos(const kernels::WeightFormat& format,
                                         const std::string& name, int64_t n, int64_t k);
// Writes their bytes in that order.
Status write_packed(const kernels::WeightFormat& format, const RoundedTensor& tensor,
                    io::SafetensorsWriter& writer);

// Modules with another format, by name; empty: none.
struct ModulesOfFormat {
  std::vector<std::string> names;
  kernels::WeightFormat format;
};

// `quantization_config` of config.json. `ignored`: product modules that are not rounded; `cache`:
// KV cache type.
json::object packed_config(const kernels::WeightFormat& format,
                           const std::vector<std::string>& ignored, const ModulesOfFormat& others,
                           DType cache);

}  // namespace nereid::convert
