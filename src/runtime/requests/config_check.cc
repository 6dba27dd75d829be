// Checks of an ExecutorConfig, in the order of the public header. Checks that depend on the model
// are in open_model.
#include "kernels/api/op.h"
#include "runtime/requests/request_check.h"
#include "runtime/speculation/lookahead.h"

namespace nereid::runtime {
namespace {

Status check_range(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return ok();
  return invalid_argument("{}: {} is not in [{}, {}]", field, value, low, high);
}

Status check_scheduler(const SchedulerConfig& s, const KvCacheConfig& kv) {
  RETURN_IF_ERROR(check_range("scheduler.capacity_policy", static_cast<int>(s.capacity_policy), 0,
                              static_cast<int>(CapacityPolicy::kStaticBatch)));
  RETURN_IF_ERROR(check_range("scheduler.chunking_policy", static_cast<int>(s.chunking_policy), 0,
                              static_cast<int>(ChunkingPolicy::kEqualProgress)));
  RETURN_IF_ERROR(check_range("scheduler.pause_policy", static_cast<int>(s.pause_policy), 0,
                              static_cast<int>(PausePolicy::kSwap)));
  if (s.pause_policy != PausePolicy::kSwap) return ok();
  if (!kv.enable_block_reuse)
    return invalid_argument(
        "scheduler.pause_policy: swap needs kv_cache.enable_block_reuse, by which moved blocks are "
        "found again");
  if (kv.host_cache_bytes <= 0)
    return invalid_argument(
        "scheduler.pause_policy: swap needs kv_cache.host_cache_bytes above 0; it is {}",
        kv.host_cache_bytes);
  return ok();
}

Status check_kv_cache(const KvCacheConfig& kv) {
  if (kv.max_tokens)
    RETURN_IF_ERROR(check_range("kv_cache.max_tokens", *kv.max_tokens, 1, 1 << 30));
  if (kv.memory_fraction && !(*kv.memory_fraction > 0 && *kv.memory_fraction <= 1))
    return invalid_argument("kv_cache.memory_fraction: {} is not in (0, 1]", *kv.memory_fraction);
  const int32_t t = kv.tokens_per_block;
  if (t != 16 && t != 32 && t != 64 && t != 128)
    return invalid_argument("kv_cache.tokens_per_block: {} is not one of 16, 32, 64, 128", t);
  RETURN_IF_ERROR(check_range("kv_cache.type", static_cast<int>(kv.type), 0,
                              static_cast<int>(KvCacheType::kBf16)));
  RETURN_IF_ERROR(
      check_range("kv_cache.max_attention_window", kv.max_attention_window, 0, 1 << 30));
  RETURN_IF_ERROR(check_range("kv_cache.sink_token_length", kv.sink_token_length, 0, 1 << 30));
  RETURN_IF_ERROR(
      check_range("kv_cache.host_cache_bytes", kv.host_cache_bytes, 0, int64_t{1} << 50));
  RETURN_IF_ERROR(check_range("kv_cache.offload_min_priority", kv.offload_min_priority, 0, 100));
  return check_range("kv_cache.event_buffer_size", kv.event_buffer_size, 0, 1 << 24);
}

// Sizes without effect are refused: without enable_lora all of them.
Status check_peft_cache(const PeftCacheConfig& given, bool enable_lora) {
  const PeftCacheConfig only;
  Status status;
  const auto check = [&](const char* field, const auto& value, const auto& allowed,
                         bool acts = false) {
    if (!status.ok() || value == allowed || (acts && enable_lora)) return;
    status = invalid_argument("peft_cache.{}: {} is not allowed, only {} is{}", field, value,
                              allowed, acts ? " without enable_lora" : "");
  };
  constexpr bool kActs = true;
  check("num_host_module_layers", given.num_host_module_layers, only.num_host_module_layers);
  check("num_device_module_layers", given.num_device_module_layers, only.num_device_module_layers,
        kActs);
  check("optimal_adapter_size", given.optimal_adapter_size, only.optimal_adapter_size, kActs);
  check("max_adapter_size", given.max_adapter_size, only.max_adapter_size, kActs);
  check("num_put_workers", given.num_put_workers, only.num_put_workers);
  check("num_ensure_workers", given.num_ensure_workers, only.num_ensure_workers);
  check("num_copy_streams", given.num_copy_streams, only.num_copy_streams);
  check("max_pages_per_block_host", given.max_pages_per_block_host, only.max_pages_per_block_host);
  check("max_pages_per_block_device", given.max_pages_per_block_device,
        only.max_pages_per_block_device);
  check("device_cache_fraction", given.device_cache_fraction, only.device_cache_fraction, kActs);
  check("host_cache_bytes", given.host_cache_bytes, only.host_cache_bytes, kActs);
  check("prefetch_dir", given.prefetch_dir.string(), std::string(), kActs);
  return status;
}

Status check_lora(const ExecutorConfig& c) {
  const PeftCacheConfig& peft = c.peft_cache;
  RETURN_IF_ERROR(check_peft_cache(peft, c.enable_lora));
  RETURN_IF_ERROR(check_range("peft_cache.num_device_module_layers", peft.num_device_module_layers,
                              0, 1 << 24));
  RETURN_IF_ERROR(check_range("peft_cache.optimal_adapter_size", peft.optimal_adapter_size, 1,
                              kernels::kMaxAdapterRank));
  RETURN_IF_ERROR(check_range("peft_cache.max_adapter_size", peft.max_adapter_size, 1,
                              kernels::kMaxAdapterRank));
  RETURN_IF_ERROR(
      check_range("peft_cache.host_cache_bytes", peft.host_cache_bytes, 1, int64_t{1} << 50));
  if (!(peft.device_cache_fraction > 0 && peft.device_cache_fraction < 1))
    return invalid_argument("peft_cache.device_cache_fraction: {} is not in (0, 1)",
                            peft.device_cache_fraction);
  if (c.enable_lora || c.lora_directories.empty()) return ok();
  return invalid_argument("lora_directories: {} of them without enable_lora",
                          c.lora_directories.size());
}

Status check_speculation(const ExecutorConfig& c) {
  const std::string& s = c.speculation;
  RETURN_IF_ERROR(check_range("max_draft_len", c.max_draft_len, 0, kMaxDraftLen));
  RETURN_IF_ERROR(check_range("ngram_pool_size", c.ngram_pool_size, 0, kMaxNgramPool));
  const bool has_folder = s == "draft_model" || s == "medusa" || s == "redrafter" || s == "eagle";
  const bool has_none = s.empty() || s == "none" || s == "ngram" || s == "auto" || s == "mtp";
  if (!has_none && !has_folder && s != "lookahead")
    return invalid_argument(
        "speculation: '{}' is not one of none, ngram, draft_model, medusa, redrafter, eagle, mtp, "
        "lookahead, auto",
        s);
  if (s == "lookahead") RETURN_IF_ERROR(check_lookahead(c.lookahead));
  if (has_folder && c.draft_model.empty())
    return invalid_argument("speculation: {} needs draft_model, the {}", s,
                            s == "draft_model"
                                ? "model's directory"
                                : "heads' directory, or an engine that was built with them");
  RETURN_IF_ERROR(check_range("eagle_tree_top_k", c.eagle_tree_top_k, 0, kMaxTreeTopK));
  RETURN_IF_ERROR(check_range("eagle_tree_depth", c.eagle_tree_depth, 0, kMaxDraftLen));
  const std::string top_k = c.eagle_tree_top_k > 0 ? std::to_string(c.eagle_tree_top_k) : "";
  const std::pair<const char*, std::string_view> trees[] = {{"medusa_choices", c.medusa_choices},
                                                            {"eagle_choices", c.eagle_choices},
                                                            {"eagle_tree_top_k", top_k}};
  for (const auto& [field, value] : trees)
    if (!value.empty() && c.draft_model.empty() && s != "mtp")
      return invalid_argument("{}: '{}' needs draft_model, the heads' directory", field, value);
  if (c.eagle_tree_top_k > 0 && !c.eagle_choices.empty())
    return invalid_argument("eagle_tree_top_k: {} and eagle_choices exclude each other",
                            c.eagle_tree_top_k);
  if (c.eagle_tree_depth > 0 && c.eagle_tree_top_k == 0)
    return invalid_argument("eagle_tree_depth: {} needs eagle_tree_top_k", c.eagle_tree_depth);
  if (!(c.typical_acceptance >= 0 && c.typical_acceptance <= 1))
    return invalid_argument("typical_acceptance: {} is not in [0, 1]", c.typical_acceptance);
  if ((s == "ngram" || s == "mtp" || s == "lookahead") && !c.draft_model.empty())
    return invalid_argument(
        "draft_model: '{}' is not used by speculation {}; allowed are draft_model, "
        "medusa, redrafter, eagle, auto and none",
        c.draft_model.string(), s);
  return ok();
}

}  // namespace

Status check_lookahead(const LookaheadConfig& c) {
  constexpr int32_t kMost = exec::kMaxTreeDrafts;
  RETURN_IF_ERROR(check_range("lookahead.window_size", c.window_size, 1, kMost));
  RETURN_IF_ERROR(check_range("lookahead.ngram_size", c.ngram_size, 1, kMost));
  RETURN_IF_ERROR(
      check_range("lookahead.verification_set_size", c.verification_set_size, 0, kMost));
  if (c.ngram_size == 1 && (c.window_size > 1 || c.verification_set_size > 0))
    return invalid_argument(
        "lookahead.ngram_size: 1 is allowed with a window of 1 and a verification set of 0, not "
        "with {} and {}",
        c.window_size, c.verification_set_size);
  if (num_drafts(c) <= kMost) return ok();
  return invalid_argument(
      "lookahead: a window of {}, n-grams of {} and a verification set of {} make {} drafts a "
      "step; at most {} are allowed",
      c.window_size, c.ngram_size, c.verification_set_size, num_drafts(c), kMost);
}

Status check_config(const ExecutorConfig& c) {
  RETURN_IF_ERROR(check_range("num_threads", c.num_threads, 0, 1024));
  RETURN_IF_ERROR(check_range("memory_bytes", c.memory_bytes, 0, int64_t{1} << 50));
  RETURN_IF_ERROR(check_scheduler(c.scheduler, c.kv_cache));
  RETURN_IF_ERROR(check_kv_cache(c.kv_cache));
  RETURN_IF_ERROR(check_lora(c));
  RETURN_IF_ERROR(check_range("max_batch_size", c.max_batch_size, 1, 4096));
  RETURN_IF_ERROR(check_range("max_beam_width", c.max_beam_width, 1, kMaxBeamWidth));
  if (c.max_beam_width > c.max_batch_size)
    return invalid_argument("max_beam_width: {} is more than max_batch_size {}; each beam is a row",
                            c.max_beam_width, c.max_batch_size);
  RETURN_IF_ERROR(check_range("max_num_tokens", c.max_num_tokens, 1, 1 << 20));
  if (c.max_num_tokens < c.max_beam_width)
    return invalid_argument("max_num_tokens: {} is less than max_beam_width {}", c.max_num_tokens,
                            c.max_beam_width);
  RETURN_IF_ERROR(check_range("max_sequence_length", c.max_sequence_length, 0, 1 << 30));
  RETURN_IF_ERROR(check_range("max_queue_size", c.max_queue_size, 1, 1 << 24));
  RETURN_IF_ERROR(check_range("device_timeout_secs", c.device_timeout_secs, 0, 86400));
  RETURN_IF_ERROR(check_range("max_logits_bytes", c.max_logits_bytes, 0, int64_t{1} << 50));
  RETURN_IF_ERROR(check_speculation(c));
  RETURN_IF_ERROR(
      check_range("iter_stats_max_iterations", c.iter_stats_max_iterations, 0, 1 << 20));
  return check_range("request_stats_max_iterations", c.request_stats_max_iterations, 0, 1 << 20);
}

}  // namespace nereid::runtime
