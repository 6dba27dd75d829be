// Engine directories as people build and pass them on: config.json with `pretrained_config` and
// `build_config`, a rankN.engine for each rank of the checkpoint, and the tokenizer's files. What
// `trtllm-build` makes. One process loads the engines of several ranks by merging them.
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
  std::filesystem::path output_dir;      // created when missing
  // Written as it is; `max_seq_len` in it (int) shortens sequences, the other limits are applied
  // when the engine is loaded (see EngineLimits).
  json::object build_config;
  CompileOptions compile;
  bool config_only = false;      // no rankN.engine
  int32_t workers = 1;           // ranks written at a time
  Device* measure_on = nullptr;  // measure_kernels() of a CPU, measure_products() of a GPU; null:
                                 // the cost model, and the library of products, choose alone
  bool random_weights = false;   // the directory needs config.json only
  // The engine has no weights; they are taken from checkpoint_dir when it is loaded, or by
  // refit_engine_dir(); needed for a pruned checkpoint.
  bool strip_weights = false;
};

// Builds for one device; random weights are those of one rank. Errors as ensure_engine();
// InvalidArgument also when output_dir is checkpoint_dir, or that is an engine directory.
Status build_engine_dir(const EngineDirOptions& options, const kernels::Registry& registry,
                        const DeviceInfo& device, BuildReport* report = nullptr);

// Bits of `speculative_decoding_mode` of an engine that was built with heads that guess tokens, in
// kDraftFolder beside it. Source: SpeculativeDecodingMode of TensorRT-LLM.
inline constexpr int32_t kMedusaMode = 4, kExplicitDraftTokensMode = 16, kEagleMode = 32;
inline constexpr int32_t kModesWithHeads = kMedusaMode | kExplicitDraftTokensMode | kEagleMode;

// Upper bounds that an engine was built with. Source: build_config of the engine's config.json.
struct EngineLimits {
  int32_t max_batch_size = 0;
  int32_t max_beam_width = 0;
  int32_t max_num_tokens = 0;
  int32_t tokens_per_block = 0;
  // Without it a prompt cannot continue after cached or earlier computed tokens: no KV cache reuse,
  // no chunked prompts.
  bool paged_context = true;
  // Longest prompt where batches are padded or attention is not fused, as TensorRT-LLM has it;
  // 0: as long as a sequence.
  int32_t max_input_len = 0;
  bool gather_context_logits = true;
  int32_t max_prompt_table = 0;       // rows of a request's; 0: the engine does not say
  int32_t max_lora_rank = 0;          // 0: the engine was built without adapters
  std::filesystem::path draft_model;  // heads that it was built with; empty: none
};

// Nothing when `dir` is no engine directory or has no config.json. InvalidArgument naming file,
// field and what is allowed.
StatusOr<std::optional<EngineLimits>> read_engine_limits(const std::filesystem::path& dir);

// What the runtime must know about a model, whether `path` is an engine or a model directory.
StatusOr<io::ModelFacts> read_facts(const std::filesystem::path& path);

// Where the tokenizer's files of a model are: beside the engine or the weights, else where the
// engine was built from.
StatusOr<std::filesystem::path> tokenizer_dir(const std::filesystem::path& path);

}  // namespace nereid::convert
