// Any checkpoint to a directory in the TensorRT-LLM checkpoint layout (models/trtllm.h): what
// `convert_checkpoint` does.
#pragma once

#include <filesystem>
#include <string>

#include "base/status.h"
#include "models/family.h"

namespace nereid::convert {

struct ConvertOptions {
  std::filesystem::path model_dir;   // Hugging Face or checkpoint directory
  std::filesystem::path output_dir;  // created when missing
  // bfloat16 | float16 | float32 | auto: float16 when all tensors are, else bfloat16.
  std::string dtype = "auto";
  bool config_only = false;  // no rank0.safetensors
};

struct ConvertReport {
  std::string dtype;  // chosen
  size_t num_tensors = 0;
  uint64_t bytes = 0;  // of rank0.safetensors' tensors
};

// Writes config.json, rank0.safetensors and copies of the tokenizer's files and
// generation_config.json, so that the directory can be served as it is. An engine built from it
// computes what one built from `model_dir` does, bit for bit, unless `dtype` rounds.
// InvalidArgument: the model is at fault, naming file and field or tensor; an element that is not
// finite or does not fit in float16; output_dir is model_dir. Unavailable: cannot write.
StatusOr<ConvertReport> convert_checkpoint(const ConvertOptions& options);

// Copies what a tokenizer and its chat template are made of, where it is there.
Status copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace nereid::convert
