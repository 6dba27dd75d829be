// Rounded matrices as compressed-tensors stores them.
// Source: the formats "pack-quantized" and "float-quantized" of compressed-tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "io/safetensors_writer.h"
#include "kernels/api/weight_format.h"

namespace nereid::convert {

// A matrix [n, k] of a checkpoint; the codes of a row's numbers one behind the other.
struct RoundedTensor {
  std::string name;  // "model.layers.0.mlp.up_proj.weight"
  int64_t n = 0, k = 0;
  std::vector<uint8_t> codes;  // [n, k]
  std::vector<float> scales;   // [n, groups]
  std::vector<uint8_t> zeros;  // likewise, where the format has them
};

// Whether a matrix [n, k] can be stored in a format: whole groups and words.
bool can_store_packed(const kernels::WeightFormat& format, int64_t k);

// The tensors that stand for it, in file order.
std::vector<io::TensorInfo> packed_infos(const kernels::WeightFormat& format,
                                         const std::string& name, int64_t n, int64_t k);
// Their bytes, in that order.
Status write_packed(const kernels::WeightFormat& format, const RoundedTensor& tensor,
                    io::SafetensorsWriter& writer);

// Modules that have a format of their own, by name; empty: none.
struct ModulesOfFormat {
  std::vector<std::string> names;
  kernels::WeightFormat format;
};

// `quantization_config` of config.json. `ignored`: modules of products that are not rounded;
// `cache`: what is asked for of cached keys and values.
json::object packed_config(const kernels::WeightFormat& format,
                           const std::vector<std::string>& ignored, const ModulesOfFormat& others,
                           DType cache);

}  // namespace nereid::convert
