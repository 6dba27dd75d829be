// Quantised checkpoints in Hugging Face's layout: `quantization_config` of config.json or
// hf_quant_config.json, and the tensors that form one matrix.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "io/checkpoint.h"
#include "models/config.h"

namespace nereid::models {

// Quantisation settings; element types and shapes follow from the tensors.
struct Quantization {
  std::string method;   // "gptq", "awq", ..., or quant_algo: "FP8", ...; empty: not quantised
  int32_t bits = 4;     // gptq
  int64_t group = 0;    // packed integers: columns per group; 0: the whole row
  bool shifted = true;  // gptq: stored zero point = zero point - 1
  int64_t block_rows = 1, block_cols = 0;  // fp8: block size of scales
  bool byte_inputs = false;                // compressed-tensors: i8 products have i8 inputs
  DType cache = DType::kBF16;              // requested KV cache type
  bool row_major = false;  // quant_algo W8A16 and W4A16: integers in row-major order

  bool empty() const { return method.empty(); }
};

// Settings of a directory with this config.json. InvalidArgument: field, value, allowed values.
StatusOr<Quantization> read_quantization(const json::object& config,
                                         const std::filesystem::path& dir);

// KV cache type of `kv_cache_quant_algo`: null, NO_QUANT, INT8 or FP8.
DType cache_algorithm(Config& config);

// Replaces the tensors of each matrix by the matrix, and drops scales of activations and caches.
// InvalidArgument with file, tensor and reason.
Status join_quantized(const Quantization& quantization, io::Checkpoint& checkpoint);

}  // namespace nereid::models
