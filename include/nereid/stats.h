// Statistics of an Executor.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/request.h"

namespace nereid {

// The KV cache of one cache group: the layers with the same window.
struct KvGroupStats {
  int64_t window = 0;  // positions that a token attends to; 0 = all
  int64_t blocks_total = 0, blocks_free = 0;
  int64_t blocks_held_most = 0;  // high-water mark since start
  int64_t host_blocks_total = 0, host_blocks_free = 0;
};
inline constexpr size_t kMaxKvGroups = 8;

// Statistics of LoRA adapters: adapter slots on the device, the pages that they share,
// and the host cache.
struct AdapterStats {
  int64_t num_places = 0, num_places_used = 0;  // adapter slots on the device; 0: adapters are off
  int64_t num_pages = 0, num_pages_used = 0;    // pages on the device
  int64_t num_held = 0, bytes = 0, max_bytes = 0;  // in the host cache
  // Since start: requests whose adapter was in the host cache, and the others.
  int64_t num_hits = 0, num_misses = 0;
  int64_t num_evictions = 0;  // from the host cache
  int64_t num_loads = 0;      // into adapter slots
};

// Draft tokens from one source, tested by sequences that had not ended when their step did.
struct DraftStats {
  int64_t num_drafts = 0, num_accepted = 0;
  // Tests by number of accepted drafts, a test being one sequence's drafts in one step; the last
  // entry is that many and more.
  std::array<int64_t, 33> tests_by_accepted{};
};

// A figure of an engine module that has no field of its own. Its name is a literal.
struct ModuleFigure {
  std::string_view name;
  int64_t value = 0;
};
inline constexpr size_t kMaxModuleFigures = 8;

// A consistent snapshot; also what the metrics endpoint publishes.
struct ExecutorStats {
  int64_t num_active = 0, num_waiting = 0;
  // Over all cache groups; free includes cached blocks that no sequence holds.
  int64_t kv_blocks_total = 0, kv_blocks_free = 0;
  int64_t kv_tokens_per_block = 0;
  int64_t kv_host_blocks_total = 0, kv_host_blocks_free = 0;
  int64_t kv_blocks_reused = 0;  // prefix hits, total since start
  int64_t kv_blocks_missed = 0;  // full prompt blocks computed, total since start
  // Device blocks taken from the pool, prefix hits excluded; new: those not filled
  // from the host pool.
  int64_t kv_blocks_allocated = 0, kv_blocks_allocated_new = 0;
  int64_t kv_blocks_offloaded = 0, kv_blocks_onboarded = 0;  // to and from host memory
  int64_t num_steps = 0, num_preemptions = 0;
  // Since start; prompt tokens computed, cached ones excluded.
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t num_drafts = 0, num_accepted_drafts = 0;  // draft tokens tested, and accepted
  // Draft tokens tested and accepted, by source: requests, and the proposer. `proposer` is a word
  // of ExecutorConfig::speculation, "" = none.
  DraftStats request_drafts, proposer_drafts;
  std::string_view proposer;
  int64_t num_finished = 0, num_cancelled = 0, num_timed_out = 0, num_failed = 0;
  int64_t num_numeric_failures = 0;  // among num_failed: logits that were not finite
  int64_t last_step_context_tokens = 0, last_step_generation_tokens = 0;
  int64_t last_step_context_requests = 0, last_step_generation_requests = 0;
  double last_step_seconds = 0;
  int64_t max_batch_size = 0;
  bool device_is_healthy = true;  // false from the device's failure on; see Executor::health()
  std::array<KvGroupStats, kMaxKvGroups> kv_groups;  // the first num_kv_groups are valid
  int64_t num_kv_groups = 0;
  AdapterStats adapters;
  std::array<ModuleFigure, kMaxModuleFigures> module_figures;  // the first num_module_figures
  int64_t num_module_figures = 0;

  // Beyond kMaxModuleFigures nothing is added.
  void add_figure(std::string_view name, int64_t value) {
    const auto i = static_cast<size_t>(num_module_figures);
    if (i == kMaxModuleFigures) return;
    module_figures[i] = {name, value};
    ++num_module_figures;
  }
};

// One step of the engine loop, recorded when it has finished; field meanings of TensorRT-LLM's
// iteration statistics. "Active" requests hold KV memory; a request of several sequences
// counts that often.
struct IterationStats {
  std::chrono::system_clock::time_point timestamp;
  int64_t iter = 0;
  // Latency of this step; overlapped steps: time since the previous one finished.
  double iter_latency_ms = 0;
  double new_active_requests_queue_latency_ms = 0;  // sum over requests that became active
  int32_t num_new_active_requests = 0, num_active_requests = 0, num_queued_requests = 0;
  int32_t num_completed_requests = 0, max_num_active_requests = 0;
  int32_t max_batch_size = 0, max_num_tokens = 0;                      // limits of a step
  int64_t cpu_mem_usage = 0, gpu_mem_usage = 0, pinned_mem_usage = 0;  // bytes
  int64_t kv_max_blocks = 0, kv_free_blocks = 0, kv_used_blocks = 0, kv_tokens_per_block = 0;
  int64_t kv_alloc_total_blocks = 0, kv_alloc_new_blocks = 0;  // this and the next two since start
  int64_t kv_reused_blocks = 0, kv_missed_blocks = 0;
  double kv_cache_hit_rate = 0;  // reused / (reused + missed)
  int32_t num_scheduled_requests = 0, num_context_requests = 0, num_gen_requests = 0;
  int32_t num_paused_requests = 0, num_ctx_tokens = 0;
  // Mean number of tokens that a request kept of this step.
  double avg_num_decoded_tokens_per_iter = 0;
};

enum class RequestStage : uint8_t {
  kQueued,
  kContextInProgress,
  kGenerationInProgress,
  kGenerationComplete
};

// One request in one iteration.
struct RequestStats {
  RequestId id = 0;
  RequestStage stage = RequestStage::kQueued;
  int32_t context_prefill_position = 0;
  int32_t num_generated_tokens = 0;
  double avg_num_decoded_tokens_per_iter = 0;
  bool scheduled = false, paused = false;
  int32_t alloc_total_blocks = 0, alloc_new_blocks = 0, reused_blocks = 0, missed_blocks = 0;
  double kv_cache_hit_rate = 0;
};
struct RequestStatsPerIteration {
  int64_t iter = 0;
  std::vector<RequestStats> requests;
};

// A change of the prefix cache, for routers that mirror it. A model with several cache groups has a
// prefix cache for each, with events of its own; a prefix is found where every group has its part.
struct KvCacheEvent {
  enum class Kind : uint8_t { kCreated, kStored, kRemoved, kUpdated };
  uint64_t event_id = 0;  // increasing; a gap means dropped events
  Kind kind = Kind::kCreated;
  std::vector<int64_t> num_blocks_per_level;  // created: device, host
  std::optional<uint64_t> parent_hash;  // stored: hash of the previous block; none = first block
  std::vector<uint64_t> block_hashes;   // stored, removed, updated
  std::vector<TokenId> tokens;          // stored: tokens of its only block
  int32_t level = 0, priority = 0;      // stored, updated: new values; 0 = device, 1 = host
  int32_t group = 0;                    // index of the cache group; 0 has the largest window
  int32_t window = 0;                   // created: the group's window; 0 = all positions
};

// One entry of the device memory table.
struct MemoryUse {
  std::string what;
  int64_t bytes = 0;
  int32_t rank = 0;
};

// A rank of a model on several, since its start.
struct RankStats {
  int32_t rank = 0;
  std::string device;  // "cpu" or "cuda:0"
  int64_t num_steps = 0;
  // Time of its steps in the exchange with other ranks; on GPUs the time of enqueuing it.
  double exchange_seconds = 0;
};

// A layer of experts, since the start.
struct ExpertLoad {
  int32_t layer = 0;
  std::vector<int64_t> tokens;  // [experts]: for which the router has chosen each
};

// Part of a sequence's time in the batch, from `begin` to `end`: seconds before the snapshot.
struct BatchSpan {
  enum class Kind : uint8_t { kQueued, kPrefill, kDecode, kPaused };
  Kind kind = Kind::kQueued;
  double begin = 0, end = 0;
  int32_t tokens = 0;  // computed, drafts included; a prefill span is one chunk of the prompt
};
struct BatchSequence {
  RequestId id = 0;
  int32_t instance = 0;  // of the model, which gives ids of its own
  int32_t prompt_tokens = 0, generated_tokens = 0;
  bool ended = false;
  std::vector<BatchSpan>
      spans;  // ascending, at most kMaxBatchSpans; chunks before these are joined
};
inline constexpr size_t kMaxBatchSpans = 64;
inline constexpr size_t kMaxBatchSequences = 256;

// Timeline of the batch over the last `seconds`.
struct BatchTimeline {
  double seconds = 0;
  std::vector<BatchSequence> sequences;  // by arrival, at most kMaxBatchSequences an instance
  int64_t num_left_out = 0;              // sequences beyond these, since the first snapshot
};

// Consecutive blocks of a prefix in the KV cache: each but the last has one continuation, and all
// have the same number of holders and the same tier.
struct CachedRun {
  int32_t parent = -1;  // index of the run that it continues, an earlier one; -1: begins a prompt
  int32_t tokens = 0, blocks = 0;
  int32_t holders = 0;  // block tables of live sequences that hold the blocks; beams have their own
  bool on_host = false;  // the blocks are in the host pool
};
inline constexpr size_t kMaxCachedRuns = 512;
inline constexpr int32_t kMaxCachedBlocks = 4096;

// The prefix tree of the KV cache, of blocks with the largest window: at most kMaxCachedRuns runs
// of at most kMaxCachedBlocks blocks.
struct PrefixTreeOutline {
  int32_t instance = 0;  // of the model
  double age = -1;       // seconds since it was made; below 0: none has been made yet
  int32_t tokens_per_block = 0;
  int64_t num_blocks = 0;  // all cached ones, on both tiers
  // Nearer to the root first; continuations of a run and first runs of prompts newest first.
  std::vector<CachedRun> runs;
  int64_t num_left_out = 0;  // blocks that are in no run
};

// The running engine in the form of `nereid inspect`: plan, kernel choices and the memory that it
// takes as text, an encoder's plan behind the decoder's; and the decoder's graph as SVG.
struct PlanReport {
  std::string text, graph;
};

// An instance of a model (ExecutorConfig::num_instances), since the start of the model.
struct InstanceStats {
  int32_t instance = 0;
  bool is_healthy = true;
  int64_t num_requests = 0;  // that were sent to it and have not ended
  int64_t num_restarts = 0;  // that have succeeded
};

// The iteration statistics as JSON in TensorRT-LLM's form and order; fields that do not apply are
// null. The time is UTC, "MM-DD-YYYY HH:MM:SS.ffffff".
std::string to_json(const IterationStats& stats);
std::string to_json(const RequestStatsPerIteration& stats);
// {"seconds": 60, "left_out": 0, "sequences": [{"id", "instance", "prompt_tokens",
// "generated_tokens", "ended", "spans": [[kind, begin, end, tokens], ...]}]}; kinds are "queued",
// "prefill", "decode", "paused", begin and end milliseconds before the snapshot.
std::string to_json(const BatchTimeline& timeline);
// {"instances": [{"instance", "age_ms", "tokens_per_block", "blocks", "left_out", "runs": [[parent,
// tokens, blocks, holders, tier], ...]}]}; a tier is "device" or "host". age_ms is null in place of
// an outline that has not been made.
std::string to_json(const std::vector<PrefixTreeOutline>& instances);
// {"text", "graph"}.
std::string to_json(const PlanReport& report);

}  // namespace nereid
