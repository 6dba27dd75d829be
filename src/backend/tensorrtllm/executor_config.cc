// Model parameters to executor options.
#include <algorithm>
#include <limits>

#include "backend/tensorrtllm/model.h"

namespace nereid::backend {
namespace {

Status small_integer(const ModelSettings& settings, const char* key, int32_t& to) {
  ASSIGN_OR_RETURN(const int64_t value, settings.integer(key, to));
  if (value < 0 || value > std::numeric_limits<int32_t>::max()) {
    return invalid_argument("model '{}': parameter '{}' is {}, expected 0 to {}", settings.name,
                            key, value, std::numeric_limits<int32_t>::max());
  }
  to = static_cast<int32_t>(value);
  return ok();
}

// Features that would change results: refused by name rather than ignored.
Status refuse(const ModelSettings& settings) {
  const auto type = settings.parameter("gpt_model_type");
  if (type && *type != "inflight_batching" && *type != "inflight_fused_batching") {
    return invalid_argument(
        "Invalid gpt_model_type. Must be v1/inflight_batching/inflight_fused_batching; '{}' is not "
        "supported here",
        *type);
  }
  ASSIGN_OR_RETURN(const int64_t beams, settings.integer("max_beam_width", 1));
  if (beams != 1) {
    return unsupported("model '{}': parameter 'max_beam_width' is {}; only 1 is supported",
                       settings.name, beams);
  }
  for (const char* key : {"encoder_model_path", "medusa_choices", "eagle_choices",
                          "lookahead_window_size", "guided_decoding_backend", "lora_prefetch_dir",
                          "max_attention_window_size", "sink_token_length"}) {
    if (settings.parameter(key)) {
      return unsupported("model '{}': parameter '{}' is not supported", settings.name, key);
    }
  }
  return ok();
}

}  // namespace

StatusOr<ExecutorConfig> read_executor_config(const ModelSettings& settings) {
  RETURN_IF_ERROR(refuse(settings));
  ExecutorConfig config;
  config.device = settings.parameter("device").value_or(config.device);
  RETURN_IF_ERROR(small_integer(settings, "num_threads", config.num_threads));
  ASSIGN_OR_RETURN(config.memory_bytes, settings.integer("memory_bytes", config.memory_bytes));
  ASSIGN_OR_RETURN(const int64_t kv_tokens, settings.integer("max_tokens_in_paged_kv_cache", 0));
  if (kv_tokens != 0) config.kv_cache.max_tokens = kv_tokens;
  RETURN_IF_ERROR(small_integer(settings, "tokens_per_block", config.kv_cache.tokens_per_block));
  ASSIGN_OR_RETURN(config.kv_cache.enable_block_reuse,
                   settings.boolean("enable_kv_cache_reuse", config.kv_cache.enable_block_reuse));
  RETURN_IF_ERROR(small_integer(settings, "max_num_sequences", config.max_batch_size));
  RETURN_IF_ERROR(small_integer(settings, "max_num_tokens", config.max_num_tokens));
  int32_t queue = 0;
  RETURN_IF_ERROR(small_integer(settings, "max_queue_size", queue));
  if (queue > 0) config.max_queue_size = queue;
  ASSIGN_OR_RETURN(config.enable_overlap,
                   settings.boolean("enable_overlap", config.enable_overlap));
  config.isa = settings.parameter("isa").value_or("");
  ASSIGN_OR_RETURN(config.random_weights,
                   settings.boolean("random_weights", config.random_weights));
  config.cache_dir = settings.parameter("cache_dir").value_or("");
  std::string kernels = settings.parameter("forced_kernels").value_or("");
  for (size_t begin = 0; begin < kernels.size();) {
    const size_t end = std::min(kernels.find(',', begin), kernels.size());
    if (end > begin) config.forced_kernels.push_back(kernels.substr(begin, end - begin));
    begin = end + 1;
  }
  return config;
}

}  // namespace nereid::backend
