// See engine_options.h. A new option: an entry here, a field in nereid/config.h and its reader.
#include "config/engine_options.h"

#include <fmt/format.h>

#include "base/gpus.h"
#include "config/engine_option_groups.h"

namespace nereid::config {
namespace {

constexpr double kMaxTokens = 1 << 30;
constexpr int32_t kMaxRanks = 64, kMaxInstances = 64;
constexpr const char* kWeightTypes = "auto|bf16|int8|int4|w8a8|fp8";
constexpr const char* kExpertTypes = "auto|bf16|int8|int4|w8a8|fp8|mxfp4";

std::string device_problem(const std::string& name) {
  const bool is_gpu = name.starts_with("cuda:") && name.size() > 5 &&
                      name.find_first_not_of("0123456789", 5) == name.npos;
  if (name == "auto" || name == "cpu" || is_gpu || is_gpu_uuid(name)) return "";
  return fmt::format(
      "'{}' is none of auto, cpu, cuda:N (cuda:0 is the first GPU), the UUID of a GPU", name);
}

std::string ranks_problem(const std::string& text) {
  const bool is_number = text.size() <= 2 && text.find_first_not_of("0123456789") == text.npos;
  if (text.empty() || text == "auto" || (is_number && std::stoi(text) <= kMaxRanks)) return "";
  return fmt::format("'{}' is neither auto nor a number from 1 to {}", text, kMaxRanks);
}

void add_ranks(Options& options, ExecutorConfig& c) {
  add_group(
      options, "Ranks",
      {{.name = "tensor_parallel",
        .field = field(c.tensor_parallel),
        .help = "ranks that share heads, columns and vocabulary of each layer; auto = the fewest "
                "GPUs that have memory for the model",
        .flag = "--tp",
        .problem = ranks_problem},
       {.name = "pipeline_parallel",
        .field = field(c.pipeline_parallel),
        .help = "stages that share the layers",
        .range = {0, kMaxRanks},
        .flag = "--pp"},
       {.name = "expert_parallel",
        .field = field(c.expert_parallel),
        .help = "groups of tensor ranks with different experts of each layer; divides "
                "`tensor_parallel`",
        .range = {0, kMaxRanks},
        .flag = "--ep"},
       {.name = "devices",
        .field = field(c.devices),
        .help = "devices of the ranks, in order: cuda:0-3 or cuda:0,2, or UUIDs of GPUs (GPU-...); "
                "cpu = all on this CPU; with several instances a list for each, cuda:0,1;cuda:2,3",
        .default_text = "`device` and the GPUs after it"},
       {.name = "tp_invariant",
        .field = field(c.tp_invariant),
        .help = "the same bits for any `tensor_parallel`, on CPUs; the engine is built for it"},
       {.name = "rank_processes",
        .field = field(c.rank_processes),
        .help = "ranks on CPUs are processes of their own, not threads"}});
}

void add_instances(Options& options, ExecutorConfig& c) {
  add_group(
      options, "Processes and instances",
      {{.name = "process_mode",
        .field = field(c.process_mode),
        .help = "leader (the first rank, and on GPUs all ranks, are threads of this process) | "
                "orchestrator (all ranks on CPUs, and a model with one rank on a GPU, are "
                "processes of their own; this one only plans and answers)",
        .words = "leader|orchestrator"},
       {.name = "participant_ids",
        .field = field(c.participant_ids),
        .help = "of the processes that mpirun or srun has started, those of the ranks, in order: "
                "1,2; with several instances a list for each: 1,2;3,4",
        .default_text = "leader: all; orchestrator: processes are started"},
       {.name = "num_instances",
        .field = field(c.num_instances),
        .help = "instances of the model, each with ranks, weights and KV cache of its own; a "
                "request goes to the one that has its prefix and room; CPU threads and "
                "`memory_bytes` are divided among them; 0 = one, or in config.pbtxt, with "
                "`process_mode` orchestrator or several lists of devices or participants, the "
                "count of instance_group",
        .range = {0, kMaxInstances},
        .flag = "--instances"},
       {.name = "restart_failed",
        .field = field(c.restart_failed),
        .help = "an instance whose device or ranks have failed is opened again, after 1, 2, 4 ... "
                "60 seconds (not one whose device hangs in this process): true | false | auto (as "
                "true with `process_mode` orchestrator)",
        .words = "auto|true|false"}});
}

void add_machine(Options& options, ExecutorConfig& c) {
  add_group(
      options, "Device and memory",
      {{.name = "device",
        .field = field(c.device),
        .help = "auto (what a ready engine is for, else the first GPU, else the CPU) | cpu | "
                "cuda:N | the UUID of a GPU or a MIG slice (GPU-..., MIG-...), or its beginning",
        .problem = device_problem},
       {.name = "num_threads",
        .field = field(c.num_threads),
        .help = "CPU compute threads; 0 = one per physical core that this process may use",
        .range = {0, 1024},
        .flag = "--threads"},
       {.name = "isa",
        .field = field(c.isa),
        .help = "instruction set of the CPU kernels: generic | avx2 | avx512 | avx512_bf16 | amx",
        .words = "generic|avx2|avx512|avx512_bf16|amx",
        .default_text = "the best that the CPU has",
        .flag_takes_any = true},
       {.name = "memory_bytes",
        .field = field(c.memory_bytes),
        .help = "bytes for weights, buffers and KV cache together; 0 = a share of what is free",
        .range = {0, kMaxBytes},
        .flag = "--memory",
        .is_bytes = true},
       {.name = "deterministic",
        .field = field(c.deterministic),
        .help = "a request gives the same bits alone and in any batch, in chunks or not, on GPUs "
                "too, by slower kernels there; on CPUs that is always so"},
       {.name = "forced_kernels",
        .field = field(c.forced_kernels),
        .help = "kernels that must be used, op:name (`nereid inspect` lists them); the flag may be "
                "repeated, the parameter is a comma list",
        .flag = "--kernel"},
       {.name = "exit_on_device_failure",
        .field = field(c.exit_on_device_failure),
        .help = "the process ends with exit code 1 when the device has failed for good; otherwise "
                "requests get 503 and the model is not ready"},
       {.name = "device_timeout_secs",
        .field = field(c.device_timeout_secs),
        .help = "seconds without progress of the device (CPU: no part of a kernel ends; GPU: no "
                "step ends) while work is waited for, after which it has failed; 0 = no limit",
        .range = {0, 86400}}});
}

void add_model(Options& options, ExecutorConfig& c) {
  add_group(
      options, "Weights and engine",
      {{.name = "weights",
        .field = field(c.weights),
        .help = "type of the matrices of products when the engine is built: auto (as the "
                "checkpoint has them) | bf16 | int8 | int4 (in groups of 128, without calibration: "
                "`nereid quantize` makes better ones) | w8a8 (int8 with int8 activations) | fp8 "
                "(on GPUs with fp8 activations); routers and latent attention's products by heads "
                "stay bf16",
        .words = kWeightTypes},
       {.name = "head_weights",
        .field = field(c.head_weights),
        .help = "type of the head, and of the embedding where both are one tensor, in the words "
                "of `weights`; auto = int8 where `weights` is int8, int4 or w8a8, bf16 where it is "
                "bf16 or fp8, else as the checkpoint has it",
        .words = kWeightTypes},
       {.name = "expert_weights",
        .field = field(c.expert_weights),
        .help = "type of experts' matrices, in the words of `weights`, or mxfp4 (on Hopper GPUs: "
                "multiplied as stored); auto = as `weights`",
        .words = kExpertTypes},
       {.name = "random_weights",
        .field = field(c.random_weights),
        .help = "benchmarks only: random weights for a config.json without weight files, or, as a "
                "flag, for a published model's dimensions by its name"},
       {.name = "cache_dir",
        .field = field(c.cache_dir),
        .help = "where built engines are kept",
        .default_text = "$NEREID_CACHE_DIR, else nereid in $XDG_CACHE_HOME or ~/.cache",
        .has_environment = false}});
}

void add_limits(Options& options, ExecutorConfig& c) {
  add_group(
      options, "Limits",
      {{.name = "max_batch_size",
        .field = field(c.max_batch_size),
        .help = "sequences (with beams: beams) computed together in one step; 0 = what the engine "
                "was built with, else 32",
        .range = {1, 4096},
        .parameter = "max_num_sequences",
        .placeholder = "max_batch_size",
        .zero_is_default = true},
       {.name = "max_num_tokens",
        .field = field(c.max_num_tokens),
        .help = "tokens computed in one step; longer prompts are split over several steps; 0 = "
                "what the engine was built with, else 2048",
        .range = {1, 1 << 20},
        .zero_is_default = true},
       {.name = "max_sequence_length",
        .field = field(c.max_sequence_length),
        .help = "prompt and output tokens of a sequence, at most what the model allows; 0 = that",
        .range = {0, kMaxTokens},
        .flag = "--max-seq-len,--max-model-len",
        .parameter = "max_seq_len",
        .zero_is_default = true},
       {.name = "max_encoder_input_len",
        .field = field(c.max_encoder_input_len),
        .help = "positions of an encoder's input (patches of a picture), at most what the model "
                "allows; 0 = that, at most 4096 (8192)",
        .range = {0, kMaxTokens},
        .zero_is_default = true},
       {.name = "max_beam_width",
        .field = field(c.max_beam_width),
        .help = "widest beam search that a request may ask for; 0 = what the engine was built "
                "with, else 1",
        .range = {1, kMaxBeamWidth},
        .zero_is_default = true},
       {.name = "max_queue_size",
        .field = field(c.max_queue_size),
        .help = "requests that may wait; when the queue is full, new ones are refused (503)",
        .range = {1, 1 << 24},
        .zero_is_default = true},
       {.name = "max_request_secs",
        .field = field(c.max_request_secs),
        .help = "seconds that a request may take, waiting included, after which it ends (finish "
                "reason timed_out); a request may ask for less (allotted_time_ms); 0 = no limit",
        .range = {0, 86400}},
       {.name = "max_logits_bytes",
        .field = field(c.max_logits_bytes),
        .help = "bytes of logits (f32) that all requests under way together may ask for; "
                "a request that asks for more is refused, one that would wait gets 503",
        .range = {0, kMaxBytes},
        .is_bytes = true}});
}

void add_scheduling(Options& options, ExecutorConfig& c) {
  SchedulerConfig& s = c.scheduler;
  add_group(
      options, "Scheduling",
      {{.name = "scheduler.capacity_policy",
        .field = field(s.capacity_policy),
        .help = "which sequences may run, by KV memory: max_utilization (as many as fit now; the "
                "newest are paused when memory runs out) | guaranteed_no_evict (those whose worst "
                "case fits) | static_batch (likewise, and none joins a running batch)",
        .words = "max_utilization|guaranteed_no_evict|static_batch",
        .flag = "--scheduler-policy",
        .parameter = "batch_scheduler_policy"},
       {.name = "scheduler.chunking_policy",
        .field = field(s.chunking_policy),
        .help = "how the tokens of a step are shared among long prompts: first_come_first_served | "
                "equal_progress",
        .words = "first_come_first_served|equal_progress",
        .flag = "--chunking-policy",
        .parameter = "context_chunking_policy"},
       {.name = "scheduler.enable_chunked_context",
        .field = field(s.enable_chunked_context),
        .help = "prompts longer than `max_num_tokens` are split over steps; otherwise they are "
                "refused",
        .flag = "--no-chunked-context",
        .parameter = "enable_chunked_context"},
       {.name = "scheduler.pause_policy",
        .field = field(s.pause_policy),
        .help = "what becomes of a paused sequence's KV cache: recompute | swap (moved to host "
                "memory, which needs `kv_cache.host_cache_bytes`)",
        .words = "recompute|swap",
        .flag = "--pause-policy",
        .parameter = "pause_policy"},
       {.name = "max_prefill_ms",
        .field = field(c.max_prefill_ms),
        .help = "milliseconds of prefill in a step while other sequences decode, whose next tokens "
                "wait for it: longer prompts are split over steps, by the measured speed of recent "
                "ones; 0 = no limit, which gives prompts the most throughput",
        .range = {0, 60000},
        .default_text = "50 on CPUs, 0 on GPUs"},
       {.name = "enable_overlap",
        .field = field(c.enable_overlap),
        .help = "the host's work for the next step overlaps with the device's work on this one",
        .flag = "--no-overlap"},
       {.name = "enable_jump_ahead",
        .field = field(c.enable_jump_ahead),
        .help = "tokens that a grammar leaves no choice of are computed in one step instead of one "
                "step each; the output is the same",
        .flag = nullptr}});
}

void add_kv_cache(Options& options, ExecutorConfig& c) {
  KvCacheConfig& kv = c.kv_cache;
  add_group(
      options, "KV cache",
      {{.name = "kv_cache.max_tokens",
        .field = field(kv.max_tokens),
        .help = "KV cache capacity in tokens; 0 = what fits into `memory_bytes`",
        .range = {1, kMaxTokens},
        .flag = "--kv-cache-tokens",
        .parameter = "max_tokens_in_paged_kv_cache",
        .zero_is_default = true},
       {.name = "kv_cache.memory_fraction",
        .field = field(kv.memory_fraction),
        .help = "KV cache as a share of what is free after weights and buffers, above 0, at most "
                "1; the smaller one of this and `kv_cache.max_tokens` holds",
        .range = {0, 1, true},
        .flag = "--kv-cache-fraction",
        .parameter = "kv_cache_free_gpu_mem_fraction",
        .default_text = "by `memory_bytes`",
        .zero_is_default = true},
       {.name = "kv_cache.cross_fraction",
        .field = field(kv.cross_fraction),
        .help = "share of the KV cache's memory for an encoder's results, above 0 and below 1",
        .range = {0, 1, true, true},
        .flag = "--cross-kv-cache-fraction",
        .parameter = "cross_kv_cache_fraction",
        .default_text = "what a full batch of the longest inputs needs, at most 0.5; of pictures "
                        "what 16 of the largest need, at most 0.05",
        .zero_is_default = true},
       {.name = "kv_cache.type",
        .field = field(kv.type),
        .help = "KV cache elements: auto (what the checkpoint asks for, else bf16) | int8 | fp8 | "
                "bf16",
        .words = "auto|int8|fp8|bf16",
        .flag = "--kv-cache-type",
        .parameter = "kv_cache_type"},
       {.name = "kv_cache.tokens_per_block",
        .field = field(kv.tokens_per_block),
        .help = "tokens of a KV cache block",
        .words = "16|32|64|128",
        .flag = "--tokens-per-block",
        .parameter = "tokens_per_block"},
       {.name = "kv_cache.enable_block_reuse",
        .field = field(kv.enable_block_reuse),
        .help = "prefix cache: prompts that begin alike share KV cache blocks",
        .flag = "--no-kv-cache-reuse",
        .parameter = "enable_kv_cache_reuse"},
       {.name = "kv_cache.enable_partial_reuse",
        .field = field(kv.enable_partial_reuse),
        .help = "leading tokens of a block are copied from a cached block",
        .flag = nullptr,
        .parameter = "enable_partial_reuse"}});
}

void add_kv_cache_reach(Options& options, KvCacheConfig& kv) {
  add_group(
      options, "KV cache",
      {{.name = "kv_cache.host_cache_bytes",
        .field = field(kv.host_cache_bytes),
        .help = "bytes of host memory behind the KV cache; 0 = none",
        .range = {0, kMaxBytes},
        .flag = "--host-cache",
        .parameter = "kv_cache_host_memory_bytes",
        .is_bytes = true},
       {.name = "kv_cache.offload_min_priority",
        .field = field(kv.offload_min_priority),
        .help = "evicted blocks of a lower priority are dropped instead of moved to host memory",
        .range = {0, 100},
        .flag = nullptr,
        .parameter = "secondary_offload_min_priority"},
       {.name = "kv_cache.max_attention_window",
        .field = field(kv.max_attention_window),
        .help = "positions that a token sees, itself included, the same for all layers; 0 = the "
                "model's own",
        .range = {0, kMaxTokens},
        .flag = "--attention-window",
        .parameter = "max_attention_window_size",
        .zero_is_default = true,
        .has_own_reader = true},
       {.name = "kv_cache.sink_token_length",
        .field = field(kv.sink_token_length),
        .help = "leading positions that stay visible beyond `kv_cache.max_attention_window`",
        .range = {0, kMaxTokens},
        .flag = "--sink-tokens",
        .parameter = "sink_token_length"},
       {.name = "kv_cache.event_buffer_size",
        .field = field(kv.event_buffer_size),
        .help = "events of the prefix cache that are kept for routers, the newest ones; 0 = none",
        .range = {0, 1 << 24},
        .flag = nullptr,
        .parameter = "event_buffer_max_size"}});
}

}  // namespace

Options engine_options(ExecutorConfig& c) {
  Options options;
  add_machine(options, c);
  add_ranks(options, c);
  add_instances(options, c);
  add_model(options, c);
  add_limits(options, c);
  add_scheduling(options, c);
  add_kv_cache(options, c);
  add_kv_cache_reach(options, c.kv_cache);
  add_speculation(options, c);
  add_adapters(options, c);
  add_statistics(options, c);
  for (Option& option : options)
    option.parameter = !option.parameter ? "" : *option.parameter ? option.parameter : option.name;
  return options;
}

ExecutorConfig served_defaults() {
  ExecutorConfig c;
  c.device = "auto";
  c.max_batch_size = c.max_num_tokens = c.max_beam_width = 0;
  return c;
}

}  // namespace nereid::config
