// The options of an Executor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nereid/request.h"

namespace nereid {

// Which waiting sequences are admitted, by KV memory. See src/sched/README.md for the accounting.
enum class CapacityPolicy : uint8_t {
  kMaxUtilization,     // as many as fit now; the newest are preempted when memory runs out
  kGuaranteedNoEvict,  // only those whose worst case fits; none is ever preempted for memory
  kStaticBatch,        // as kGuaranteedNoEvict, and none joins a running batch
};

// How the tokens of a step are shared among prompts that do not fit whole.
enum class ChunkingPolicy : uint8_t { kFirstComeFirstServed, kEqualProgress };

// The KV blocks of a preempted sequence.
enum class PausePolicy : uint8_t {
  kRecompute,  // freed: cached ones may be found again, the rest is computed again
  kSwap,  // moved to the host pool (kv_cache.host_cache_bytes); blocks without room are recomputed
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
      memory_fraction;  // share of the memory free after weights and buffers; valid: (0, 1]
  // Share of the KV memory for an encoder's results; valid: (0, 1). Unset: cross attention has as
  // much as a full batch of the longest encoder inputs needs, at most half; features of pictures as
  // much as 16 of the largest ones need, at most 0.05.
  std::optional<double> cross_fraction;
  bool enable_block_reuse = true;    // prefix cache
  bool enable_partial_reuse = true;  // reuse leading tokens of a cached block by copying them
  int32_t tokens_per_block = 32;     // 16 | 32 | 64 | 128
  KvCacheType type = KvCacheType::kAuto;
  // Positions that a token attends to, itself included; 0 = the model's own. Blocks behind the
  // window are freed while the sequence runs.
  int32_t max_attention_window = 0;
  int32_t sink_token_length = 0;      // leading positions that stay visible beyond the window
  int64_t host_cache_bytes = 0;       // second-level pool in host memory; 0 = none
  int32_t offload_min_priority = 30;  // evicted blocks below this are dropped; valid: 0 to 100
  int32_t event_buffer_size = 0;      // KvCacheEvents kept; the oldest are dropped; 0 = none
};

// Memory for LoRA adapters on the device and on the host. A module layer is the room of an adapter
// of rank max_adapter_size for the widest matrix of a layer. The device's memory is divided into
// pages, each large enough for an adapter of rank optimal_adapter_size in one module layer; an
// adapter takes as many pages as its matrices fill. Fields marked "only N" exist for compatibility
// and may only have that value.
struct PeftCacheConfig {
  int32_t num_host_module_layers = 0;    // only 0: host_cache_bytes sets the size of the host cache
  int32_t num_device_module_layers = 0;  // of the device cache; 0 = by device_cache_fraction
  int32_t optimal_adapter_size = 8;      // rank for which a page is sized; valid: 1 to 512
  int32_t max_adapter_size = 64;         // largest rank of an adapter; valid: 1 to 512
  int32_t num_put_workers = 1;           // only 1
  int32_t num_ensure_workers = 1;        // only 1
  int32_t num_copy_streams = 1;          // only 1
  int32_t max_pages_per_block_host = 24;   // only 24
  int32_t max_pages_per_block_device = 8;  // only 8
  double device_cache_fraction = 0.05;     // of memory_bytes, or of what is free; valid: (0, 1)
  // Adapters in use count; an adapter without room is refused. valid: > 0
  int64_t host_cache_bytes = int64_t{1} << 30;
  // Directories of hf_lora_convert.py (model.lora_weights.npy, model.lora_config.npy), each named
  // by its task id, loaded at start; empty = none
  std::filesystem::path prefetch_dir;
};

// A folder with a LoRA adapter in the format of Hugging Face PEFT (adapter_config.json,
// adapter_model.safetensors or .bin), loaded at start and never evicted.
struct LoraDirectory {
  uint64_t task_id = 0;  // id of the adapter in requests; see LoraConfig
  std::filesystem::path path;
  std::filesystem::path root = {};  // every file of the adapter must lie inside; empty: anywhere
};

inline constexpr int32_t kMaxBeamWidth = 16;
inline constexpr int32_t kMaxLoraRank = 512;
inline constexpr int32_t kMaxDraftLen = 32;
inline constexpr int32_t kMaxLookahead = 64;
inline constexpr int32_t kMaxTreeTopK = 32;
inline constexpr int32_t kMaxNgramPool = 1 << 26;

struct ExecutorConfig {
  // cpu, cuda:N, or auto: the device of a ready engine, else the first GPU, else the CPU (the
  // default of the command line and of the backend's parameters).
  std::string device = "cpu";
  // A model on several ranks, tensor_parallel * pipeline_parallel of them, each with a part of the
  // weights and of the KV cache. tensor_parallel divides heads, columns and vocabulary: a number,
  // or auto: the fewest ranks on GPUs with memory for it. pipeline_parallel divides layers.
  // expert_parallel: of the tensor ranks, so many groups with different experts; it divides
  // tensor_parallel. Valid: 1 to 64, at most 64 ranks; 0 = 1.
  std::string tensor_parallel = "1";
  int32_t pipeline_parallel = 1;
  int32_t expert_parallel = 1;
  // Devices of the ranks, in order, at least as many: "cuda:0-3", "cuda:0,2"; cpu: all ranks on
  // this CPU. Empty: `device`, and the GPUs after it. With several instances also a list for each,
  // "cuda:0,1;cuda:2,3": instance i has list i mod the number of lists.
  std::string devices;
  // Results have the same bits for any tensor_parallel, on CPUs; the engine is built for it.
  bool tp_invariant = false;
  // On CPUs: ranks after the first are processes of their own, started and ended with the model.
  bool rank_processes = false;
  // leader: the first rank is a thread of this process. orchestrator: all ranks are processes of
  // their own, also the only one.
  std::string process_mode = "leader";
  // Processes of the ranks, by number, among those that mpirun or srun has started: "1,2". Empty:
  // leader: all, from 0 on; orchestrator: the model starts processes itself. With several instances
  // a list for each, as `devices`: "1,2;3,4".
  std::string participant_ids;
  // Instances of the model, each with ranks, weights and a KV cache of its own, and max_batch_size,
  // max_queue_size and max_logits_bytes for itself. CPU threads and memory_bytes are divided among
  // those on the same devices. A request goes to the instance that has its prefix and room for it.
  // Valid: 0 to 64; 0 = 1.
  int32_t num_instances = 0;
  // An instance whose device or ranks have failed is opened again, after 1, 2, 4 ... 60 seconds:
  // true, false or auto, which is true with process_mode orchestrator. Not one whose device hangs
  // in this process: its memory cannot be freed.
  std::string restart_failed = "auto";
  int32_t num_threads = 0;  // CPU compute threads; 0 = one per physical core
  // Budget for weights, buffers and KV together, for each GPU, or for all ranks on a CPU; 0 = a
  // share of the free memory.
  int64_t memory_bytes = 0;
  // Type of the weights of matrix products, set when the engine is built: auto (the checkpoint's),
  // bf16, int8 (a scale for each output), int4 (a scale for every 128 inputs of an output), w8a8
  // (int8 weights, and activations rounded to 8-bit integers with a scale for each token) or fp8
  // (f8e4m3 with a scale for each output; on GPUs activations too, with a scale for each token). It
  // applies to experts; the embedding and the router keep their types.
  std::string weights = "auto";
  // Type of the head's weights, in the same words; auto: int8 where `weights` is int8, int4 or
  // w8a8, bf16 where it is bf16 or fp8, else the checkpoint's. An embedding that is the same tensor
  // follows where the device can look rows up in that type (CPUs; a GPU keeps it as bf16).
  std::string head_weights = "auto";
  std::string expert_weights = "auto";
  SchedulerConfig scheduler;
  KvCacheConfig kv_cache;
  bool enable_lora = false;  // requests may name an adapter; the engine is built for it
  PeftCacheConfig peft_cache;
  std::vector<LoraDirectory> lora_directories;  // need enable_lora
  // For the next three, 0 = the limit that the engine was built with, without an
  // engine the default.
  int32_t max_batch_size = 32;    // sequences (with beams: beams) per step
  int32_t max_beam_width = 1;     // valid: 1 to 16, at most max_batch_size
  int32_t max_num_tokens = 2048;  // tokens per step; longer prompts are chunked
  // Prompt and output tokens of a sequence; 0 = the model's maximum, which is also
  // the largest value.
  int32_t max_sequence_length = 0;
  // Positions of an encoder's input; 0 = the model's maximum, at most 4096 (patches: 8192).
  int32_t max_encoder_input_len = 0;
  int32_t max_queue_size = 1024;  // accepted requests that wait; full: kResourceExhausted
  int32_t max_request_secs = 0;   // a request's time, at most Request::allotted_time; 0 = no limit
  // Bytes of f32 logits that all requests under way together, and so each of them, may ask for.
  int64_t max_logits_bytes = int64_t{2} << 30;
  // Speculation: draft tokens tested beside the next token of a sequence; they change no output.
  // Not for beams. none; ngram: the tokens that followed the same n-gram earlier in prompt or
  // output; draft_model, medusa, redrafter, eagle: drafts of such a model or heads in
  // `draft_model`; mtp: drafts of the checkpoint's layer for multi-token prediction; lookahead:
  // n-grams that the model computes a few tokens ahead in each step; auto: the kind of
  // `draft_model`, else mtp if the checkpoint has that layer, else ngram, with as many drafts as
  // pay, down to none. Empty: auto with `draft_model`, else none.
  std::string speculation;
  std::filesystem::path draft_model;  // folder of a model with the same vocabulary, or of heads
  // Draft tokens of a sequence in a step, at most kMaxDraftLen; 0 = 4 with `draft_model`, else 8,
  // or the size of the tree.
  int32_t max_draft_len = 0;
  // The draft tree of Medusa heads, each node as the ranks on its path: "{0}, {0, 0}, {1}"; at most
  // 64 nodes. Empty: a chain of each head's likeliest token.
  std::string medusa_choices;
  // The draft tree of an EAGLE head, in the same form. Empty: a chain, or the tree of
  // the next two options.
  std::string eagle_choices;
  // EAGLE-2: a draft tree grown by probability. At each depth eagle_tree_top_k nodes get as many
  // children each, and the likeliest nodes of all are tested (max_draft_len; 0 = top_k * depth, at
  // most 64). 0: off; at most kMaxTreeTopK.
  int32_t eagle_tree_top_k = 0;
  int32_t eagle_tree_depth = 0;  // depth of that tree, at most kMaxDraftLen; 0 = 5
  LookaheadConfig lookahead;     // the largest values for requests, and their defaults
  // For ngram: a pool of so many n-grams from all requests' texts, least recently used ones
  // evicted, searched where a request's own text has no match. Requests with another adapter or
  // cache_salt do not share. 0: no pool; at most kMaxNgramPool.
  int32_t ngram_pool_size = 0;
  // Typical acceptance with threshold t, in (0, 1]: a draft of a sampled request is also accepted
  // if its probability is above min(t, sqrt(t) * exp(-entropy)). Outputs then do not have the
  // distribution of the model. 0: drafts change no output.
  float typical_acceptance = 0;
  // Milliseconds of prefill in a step while other sequences decode, whose next tokens wait for the
  // step; longer prompts are chunked. By the measured speed of recent steps, never less than a KV
  // block, and at least as long as the decodes of the step take. 0 = no limit. Unset: 50 on CPUs,
  // no limit on GPUs. Valid: 0 to 60000.
  std::optional<int64_t> max_prefill_ms;
  bool enable_overlap = true;  // prepare step N+1 on the host while the device runs step N
  // Tokens that a grammar leaves no choice of are appended in one step.
  bool enable_jump_ahead = true;
  bool normalize_log_probs = true;  // top-k: reported log-probs are relative to the k kept tokens
  // Ends the process with exit code 1 once the device has failed for good and all requests have
  // been answered (see Executor::health), so that a supervisor restarts it.
  bool exit_on_device_failure = false;
  // Seconds without progress of awaited device work after which the device counts as failed for
  // good. On a CPU each finished part of a kernel is progress, so that no step is too long; on a
  // GPU each finished step is. 0: no limit; at most 86400.
  int32_t device_timeout_secs = 60;
  bool expert_load = false;  // tokens of each expert are counted; on CPUs, ranks as threads
  int32_t iter_stats_max_iterations = 1000;  // IterationStats kept; 0 = none
  int32_t request_stats_max_iterations = 0;  // iterations whose RequestStats are kept; 0 = none
  std::string isa;  // CPU kernels: empty = best | generic | avx2 | avx512 | avx512_bf16 | amx
  // A request gives the same bits alone and in any batch, in chunks or not. On GPUs this takes
  // slower kernels; on CPUs it always holds.
  bool deterministic = false;
  std::vector<std::string> forced_kernels;  // "op:name" each; see `nereid inspect`
  // For benchmarks: a config.json without weight files gets random weights.
  bool random_weights = false;
  std::filesystem::path cache_dir;  // folder of built engines; empty = the user's cache folder
};

}  // namespace nereid
