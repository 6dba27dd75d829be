// Checks of an ExecutorConfig. Ranges and words are those of the options' declarations; checks that
// depend on the model are made where the model is opened.
#include "config/engine_options.h"
#include "kernels/api/op.h"
#include "runtime/instances/instance_configs.h"
#include "runtime/ranks.h"
#include "runtime/requests/request_check.h"
#include "runtime/speculation/lookahead.h"

namespace nereid::runtime {

static_assert(kMaxLoraRank == kernels::kMaxAdapterRank && kMaxLookahead == exec::kMaxTreeDrafts);

namespace {

Status check_scheduler(const SchedulerConfig& s, const KvCacheConfig& kv) {
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

// An option that nothing acts on would be ignored: without adapters all of the adapters' memory.
Status check_acts(const config::Options& given, bool enable_lora) {
  ExecutorConfig defaults;
  const config::Options allowed = config::engine_options(defaults);
  for (size_t i = 0; i < given.size(); ++i) {
    const bool needs_lora = std::string_view(given[i].name).starts_with("peft_cache.");
    const bool is_unused = given[i].use == config::Use::kOnly;
    if (!is_unused && (!needs_lora || enable_lora)) continue;
    const std::string value = config::text_of(given[i]), only = config::text_of(allowed[i]);
    if (value == only) continue;
    return invalid_argument("{}: {} is not allowed, only {} is{}", given[i].name, value, only,
                            is_unused ? "" : " without enable_lora");
  }
  return ok();
}

Status check_lora(const ExecutorConfig& c) {
  if (c.enable_lora || c.lora_directories.empty()) return ok();
  return invalid_argument("lora_directories: {} of them without enable_lora",
                          c.lora_directories.size());
}

Status check_speculation(const ExecutorConfig& c) {
  const std::string& s = c.speculation;
  const bool has_folder = s == "draft_model" || s == "medusa" || s == "redrafter" || s == "eagle";
  if (s == "lookahead") RETURN_IF_ERROR(check_lookahead(c.lookahead));
  if (has_folder && c.draft_model.empty())
    return invalid_argument("speculation: {} needs draft_model, the {}", s,
                            s == "draft_model"
                                ? "model's directory"
                                : "heads' directory, or an engine that was built with them");
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
  if ((s == "ngram" || s == "mtp" || s == "lookahead") && !c.draft_model.empty())
    return invalid_argument(
        "draft_model: '{}' is not used by speculation {}; allowed are draft_model, "
        "medusa, redrafter, eagle, auto and none",
        c.draft_model.string(), s);
  return ok();
}

}  // namespace

Status check_lookahead(const LookaheadConfig& c) {
  LookaheadConfig copy = c;
  RETURN_IF_ERROR(config::check(config::lookahead_options(copy)));
  if (c.ngram_size == 1 && (c.window_size > 1 || c.verification_set_size > 0))
    return invalid_argument(
        "lookahead.ngram_size: 1 is allowed with a window of 1 and a verification set of 0, not "
        "with {} and {}",
        c.window_size, c.verification_set_size);
  if (num_drafts(c) <= exec::kMaxTreeDrafts) return ok();
  return invalid_argument(
      "lookahead: a window of {}, n-grams of {} and a verification set of {} make {} drafts a "
      "step; at most {} are allowed",
      c.window_size, c.ngram_size, c.verification_set_size, num_drafts(c), exec::kMaxTreeDrafts);
}

Status check_config(const ExecutorConfig& c) {
  ExecutorConfig copy = c;
  const config::Options options = config::engine_options(copy);
  RETURN_IF_ERROR(check_acts(options, c.enable_lora));
  RETURN_IF_ERROR(config::check(options));
  RETURN_IF_ERROR(check_scheduler(c.scheduler, c.kv_cache));
  RETURN_IF_ERROR(check_lora(c));
  RETURN_IF_ERROR(read_mapping(c).status());
  RETURN_IF_ERROR(check_instances(c));
  if (c.max_beam_width > c.max_batch_size)
    return invalid_argument("max_beam_width: {} is more than max_batch_size {}; each beam is a row",
                            c.max_beam_width, c.max_batch_size);
  if (c.max_num_tokens < c.max_beam_width)
    return invalid_argument("max_num_tokens: {} is less than max_beam_width {}", c.max_num_tokens,
                            c.max_beam_width);
  return check_speculation(c);
}

}  // namespace nereid::runtime
