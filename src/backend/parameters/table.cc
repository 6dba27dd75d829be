// The table of parameters; see parameters.h.
#include <iterator>

#include "backend/parameters/parameters.h"
#include "nereid/config.h"

namespace nereid::backend {
namespace {

using Kind = ParameterKind;
using Use = ParameterUse;
constexpr double kMaxInt = 2147483647;
constexpr double kMaxBytes = 1125899906842624;  // 1 PiB
constexpr Parameter kTensorrtLlm[] = {
    {"gpt_model_type", "batching_strategy", Kind::kWord, Use::kActs, 0, 0,
     "V1|v1|inflight_batching|inflight_fused_batching"},
    {"gpt_model_path", "engine_dir", Kind::kFolder, Use::kActs, 0, 0, "", true},
    {"engine_dir", "", Kind::kFolder},
    {"model_dir", "", Kind::kFolder},
    {"tokenizer_dir", "tokenizer_dir", Kind::kFolder},
    {"max_seq_len", "max_seq_len", Kind::kInteger, Use::kActs, 1, kMaxInt},
    {"device", "device"},
    {"gpu_device_ids", "gpu_device_ids"},
    {"num_threads", "num_threads", Kind::kInteger, Use::kActs, 0, kMaxInt},
    {"isa", "isa", Kind::kWord, Use::kActs, 0, 0, "generic|avx2|avx512|avx512_bf16|amx"},
    {"weights", "weights", Kind::kWord, Use::kActs, 0, 0, "auto|bf16|int8|int4|w8a8|fp8"},
    {"head_weights", "head_weights", Kind::kWord, Use::kActs, 0, 0, "auto|bf16|int8|int4|w8a8|fp8"},
    {"random_weights", "random_weights", Kind::kBoolean},
    {"memory_bytes", "memory_bytes", Kind::kInteger, Use::kActs, 0, kMaxBytes},
    {"batch_scheduler_policy", "batch_scheduler_policy", Kind::kWord, Use::kActs, 0, 0,
     "guaranteed_no_evict|max_utilization|static_batch"},
    {"context_chunking_policy", "context_chunking_policy", Kind::kWord, Use::kActs, 0, 0,
     "first_come_first_served|equal_progress"},
    {"pause_policy", "pause_policy", Kind::kWord, Use::kActs, 0, 0, "recompute|swap"},
    {"enable_chunked_context", "enable_chunked_context", Kind::kBoolean},
    {"max_tokens_in_paged_kv_cache", "max_tokens_in_paged_kv_cache", Kind::kInteger, Use::kActs, 0,
     kMaxInt},
    {"kv_cache_free_gpu_mem_fraction", "kv_cache_free_gpu_mem_fraction", Kind::kNumber, Use::kActs,
     0, 1},
    {"tokens_per_block", "tokens_per_block", Kind::kInteger, Use::kActs, 1, 1024},
    {"kv_cache_type", "kv_cache_type", Kind::kWord, Use::kActs, 0, 0, "auto|int8|fp8|bf16"},
    {"enable_kv_cache_reuse", "enable_kv_cache_reuse", Kind::kBoolean},
    {"enable_partial_reuse", "enable_partial_reuse", Kind::kBoolean},
    {"max_attention_window_size", "max_attention_window_size"},
    {"max_kv_cache_length", ""},
    {"sink_token_length", "sink_token_length", Kind::kInteger, Use::kActs, 0, kMaxInt},
    {"kv_cache_host_memory_bytes", "kv_cache_host_memory_bytes", Kind::kInteger, Use::kActs, 0,
     kMaxBytes},
    {"secondary_offload_min_priority", "secondary_offload_min_priority", Kind::kInteger, Use::kActs,
     0, 100},
    {"kv_cache_onboard_blocks", "kv_cache_onboard_blocks", Kind::kBoolean},
    {"event_buffer_max_size", "event_buffer_max_size", Kind::kInteger, Use::kActs, 0, kMaxInt},
    {"max_num_sequences", "max_batch_size", Kind::kInteger, Use::kActs, 1, kMaxInt},
    {"max_beam_width", "max_beam_width", Kind::kInteger, Use::kActs, 1, 16},
    {"decoding_mode", "decoding_mode", Kind::kWord, Use::kActs, 0, 0,
     "auto|top_k|top_p|top_k_top_p|beam_search|medusa|redrafter|lookahead|eagle"},
    {"max_num_tokens", "max_num_tokens", Kind::kInteger, Use::kActs, 1, kMaxInt},
    {"max_queue_size", "max_queue_size", Kind::kInteger, Use::kActs, 0, kMaxInt},
    {"max_logits_bytes", "max_logits_bytes", Kind::kInteger, Use::kActs, 0, kMaxBytes},
    {"normalize_log_probs", "normalize_log_probs", Kind::kBoolean},
    {"exclude_input_in_output", "exclude_input_in_output", Kind::kBoolean},
    {"iter_stats_max_iterations", "iter_stats_max_iterations", Kind::kInteger, Use::kActs, 0,
     kMaxInt},
    {"request_stats_max_iterations", "request_stats_max_iterations", Kind::kInteger, Use::kActs, 0,
     kMaxInt},
    {"speculation", "speculation", Kind::kWord, Use::kActs, 0, 0,
     "none|ngram|draft_model|medusa|redrafter|eagle|mtp|lookahead|auto"},
    {"draft_model", "draft_model", Kind::kFolder},
    {"max_draft_len", "max_draft_len", Kind::kInteger, Use::kActs, 0, kMaxDraftLen},
    {"eagle_tree_top_k", "eagle_tree_top_k", Kind::kInteger, Use::kActs, 0, kMaxTreeTopK},
    {"eagle_tree_depth", "eagle_tree_depth", Kind::kInteger, Use::kActs, 0, kMaxDraftLen},
    {"ngram_pool_size", "ngram_pool_size", Kind::kInteger, Use::kActs, 0, kMaxNgramPool},
    {"typical_acceptance", "typical_acceptance", Kind::kNumber, Use::kActs, 0, 1},
    {"enable_overlap", "enable_overlap", Kind::kBoolean},
    {"enable_jump_ahead", "enable_jump_ahead", Kind::kBoolean},
    {"exit_on_device_failure", "exit_on_device_failure", Kind::kBoolean},
    {"device_timeout_secs", "device_timeout_secs", Kind::kInteger, Use::kActs, 0, 86400},
    {"deterministic", "deterministic", Kind::kBoolean},
    {"forced_kernels", "forced_kernels"},
    {"cache_dir", "cache_dir"},
    {"cancellation_check_period_ms", "cancellation_check_period_ms", Kind::kInteger, Use::kActs, 1,
     60000},
    {"stats_check_period_ms", "stats_check_period_ms", Kind::kInteger, Use::kActs, 1, 60000},
    {"recv_poll_period_ms", "recv_poll_period_ms", Kind::kText, Use::kNone, 0, 0, "", false,
     "requests are taken as they come, nothing polls"},
    {"cross_kv_cache_fraction", "cross_kv_cache_fraction", Kind::kText, Use::kNone, 0, 0, "", false,
     "only encoder-decoder models have a second cache, and none is served"},
    {"enable_lora", "enable_lora", Kind::kBoolean},
    {"lora_modules", "lora_modules"},
    {"lora_load_dir", "lora_load_dir", Kind::kFolder},
    {"lora_cache_optimal_adapter_size", "lora_cache_optimal_adapter_size", Kind::kInteger,
     Use::kActs, 1, kMaxInt},
    {"lora_cache_max_adapter_size", "lora_cache_max_adapter_size", Kind::kInteger, Use::kActs, 1,
     kMaxInt},
    {"lora_cache_gpu_memory_fraction", "lora_cache_gpu_memory_fraction", Kind::kNumber, Use::kActs,
     0, 1},
    {"lora_cache_host_memory_bytes", "lora_cache_host_memory_bytes", Kind::kInteger, Use::kActs, 0,
     kMaxBytes},
    {"executor_worker_path", "executor_worker_path", Kind::kText, Use::kNone, 0, 0, "", false,
     "the model runs in this process, not in workers"},
    {"enable_context_fmha_fp32_acc", "enable_context_fmha_fp32_acc", Kind::kText, Use::kNone, 0, 0,
     "", false, "attention always accumulates in float32"},
    {"multi_block_mode", "multi_block_mode", Kind::kText, Use::kNone, 0, 0, "", false,
     "attention kernels choose how they split the work"},
    {"cuda_graph_mode", "cuda_graph_mode", Kind::kText, Use::kNone, 0, 0, "", false,
     "the engine decides itself what it captures"},
    {"cuda_graph_cache_size", "cuda_graph_cache_size", Kind::kText, Use::kNone, 0, 0, "", false,
     "the engine decides itself what it captures"},
    {"enable_trt_overlap", "enable_trt_overlap", Kind::kText, Use::kNone, 0, 0, "", false,
     "enable_overlap takes its place"},
    {"xgrammar_tokenizer_info_path", "xgrammar_tokenizer_info_path", Kind::kText, Use::kNone, 0, 0,
     "", false, "guided decoding reads the tokenizer itself"},
    {"worker_path", "", Kind::kText, Use::kNone, 0, 0, "", false,
     "the model runs in this process, not in workers"},
    {"tokenizer_type", "", Kind::kText, Use::kNone, 0, 0, "", false,
     "the files of tokenizer_dir say what it is"},
    {"FORCE_CPU_ONLY_INPUT_TENSORS", "", Kind::kText, Use::kNone, 0, 0, "no", false,
     "inputs are always taken from host memory"},
    {"encoder_model_path", "encoder_engine_dir", Kind::kFolder, Use::kRefused},
    {"encoder_engine_dir", "", Kind::kFolder, Use::kRefused},
    {"lora_prefetch_dir", "lora_prefetch_dir", Kind::kFolder},
    {"participant_ids", "participant_ids", Kind::kText, Use::kRefused},
    {"num_nodes", "num_nodes", Kind::kText, Use::kRefused, 0, 0, "1"},
    {"gpu_weights_percent", "gpu_weights_percent", Kind::kText, Use::kRefused, 0, 0, "1|1.0"},
    {"speculative_decoding_fast_logits", "speculative_decoding_fast_logits", Kind::kText,
     Use::kNone, 0, 0, "False|false|FALSE|0", false,
     "both models are in this process, where logits of drafts are handed over in memory"},
    {"lookahead_window_size", "lookahead_window_size", Kind::kInteger, Use::kActs, 1, 64},
    {"lookahead_ngram_size", "lookahead_ngram_size", Kind::kInteger, Use::kActs, 1, 64},
    {"lookahead_verification_set_size", "lookahead_verification_set_size", Kind::kInteger,
     Use::kActs, 0, 64},
    {"medusa_choices", "medusa_choices"},
    {"eagle_choices", "eagle_choices"},
    {"guided_decoding_backend", "guided_decoding_backend", Kind::kText, Use::kNone, 0, 0, "", false,
     "guided decoding is always there, by a matcher of its own"},
};

constexpr Parameter kPreprocessing[] = {
    {"tokenizer_dir", "tokenizer_dir", Kind::kFolder, Use::kActs, 0, 0, "", true},
    {"add_special_tokens", "add_special_tokens", Kind::kBoolean},
    {"multimodal_model_path", "multimodal_model_path", Kind::kText, Use::kRefused},
    {"visual_model_path", "", Kind::kText, Use::kRefused},
    {"gpt_model_path", "engine_dir", Kind::kText, Use::kNone},
    {"max_num_images", "max_num_images", Kind::kText, Use::kNone, 0, 0, "", false,
     "there are no image inputs"},
    {"tokenizer_type", "", Kind::kText, Use::kNone, 0, 0, "", false,
     "the files of tokenizer_dir say what it is"},
};

constexpr Parameter kPostprocessing[] = {
    {"tokenizer_dir", "tokenizer_dir", Kind::kFolder, Use::kActs, 0, 0, "", true},
    {"skip_special_tokens", "skip_special_tokens", Kind::kBoolean},
    {"tokenizer_type", "", Kind::kText, Use::kNone, 0, 0, "", false,
     "the files of tokenizer_dir say what it is"},
};

constexpr Parameter kBls[] = {
    {"accumulate_tokens", "accumulate_tokens"},
    {"tensorrt_llm_model_name", "tensorrt_llm_model_name"},
    {"tensorrt_llm_draft_model_name", "tensorrt_llm_draft_model_name"},
    {"multimodal_encoders_name", "multimodal_encoders_name", Kind::kText, Use::kRefused},
};

}  // namespace

std::span<const Parameter> parameters_of(std::string_view backend) {
  if (backend == "tensorrtllm") return kTensorrtLlm;
  if (backend == "preprocessing") return kPreprocessing;
  if (backend == "postprocessing") return kPostprocessing;
  if (backend == "tensorrt_llm_bls") return kBls;
  return {};
}

}  // namespace nereid::backend
