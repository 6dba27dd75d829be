// How an Executor runs its model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nereid/request.h"

namespace nereid {

// Who may run, by KV memory. See src/sched/README.md for the accounting.
enum class CapacityPolicy : uint8_t {
  kMaxUtilization,     // as many as fit now; the newest are paused when memory runs out
  kGuaranteedNoEvict,  // only those whose worst case fits; none is ever paused for memory
  kStaticBatch,        // like kGuaranteedNoEvict, and none joins a running batch
};

// How the tokens of a step are shared among prompts that do not fit whole.
enum class ChunkingPolicy : uint8_t { kFirstComeFirstServed, kEqualProgress };

// What a paused sequence's KV becomes.
enum class PausePolicy : uint8_t {
  kRecompute,  // cached blocks may be found again, the rest is computed again
  kSwap,  // moved to the host pool (kv_cache.host_cache_bytes); what does not fit is recomputed
};

struct SchedulerConfig {
  CapacityPolicy capacity_policy = CapacityPolicy::kMaxUtilization;
  ChunkingPolicy chunking_policy = ChunkingPolicy::kFirstComeFirstServed;
  bool enable_chunked_context = true;  // off: a prompt longer than max_num_tokens is refused
  PausePolicy pause_policy = PausePolicy::kRecompute;
};

enum class KvCacheType : uint8_t { kAuto, kInt8, kFp8, kBf16 };  // kAuto: the model's own type

struct KvCacheConfig {
  std::optional<int64_t> max_tokens;  // KV capacity in tokens; unset: by memory
  std::optional<double>
      memory_fraction;               // of what is free after weights and buffers; valid: (0, 1]
  bool enable_block_reuse = true;    // prefix cache
  bool enable_partial_reuse = true;  // leading tokens of a block are copied from a cached one
  int32_t tokens_per_block = 32;     // 16 | 32 | 64 | 128
  KvCacheType type = KvCacheType::kAuto;
  // Positions that a token sees, itself included; 0 = the model's own. Blocks behind it are given
  // back while the sequence runs.
  int32_t max_attention_window = 0;
  int32_t sink_token_length = 0;      // leading positions that stay visible beyond the window
  int64_t host_cache_bytes = 0;       // second-level pool in host memory; 0 = none
  int32_t offload_min_priority = 30;  // evicted blocks below this are dropped; valid: 0 to 100
  int32_t event_buffer_size = 0;      // KvCacheEvents kept; the oldest go first; 0 = none
};

// Memory for LoRA adapters on the device and on the host. A module layer is what an adapter of rank
// max_adapter_size has for the widest matrix of a layer. The device's memory is divided into pages,
// each large enough for optimal_adapter_size there; an adapter takes as many as its matrices fill.
// Fields whose comment says so have nothing to act on and may only have their default.
struct PeftCacheConfig {
  int32_t num_host_module_layers = 0;      // only 0: the host cache is sized by host_cache_bytes
  int32_t num_device_module_layers = 0;    // of the device cache; 0 = by device_cache_fraction
  int32_t optimal_adapter_size = 8;        // rank of which a page is; valid: 1 to 512
  int32_t max_adapter_size = 64;           // largest rank that may be loaded; valid: 1 to 512
  int32_t num_put_workers = 1;             // only 1
  int32_t num_ensure_workers = 1;          // only 1
  int32_t num_copy_streams = 1;            // only 1
  int32_t max_pages_per_block_host = 24;   // only 24
  int32_t max_pages_per_block_device = 8;  // only 8
  double device_cache_fraction = 0.05;     // of memory_bytes, or of what is free; valid: (0, 1)
  // Adapters in use are among them; one for which there is no room is refused. valid: > 0
  int64_t host_cache_bytes = int64_t{1} << 30;
  // Directories of hf_lora_convert.py (model.lora_weights.npy, model.lora_config.npy), each named
  // by its task id, loaded at start; empty = none
  std::filesystem::path prefetch_dir;
};

// A folder with a LoRA adapter as Hugging Face PEFT writes it (adapter_config.json,
// adapter_model.safetensors or .bin), loaded at start and never evicted.
struct LoraDirectory {
  uint64_t task_id = 0;  // what requests call it; see LoraConfig
  std::filesystem::path path;
  std::filesystem::path root = {};  // no file of it may lie outside; empty: anywhere
};

inline constexpr int32_t kMaxBeamWidth = 16;
inline constexpr int32_t kMaxLoraRank = 512;
inline constexpr int32_t kMaxDraftLen = 32;
inline constexpr int32_t kMaxLookahead = 64;
inline constexpr int32_t kMaxTreeTopK = 32;
inline constexpr int32_t kMaxNgramPool = 1 << 26;

struct ExecutorConfig {
  // auto (what a ready engine is for, else the first GPU, else the CPU; the default of the command
  // line and of the backend's parameters), cpu or cuda:N.
  std::string device = "cpu";
  int32_t num_threads = 0;   // CPU compute threads; 0 = one per physical core
  int64_t memory_bytes = 0;  // budget for weights, buffers and KV together; 0 = a share of what is
                             // free
  // What the matrices of products become when the engine is built: auto (what the checkpoint has),
  // bf16, int8 (integers with a scale for each output), int4 (with a scale for every 128 inputs of
  // an output), w8a8 (int8, and what is multiplied with them becomes integers of 8 bits with a
  // scale for each token) or fp8 (f8e4m3 with a scale for each output; on GPUs what is multiplied
  // with them becomes f8e4m3 with a scale for each token). Experts' products are among them; the
  // embedding and what chooses experts stay as they are.
  std::string weights = "auto";
  // What the head becomes, in the same words; auto: int8 where `weights` is int8, int4 or w8a8,
  // bf16 where it is bf16 or fp8, else what the checkpoint has. An embedding that is the same
  // tensor goes with it where the device can look rows up in it (CPUs; a GPU keeps it as bf16).
  std::string head_weights = "auto";
  SchedulerConfig scheduler;
  KvCacheConfig kv_cache;
  bool enable_lora = false;  // requests may name an adapter; the engine is built for it
  PeftCacheConfig peft_cache;
  std::vector<LoraDirectory> lora_directories;  // need enable_lora
  // 0 in one of these three: what the engine was built with, and where there is none the default.
  int32_t max_batch_size = 32;    // sequences (with beams: beams) per step
  int32_t max_beam_width = 1;     // valid: 1 to 16, at most max_batch_size
  int32_t max_num_tokens = 2048;  // tokens per step; longer prompts are chunked
  // Prompt and output tokens of a sequence; 0 = what the model allows, which is also the most.
  int32_t max_sequence_length = 0;
  int32_t max_queue_size = 1024;  // accepted requests that wait; full: kResourceExhausted
  int32_t max_request_secs = 0;   // a request's time, at most Request::allotted_time; 0 = no limit
  // Bytes of f32 logits that all requests under way together, and so each of them, may ask for.
  int64_t max_logits_bytes = int64_t{2} << 30;
  // Guesses of what a sequence says next, tested beside its next token; they change no output. Not
  // for beams.
  // none; ngram: what came after the last tokens where they stood before, in prompt or output;
  // draft_model, medusa, redrafter, eagle: what such a one in `draft_model` says; mtp: what the
  // layer behind the last one of the model's checkpoint says (multi-token prediction); lookahead:
  // what the model says a few tokens ahead of what it knows, for which each step computes them too;
  // auto: that of `draft_model`, without one mtp's, without such a layer ngram's, and as many as
  // pay, down to none. Empty: auto with `draft_model`, else none.
  std::string speculation;
  std::filesystem::path draft_model;  // of a model with the same tokens, or of heads
  int32_t max_draft_len = 0;          // guesses of a sequence in a step, at most kMaxDraftLen;
                                      // 0 = 4 with `draft_model`, else 8, or as many as a tree has
  // The tree of guesses of Medusa heads, as ranks that lead to each: "{0}, {0, 0}, {1}"; at
  // most 64. Empty: the likeliest of each head.
  std::string medusa_choices;
  // The same of an EAGLE head. Empty: a chain, or what the next two say.
  std::string eagle_choices;
  // EAGLE-2, a tree by the chances of its guesses: so many of each depth get so many guesses each,
  // and the likeliest of all are tested (max_draft_len; 0 = top_k * depth, at most 64). 0: none; at
  // most kMaxTreeTopK.
  int32_t eagle_tree_top_k = 0;
  int32_t eagle_tree_depth = 0;  // of that tree, at most kMaxDraftLen; 0 = 5
  LookaheadConfig lookahead;     // what requests may have at most, and have if they say nothing
  // Of ngram: so many runs of tokens of all requests' texts are kept, those used longest ago given
  // up; they are looked in where a request's own text says nothing. Requests with other adapters or
  // cache_salt share none. 0: none; at most kMaxNgramPool.
  int32_t ngram_pool_size = 0;
  // Above 0, at most 1: guesses for sampled requests are also taken when they are not drawn, if
  // their probability is above min(t, sqrt(t) * exp(-entropy)), t being this (typical acceptance).
  // Such outputs are not distributed as without guesses. 0: guesses change no output.
  float typical_acceptance = 0;
  bool enable_overlap = true;       // host work of the next step beside device work of this one
  bool enable_jump_ahead = true;    // what a grammar leaves no choice of takes one step, not many
  bool normalize_log_probs = true;  // top-k: reported log-probs are relative to the k kept tokens
  // Ends the process with exit code 1 once the device has failed for good and all requests have
  // been answered (see Executor::health), so that the process's supervisor starts it again.
  bool exit_on_device_failure = false;
  // Seconds for which the device may make no progress while work of it is waited for; then it
  // counts as failed for good: it hangs. On a CPU each finished piece of a kernel is progress, so
  // that no step is too long; on a GPU each finished step is. 0: no limit; at most 86400.
  int32_t device_timeout_secs = 60;
  int32_t iter_stats_max_iterations = 1000;  // IterationStats kept; 0 = none
  int32_t request_stats_max_iterations = 0;  // iterations whose RequestStats are kept; 0 = none
  std::string isa;  // CPU kernels: empty = best | generic | avx2 | avx512 | avx512_bf16 | amx
  // The same request gives the same bits alone and in any batch, in chunks or not, on GPUs too, by
  // slower kernels there; on CPUs that is always so.
  bool deterministic = false;
  std::vector<std::string> forced_kernels;  // "op:name" each; see `nereid inspect`
  bool random_weights = false;  // benchmarks: a config.json without weight files gets random ones
  std::filesystem::path cache_dir;  // where built engines are kept; empty = the user's cache folder
};

}  // namespace nereid
