// What an Executor tells about itself.
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

// The KV cache of the layers that look equally far back.
struct KvGroupStats {
  int64_t window = 0;  // positions that a token sees; 0 = all
  int64_t blocks_total = 0, blocks_free = 0;
  int64_t blocks_held_most = 0;  // at a time, since start
  int64_t host_blocks_total = 0, host_blocks_free = 0;
};
inline constexpr size_t kMaxKvGroups = 8;

// LoRA adapters. The device has places for so many, and pages that they share; the host cache holds
// others as well.
struct AdapterStats {
  int64_t num_places = 0, num_places_used = 0;     // on the device; no places: adapters are off
  int64_t num_pages = 0, num_pages_used = 0;       // likewise
  int64_t num_held = 0, bytes = 0, max_bytes = 0;  // in the host cache
  // Since start. Of requests: those whose adapter the host cache held, and those whose it did not.
  int64_t num_hits = 0, num_misses = 0;
  int64_t num_evictions = 0;  // from the host cache
  int64_t num_loads = 0;      // into places
};

// Guesses from one source, tested by sequences that had not ended when their step did.
struct DraftStats {
  int64_t num_drafts = 0, num_accepted = 0;
  // Tests, each of which is one sequence's guesses in one step, by how many of them held; the last
  // entry: so many and more.
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
  // Of all groups of layers together; free includes cached blocks without a holder.
  int64_t kv_blocks_total = 0, kv_blocks_free = 0;
  int64_t kv_tokens_per_block = 0;
  int64_t kv_host_blocks_total = 0, kv_host_blocks_free = 0;
  int64_t kv_blocks_reused = 0;  // prefix hits, total since start
  int64_t kv_blocks_missed = 0;  // full prompt blocks computed, total since start
  // Device blocks taken from the pool, hits not counted; new: without those that blocks of the host
  // pool were brought back into.
  int64_t kv_blocks_allocated = 0, kv_blocks_allocated_new = 0;
  int64_t kv_blocks_offloaded = 0, kv_blocks_onboarded = 0;  // to and from host memory
  int64_t num_steps = 0, num_preemptions = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0;  // since start; prompt tokens actually computed
  int64_t num_drafts = 0, num_accepted_drafts = 0;  // of speculation: computed, and drawn as well
  // Of those: the ones that came with requests, and the proposer's; its kind is a word of
  // ExecutorConfig::speculation, "" = there is none.
  DraftStats request_drafts, proposer_drafts;
  std::string_view proposer;
  int64_t num_finished = 0, num_cancelled = 0, num_timed_out = 0, num_failed = 0;
  int64_t num_numeric_failures = 0;  // of num_failed: logits that were not finite
  int64_t last_step_context_tokens = 0, last_step_generation_tokens = 0;
  int64_t last_step_context_requests = 0, last_step_generation_requests = 0;
  double last_step_seconds = 0;
  int64_t max_batch_size = 0;
  bool device_is_healthy = true;  // false for good once it has failed; see Executor::health()
  std::array<KvGroupStats, kMaxKvGroups> kv_groups;  // the first num_kv_groups
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
// iteration statistics. "Active" requests hold KV memory; a request of several sequences counts as
// that many.
struct IterationStats {
  std::chrono::system_clock::time_point timestamp;
  int64_t iter = 0;
  double iter_latency_ms = 0;  // of this step; overlapped steps: since the one before it finished
  double new_active_requests_queue_latency_ms = 0;  // sum over those that became active
  int32_t num_new_active_requests = 0, num_active_requests = 0, num_queued_requests = 0;
  int32_t num_completed_requests = 0, max_num_active_requests = 0;
  int32_t max_batch_size = 0, max_num_tokens = 0;                      // of a step
  int64_t cpu_mem_usage = 0, gpu_mem_usage = 0, pinned_mem_usage = 0;  // bytes
  int64_t kv_max_blocks = 0, kv_free_blocks = 0, kv_used_blocks = 0, kv_tokens_per_block = 0;
  int64_t kv_alloc_total_blocks = 0, kv_alloc_new_blocks = 0;  // since start, as are:
  int64_t kv_reused_blocks = 0, kv_missed_blocks = 0;
  double kv_cache_hit_rate = 0;  // reused / (reused + missed)
  int32_t num_scheduled_requests = 0, num_context_requests = 0, num_gen_requests = 0;
  int32_t num_paused_requests = 0, num_ctx_tokens = 0;
  double avg_num_decoded_tokens_per_iter = 0;  // tokens kept for each request that drew one
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

// A change of the prefix cache, for routers that mirror it. A model whose layers look differently
// far back keeps a cache for each window, with events of its own; a prefix is found where all of
// them have what they need of it.
struct KvCacheEvent {
  enum class Kind : uint8_t { kCreated, kStored, kRemoved, kUpdated };
  uint64_t event_id = 0;  // increasing, without gaps but for events that were dropped
  Kind kind = Kind::kCreated;
  std::vector<int64_t> num_blocks_per_level;  // created: device, host
  std::optional<uint64_t> parent_hash;        // stored: of the block before it; none = first block
  std::vector<uint64_t> block_hashes;         // stored, removed, updated
  std::vector<TokenId> tokens;                // stored: of the one block
  int32_t level = 0, priority = 0;            // stored, updated: new values; 0 = device, 1 = host
  int32_t group = 0;                          // of the model's caches; 0 looks back furthest
  int32_t window = 0;  // created: positions that a token sees in this cache; 0 = all
};

// One row of the table that says where memory goes.
struct MemoryUse {
  std::string what;
  int64_t bytes = 0;
};

// The JSON that TensorRT-LLM prints for the same statistics, in its order; what does not apply is
// null. The time is UTC, "MM-DD-YYYY HH:MM:SS.ffffff".
std::string to_json(const IterationStats& stats);
std::string to_json(const RequestStatsPerIteration& stats);

}  // namespace nereid
