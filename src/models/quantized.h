// Quantised checkpoints in Hugging Face's layout: `quantization_config` of config.json, or
// hf_quant_config.json, and the tensors that together stand for one matrix.
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "io/checkpoint.h"
#include "models/config.h"

namespace nereid::models {

// What such a configuration says of the tensors; their types and shapes say the rest.
struct Quantization {
  std::string method;   // "gptq", "awq", ..., or quant_algo: "FP8", ...; empty: there is none
  int32_t bits = 4;     // of gptq
  int64_t group = 0;    // columns of a group, of packed integers; 0: the whole row
  bool shifted = true;  // gptq: zero points are stored less one
  int64_t block_rows = 1, block_cols = 0;  // of fp8's scales
  bool byte_inputs = false;    // compressed-tensors: products with i8 numbers have i8 inputs
  DType cache = DType::kBF16;  // what it asks for of cached keys and values
  bool row_major = false;      // of quant_algo W8A16 and W4A16: integers lie as the numbers would

  bool empty() const { return method.empty(); }
};

// Of a model directory, given its config.json. InvalidArgument naming field, value and what is
// allowed.
StatusOr<Quantization> read_quantization(const json::object& config,
                                         const std::filesystem::path& dir);

// What `kv_cache_quant_algo` asks for of cached keys and values: null, NO_QUANT, INT8 or FP8.
DType cache_algorithm(Config& config);

// Puts matrices in place of the tensors that they are made of, and leaves out what only scales
// activations or caches. InvalidArgument naming file, tensor and what does not fit.
Status join_quantized(const Quantization& quantization, io::Checkpoint& checkpoint);

}  // namespace nereid::models
