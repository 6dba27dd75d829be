// Any checkpoint to a directory in the TensorRT-LLM checkpoint layout (models/trtllm.h): what
// `convert_checkpoint` does.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "convert/rank_format.h"
#include "models/family.h"

namespace nereid::convert {

struct Progress {
  uint64_t bytes = 0, total_bytes = 0;  // written, of all ranks
  int32_t rank = 0;                     // being written
};

struct ConvertOptions {
  std::filesystem::path model_dir;   // Hugging Face, Meta or checkpoint directory, or GGUF file
  std::filesystem::path output_dir;  // see convert_checkpoint()
  // bfloat16 | float16 | float32 | auto: what config.json says, float16 in place of float32; where
  // it says nothing bfloat16 if a tensor is, else float16.
  std::string dtype = "auto";
  // "": as `dtype`; or what products become. Where the source stores such codes these are taken
  // over. Floats are rounded to int8 | int4 | fp8_rowwise (quant_algo W8A16, W4A16,
  // FP8_PER_CHANNEL_PER_TOKEN) with a scale for each row of a rank; products that are floats stay
  // so with int4_awq | w4a8_awq | int4_gptq | int8_gptq (W4A16_AWQ, W4A8_AWQ, W4A16_GPTQ,
  // W8A16_GPTQ) | fp8 (FP8) | int8_sq (W8A8_SQ_PER_CHANNEL) | sq_per_channel_per_token |
  // sq_per_tensor_per_token | sq_per_channel_per_tensor | sq_per_tensor
  // (W8A8_SQ_PER_CHANNEL_PER_TOKEN_PLUGIN, ...).
  std::string weights;
  bool rounds = true;      // off: nothing is rounded, whatever `weights` may
  int32_t group = 0;       // columns of a group that the source has to have; 0: any
  Magnitudes magnitudes;   // see has_static_inputs(); a cache of 8 bits has factors likewise
  double smoothing = 0.5;  // that the source was made with, for config.json
  // What config.json asks for of cached keys and values: bf16, i8 or f8e4m3; absent: what the
  // source does.
  std::optional<DType> cache;
  bool config_only = false;  // no rankN.safetensors
  models::Ranks ranks;       // that share the weights; -1: as models::check_ranks() says
  std::function<void(const Progress&)> progress;  // called often
};

struct ConvertReport {
  std::string dtype;  // chosen
  size_t num_tensors = 0;
  uint64_t bytes = 0;  // of all ranks' tensors
};

// Writes config.json, a rankN.safetensors for each rank and copies of the tokenizer's files and
// generation_config.json, so that the directory can be served as it is. An engine built from it
// computes what one built from `model_dir` does, bit for bit, unless `dtype` or `weights` rounds.
// Factors of input columns are written as ones, as the source has them in norms and products. Some
// megabytes of the model are in memory at a time. The directory appears when it is complete, in
// place of an older checkpoint; the same input gives the same bytes. InvalidArgument: the model is
// at fault, naming file and field or tensor; ranks that its sizes cannot be divided among; an
// element that is not finite or does not fit in float16; output_dir is model_dir or has other
// files. Unimplemented: the layout cannot say what the model is. Unavailable: cannot write.
StatusOr<ConvertReport> convert_checkpoint(const ConvertOptions& options);

// Names of a checkpoint directory's files, which a new one may take the place of.
bool is_checkpoint_file(std::string_view name);

// Copies what a tokenizer and its chat template are made of, where it is there.
Status copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace nereid::convert
