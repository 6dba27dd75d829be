// Model parameters to executor options.
#include <algorithm>
#include <charconv>

#include "backend/common/check_parameters.h"
#include "backend/parameters/lora_modules.h"
#include "backend/tensorrtllm/model.h"

namespace nereid::backend {
namespace {

// The table of parameters has the bounds.
Status integer(const ModelSettings& settings, const char* key, int64_t& to) {
  ASSIGN_OR_RETURN(to, settings.integer(key, to));
  return ok();
}

Status integer(const ModelSettings& settings, const char* key, int32_t& to) {
  int64_t value = to;
  RETURN_IF_ERROR(integer(settings, key, value));
  to = static_cast<int32_t>(value);
  return ok();
}

template <class T>
struct Choice {
  const char* name;
  T value;
};

// Reads one of a list of words.
template <class T, size_t kCount>
Status choice(const ModelSettings& settings, const char* key, const Choice<T> (&choices)[kCount],
              T& to) {
  const auto text = settings.parameter(key);
  if (!text) return ok();
  std::string names;
  for (const auto& c : choices) {
    if (*text == c.name) {
      to = c.value;
      return ok();
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", c.name);
  }
  return invalid_argument("model '{}': parameter '{}' is '{}', expected one of {}", settings.name,
                          key, *text, names);
}

Status read_scheduler(const ModelSettings& settings, SchedulerConfig& out) {
  out.capacity_policy = CapacityPolicy::kGuaranteedNoEvict;
  constexpr Choice<CapacityPolicy> kPolicies[] = {
      {"guaranteed_no_evict", CapacityPolicy::kGuaranteedNoEvict},
      {"max_utilization", CapacityPolicy::kMaxUtilization},
      {"static_batch", CapacityPolicy::kStaticBatch}};
  RETURN_IF_ERROR(choice(settings, "batch_scheduler_policy", kPolicies, out.capacity_policy));
  if (is_v1(settings)) out.capacity_policy = CapacityPolicy::kStaticBatch;
  constexpr Choice<ChunkingPolicy> kChunking[] = {
      {"first_come_first_served", ChunkingPolicy::kFirstComeFirstServed},
      {"equal_progress", ChunkingPolicy::kEqualProgress}};
  RETURN_IF_ERROR(choice(settings, "context_chunking_policy", kChunking, out.chunking_policy));
  constexpr Choice<PausePolicy> kPause[] = {{"recompute", PausePolicy::kRecompute},
                                            {"swap", PausePolicy::kSwap}};
  RETURN_IF_ERROR(choice(settings, "pause_policy", kPause, out.pause_policy));
  ASSIGN_OR_RETURN(out.enable_chunked_context,
                   settings.boolean("enable_chunked_context", out.enable_chunked_context));
  return ok();
}

// Reads a comma list of windows for the layers of a repeating pattern; only equal ones are
// accepted, since all layers share one.
Status read_window(const ModelSettings& settings, KvCacheConfig& out) {
  const char* key = "max_attention_window_size";
  auto text = settings.parameter(key);
  // The parameter's name in v0.6.
  if (!text) text = settings.parameter(key = "max_kv_cache_length");
  if (!text) return ok();
  std::optional<int32_t> window;
  for (size_t begin = 0; begin <= text->size();) {
    const size_t end = std::min(text->find(',', begin), text->size());
    const std::string part = text->substr(begin, end - begin);
    begin = end + 1;
    if (part.empty() && begin > text->size()) break;  // trailing comma
    int32_t value = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || stop != part.data() + part.size() || value < 1) {
      return invalid_argument("model '{}': parameter '{}' is '{}', expected integers above 0",
                              settings.name, key, *text);
    }
    if (window && *window != value) {
      return unsupported(
          "model '{}': parameter '{}' is '{}'; layers with different windows are "
          "not supported",
          settings.name, key, *text);
    }
    window = value;
  }
  out.max_attention_window = window.value_or(0);
  return ok();
}

Status read_kv_cache(const ModelSettings& settings, KvCacheConfig& out) {
  int64_t tokens = 0;
  RETURN_IF_ERROR(integer(settings, "max_tokens_in_paged_kv_cache", tokens));
  if (tokens != 0) out.max_tokens = tokens;
  if (settings.parameter("kv_cache_free_gpu_mem_fraction")) {
    ASSIGN_OR_RETURN(const double fraction, settings.number("kv_cache_free_gpu_mem_fraction", 0));
    if (fraction > 0) out.memory_fraction = fraction;  // 0: the default
  }
  RETURN_IF_ERROR(integer(settings, "tokens_per_block", out.tokens_per_block));
  ASSIGN_OR_RETURN(out.enable_block_reuse,
                   settings.boolean("enable_kv_cache_reuse", out.enable_block_reuse));
  ASSIGN_OR_RETURN(out.enable_partial_reuse,
                   settings.boolean("enable_partial_reuse", out.enable_partial_reuse));
  constexpr Choice<KvCacheType> kTypes[] = {{"auto", KvCacheType::kAuto},
                                            {"int8", KvCacheType::kInt8},
                                            {"fp8", KvCacheType::kFp8},
                                            {"bf16", KvCacheType::kBf16}};
  RETURN_IF_ERROR(choice(settings, "kv_cache_type", kTypes, out.type));
  RETURN_IF_ERROR(read_window(settings, out));
  RETURN_IF_ERROR(integer(settings, "sink_token_length", out.sink_token_length));
  RETURN_IF_ERROR(integer(settings, "kv_cache_host_memory_bytes", out.host_cache_bytes));
  RETURN_IF_ERROR(integer(settings, "secondary_offload_min_priority", out.offload_min_priority));
  RETURN_IF_ERROR(integer(settings, "event_buffer_max_size", out.event_buffer_size));
  ASSIGN_OR_RETURN(const bool onboard, settings.boolean("kv_cache_onboard_blocks", true));
  if (!onboard && out.host_cache_bytes > 0) {
    return unsupported(
        "model '{}': parameter 'kv_cache_onboard_blocks' is false; host blocks are always copied "
        "back when they are reused",
        settings.name);
  }
  return ok();
}

// The LoRA parameters; the runtime checks the values.
Status read_lora(const ModelSettings& settings, ExecutorConfig& config) {
  const auto modules = parse_lora_modules(settings.parameter("lora_modules").value_or(""));
  if (!modules.ok())
    return annotate(modules.status(), fmt::format("model '{}': parameter", settings.name));
  for (const LoraModule& module : *modules)
    config.lora_directories.push_back({module.task_id, module.folder});
  const bool loads = settings.parameter("lora_load_dir").has_value();
  ASSIGN_OR_RETURN(config.enable_lora, settings.boolean("enable_lora", loads || !modules->empty()));
  if (loads && !config.enable_lora)
    return invalid_argument("model '{}': parameter 'lora_load_dir' needs enable_lora",
                            settings.name);
  PeftCacheConfig& out = config.peft_cache;
  RETURN_IF_ERROR(integer(settings, "lora_cache_optimal_adapter_size", out.optimal_adapter_size));
  RETURN_IF_ERROR(integer(settings, "lora_cache_max_adapter_size", out.max_adapter_size));
  ASSIGN_OR_RETURN(out.device_cache_fraction,
                   settings.number("lora_cache_gpu_memory_fraction", out.device_cache_fraction));
  RETURN_IF_ERROR(integer(settings, "lora_cache_host_memory_bytes", out.host_cache_bytes));
  out.prefetch_dir = settings.parameter("lora_prefetch_dir").value_or("");
  return ok();
}

// Sets the speculation mode, which describes the contents of the folder draft_model, or else
// of the engine's own.
Status read_speculative_mode(const ModelSettings& settings, const std::string& mode,
                             ExecutorConfig& config) {
  if (!config.speculation.empty() && config.speculation != mode && config.speculation != "auto")
    return invalid_argument(
        "model '{}': parameter 'decoding_mode' is '{}', 'speculation' is '{}'; allowed beside it "
        "are {} and auto",
        settings.name, mode, config.speculation, mode);
  if (config.speculation.empty()) config.speculation = mode;
  return ok();
}

// Reads the three parameters of lookahead decoding; the mode lookahead_decoding needs all of them.
Status read_lookahead(const ModelSettings& settings, const std::optional<std::string>& mode,
                      ExecutorConfig& config) {
  const bool is_mode = mode == "lookahead";
  if (is_mode && !config.speculation.empty() && config.speculation != "lookahead")
    return invalid_argument(
        "model '{}': parameter 'decoding_mode' is 'lookahead', 'speculation' is '{}'; allowed "
        "beside "
        "it is lookahead",
        settings.name, config.speculation);
  if (is_mode) config.speculation = "lookahead";
  LookaheadConfig& out = config.lookahead;
  for (const auto& [name, value] :
       {std::pair("lookahead_window_size", &out.window_size),
        std::pair("lookahead_ngram_size", &out.ngram_size),
        std::pair("lookahead_verification_set_size", &out.verification_set_size)}) {
    const auto given = settings.parameter(name);
    if (given && config.speculation != "lookahead")
      return invalid_argument(
          "model '{}': parameter '{}' is '{}', which needs decoding_mode or speculation lookahead",
          settings.name, name, *given);
    if (!given && is_mode)
      return invalid_argument(
          "model '{}': Decoding mode is set to lookahead but lookahead parameters are not "
          "specified. "
          "'{}' is missing",
          settings.name, name);
    RETURN_IF_ERROR(integer(settings, name, *value));
  }
  return ok();
}

// Checks decoding_mode: sampling is chosen by each request, so without speculation the mode must
// only be one that requests may use.
Status read_decoding_mode(const ModelSettings& settings, ExecutorConfig& config) {
  const auto mode = settings.parameter("decoding_mode");
  RETURN_IF_ERROR(read_lookahead(settings, mode, config));
  if (!mode || *mode == "auto") return ok();
  const bool is_speculative = *mode == "medusa" || *mode == "redrafter" || *mode == "eagle";
  if (is_speculative) RETURN_IF_ERROR(read_speculative_mode(settings, *mode, config));
  bool known = *mode == "beam_search" || *mode == "lookahead" || is_speculative;
  for (const char* sampling : {"top_k", "top_p", "top_k_top_p"}) known = known || *mode == sampling;
  if (!known) {
    return invalid_argument(
        "model '{}': parameter 'decoding_mode' is '{}', expected one of auto, top_k, top_p, "
        "top_k_top_p, beam_search, medusa, redrafter, lookahead, eagle",
        settings.name, *mode);
  }
  if (*mode != "beam_search" && config.max_beam_width > 1) {
    return invalid_argument(
        "model '{}': parameter 'decoding_mode' is '{}' but 'max_beam_width' is {}; use beam_search "
        "or auto",
        settings.name, *mode, config.max_beam_width);
  }
  return ok();
}

Status read_device(const ModelSettings& settings, ExecutorConfig& out) {
  out.device = settings.parameter("device").value_or("auto");
  const auto ids = settings.parameter("gpu_device_ids");
  if (!ids || settings.parameter("device")) return ok();
  if (ids->find_first_not_of("0123456789") != std::string::npos) {
    return unsupported("model '{}': parameter 'gpu_device_ids' is '{}'; only one device works",
                       settings.name, *ids);
  }
  out.device = "cuda:" + *ids;
  return ok();
}

}  // namespace

bool is_v1(const ModelSettings& settings) {
  const auto type = settings.parameter("gpt_model_type");
  return type && (*type == "V1" || *type == "v1");
}

StatusOr<ExecutorConfig> read_executor_config(const ModelSettings& settings) {
  RETURN_IF_ERROR(check_parameters(settings, "tensorrtllm"));
  ExecutorConfig config;
  // 0: the engine's own limits.
  config.max_batch_size = config.max_beam_width = config.max_num_tokens = 0;
  RETURN_IF_ERROR(read_device(settings, config));
  RETURN_IF_ERROR(integer(settings, "num_threads", config.num_threads));
  RETURN_IF_ERROR(integer(settings, "memory_bytes", config.memory_bytes));
  RETURN_IF_ERROR(read_scheduler(settings, config.scheduler));
  RETURN_IF_ERROR(read_kv_cache(settings, config.kv_cache));
  RETURN_IF_ERROR(read_lora(settings, config));
  RETURN_IF_ERROR(integer(settings, "max_num_sequences", config.max_batch_size));
  RETURN_IF_ERROR(integer(settings, "max_beam_width", config.max_beam_width));
  RETURN_IF_ERROR(integer(settings, "max_num_tokens", config.max_num_tokens));
  RETURN_IF_ERROR(integer(settings, "max_seq_len", config.max_sequence_length));
  int32_t queue = 0;
  RETURN_IF_ERROR(integer(settings, "max_queue_size", queue));
  if (queue > 0) config.max_queue_size = queue;
  RETURN_IF_ERROR(integer(settings, "max_logits_bytes", config.max_logits_bytes));
  ASSIGN_OR_RETURN(config.normalize_log_probs,
                   settings.boolean("normalize_log_probs", config.normalize_log_probs));
  RETURN_IF_ERROR(integer(settings, "iter_stats_max_iterations", config.iter_stats_max_iterations));
  RETURN_IF_ERROR(
      integer(settings, "request_stats_max_iterations", config.request_stats_max_iterations));
  ASSIGN_OR_RETURN(config.enable_overlap,
                   settings.boolean("enable_overlap", config.enable_overlap));
  ASSIGN_OR_RETURN(config.enable_jump_ahead,
                   settings.boolean("enable_jump_ahead", config.enable_jump_ahead));
  ASSIGN_OR_RETURN(config.exit_on_device_failure,
                   settings.boolean("exit_on_device_failure", config.exit_on_device_failure));
  RETURN_IF_ERROR(integer(settings, "device_timeout_secs", config.device_timeout_secs));
  ASSIGN_OR_RETURN(config.deterministic, settings.boolean("deterministic", config.deterministic));
  config.speculation = settings.parameter("speculation").value_or(config.speculation);
  config.draft_model = settings.parameter("draft_model").value_or("");
  RETURN_IF_ERROR(integer(settings, "max_draft_len", config.max_draft_len));
  config.medusa_choices = settings.parameter("medusa_choices").value_or("");
  config.eagle_choices = settings.parameter("eagle_choices").value_or("");
  RETURN_IF_ERROR(integer(settings, "eagle_tree_top_k", config.eagle_tree_top_k));
  RETURN_IF_ERROR(integer(settings, "eagle_tree_depth", config.eagle_tree_depth));
  RETURN_IF_ERROR(integer(settings, "ngram_pool_size", config.ngram_pool_size));
  ASSIGN_OR_RETURN(const double typical, settings.number("typical_acceptance", 0));
  config.typical_acceptance = static_cast<float>(typical);
  RETURN_IF_ERROR(read_decoding_mode(settings, config));
  config.isa = settings.parameter("isa").value_or("");
  config.weights = settings.parameter("weights").value_or(config.weights);
  config.head_weights = settings.parameter("head_weights").value_or(config.head_weights);
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
