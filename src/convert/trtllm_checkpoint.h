// `convert_checkpoint`: writes any checkpoint in the TensorRT-LLM layout (models/formats/trtllm.h).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "convert/rank_format.h"
#include "convert/rank_writer.h"
#include "models/family.h"

namespace nereid::convert {

struct ConvertOptions {
  std::filesystem::path model_dir;   // Hugging Face, Meta or checkpoint directory, or GGUF file
  std::filesystem::path output_dir;  // see convert_checkpoint()
  // bfloat16 | float16 | float32 | auto: config.json's type with float16 in place of float32; if
  // absent bfloat16 if any tensor is, else float16.
  std::string dtype = "auto";
  // Format of products; "": `dtype`. Stored codes of that format are passed through. Floats are
  // rounded for int8 | int4 | fp8_rowwise (quant_algo W8A16, W4A16, FP8_PER_CHANNEL_PER_TOKEN),
  // with a scale per row of a rank; they stay floats for int4_awq | w4a8_awq | int4_gptq |
  // int8_gptq (W4A16_AWQ, W4A8_AWQ, W4A16_GPTQ, W8A16_GPTQ) | fp8 (FP8) | int8_sq
  // (W8A8_SQ_PER_CHANNEL) | sq_per_channel_per_token | sq_per_tensor_per_token |
  // sq_per_channel_per_tensor | sq_per_tensor (W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN, ...).
  std::string weights;
  bool rounds = true;      // false: nothing is rounded
  int32_t group = 0;       // required group size of the source; 0: any
  Magnitudes magnitudes;   // see has_static_inputs(); also for 8-bit cache factors
  double smoothing = 0.5;  // SmoothQuant strength of the source, for config.json
  // KV cache type in config.json: bf16, i8 or f8e4m3; absent: the source's.
  std::optional<DType> cache;
  bool config_only = false;         // no rankN.safetensors
  bool implicit_positions = false;  // T5: no copy of the decoder's position bias for all layers
  models::Ranks ranks;              // partition of the weights; -1: see models::check_ranks()
  std::function<void(const Progress&)> progress;  // called often
};

struct ConvertReport {
  std::string dtype;  // as chosen
  size_t num_tensors = 0;
  uint64_t bytes = 0;  // of the tensors of all ranks
};

// Writes config.json, rankN.safetensors, tokenizer files and generation_config.json; the directory
// can be served. An encoder-decoder model has two such folders in it, `encoder` and `decoder`. Its
// engine computes bit for bit what one built from `model_dir` does, unless `dtype` or `weights`
// rounds. Input column factors are written as ones, because the source has them in norms and
// products. Memory: some megabytes of the model. The directory appears when complete, replacing an
// older checkpoint; deterministic bytes. InvalidArgument: fault of the model, with file and field
// or tensor; sizes that the ranks do not divide; an element that is not finite or out of float16's
// range; output_dir is model_dir or has other files. Unimplemented: not representable in the
// layout. Unavailable: cannot write.
StatusOr<ConvertReport> convert_checkpoint(const ConvertOptions& options);

// Whether `name` is a file of a checkpoint directory, which a new checkpoint may replace.
bool is_checkpoint_file(std::string_view name);

// Copies the files of tokenizer and chat template that exist.
Status copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace nereid::convert
