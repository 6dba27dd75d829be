// Engine directories, as made by `trtllm-build`: config.json with `pretrained_config` and
// `build_config`, a rankN.engine per rank of the checkpoint, tokenizer files. One process loads
// several ranks by merging their engines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "base/json.h"
#include "base/status.h"
#include "convert/engine_cache.h"

namespace nereid::convert {

struct EngineDirOptions {
  std::filesystem::path checkpoint_dir;  // checkpoint or Hugging Face directory
  std::filesystem::path output_dir;      // created if missing
  // Written unchanged. `max_seq_len` (int) shortens sequences at build time, but an encoder's; the
  // other limits apply at load time (EngineLimits).
  json::object build_config;
  CompileOptions compile;
  bool config_only = false;      // no rankN.engine
  int32_t workers = 1;           // ranks written at a time
  Device* measure_on = nullptr;  // for measure_kernels() (CPU) or measure_products() (GPU); null:
                                 // choices by the cost model, or by the product library
  bool random_weights = false;   // only config.json is needed
  // The engine has no weights: they are read from checkpoint_dir at load time, or added by
  // refit_engine_dir(). Required for a pruned checkpoint.
  bool strip_weights = false;
};

// Builds for one device; random weights are for one rank. Errors as ensure_engine();
// InvalidArgument also: output_dir is checkpoint_dir, or checkpoint_dir is an engine directory.
Status build_engine_dir(const EngineDirOptions& options, const kernels::Registry& registry,
                        const DeviceInfo& device, BuildReport* report = nullptr);

// Bits of `speculative_decoding_mode` of engines with draft heads in kDraftFolder. Source:
// SpeculativeDecodingMode of TensorRT-LLM.
inline constexpr int32_t kMedusaMode = 4, kExplicitDraftTokensMode = 16, kEagleMode = 32;
inline constexpr int32_t kModesWithHeads = kMedusaMode | kExplicitDraftTokensMode | kEagleMode;

// Limits that an engine was built with. Source: build_config of its config.json.
struct EngineLimits {
  int32_t max_batch_size = 0;
  int32_t max_beam_width = 0;
  int32_t max_num_tokens = 0;
  int32_t tokens_per_block = 0;
  // false: a prompt cannot continue behind cached or earlier computed tokens, so no KV cache reuse
  // and no chunked prefill.
  bool paged_context = true;
  // Longest prompt of padded batches or unfused attention (TensorRT-LLM's); 0: the sequence limit.
  int32_t max_input_len = 0;
  int32_t max_encoder_input_len = 0;  // 0: no encoder
  bool gather_context_logits = true;
  int32_t max_prompt_table = 0;       // prompt table rows per request; 0: unspecified
  int32_t max_lora_rank = 0;          // 0: built without adapters
  std::filesystem::path draft_model;  // draft heads; empty: none
};

// No value: no engine directory, or no config.json. InvalidArgument: file, field, allowed values.
StatusOr<std::optional<EngineLimits>> read_engine_limits(const std::filesystem::path& dir);

// Ranks that an engine directory or a TensorRT-LLM checkpoint is divided among, by its config.json;
// of other models, one. InvalidArgument: file, field, allowed values.
StatusOr<io::Mapping> built_mapping(const std::filesystem::path& path);

// Model facts of an engine or a model directory.
StatusOr<io::ModelFacts> read_facts(const std::filesystem::path& path);

// Where the encoder of an encoder-decoder model is: the folder beside the folder of a decoder's
// engine, else the same path as the decoder.
std::filesystem::path encoder_path(const std::filesystem::path& path);

// Directory of a model's tokenizer files: next to the engine or weights, else the checkpoint's.
StatusOr<std::filesystem::path> tokenizer_dir(const std::filesystem::path& path);

}  // namespace nereid::convert
