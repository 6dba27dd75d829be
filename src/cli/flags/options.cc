#include "cli/flags/options.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <span>
#include <vector>

#include <fmt/ranges.h>

#include "base/log.h"
#include "cli/flags/missing_path.h"
#include "convert/inspect.h"
#include "convert/random_model.h"

namespace nereid::cli {
namespace {

constexpr auto kMax = std::numeric_limits<int32_t>::max();

using Words = std::vector<std::string>;
// In the order of the enums.
const Words kPolicies = {"max_utilization", "guaranteed_no_evict", "static_batch"};
const Words kChunking = {"first_come_first_served", "equal_progress"};
const Words kPause = {"recompute", "swap"};
const Words kKvTypes = {"auto", "int8", "fp8", "bf16"};
const Words kSpeculation = {"none",  "ngram", "draft_model", "medusa", "redrafter",
                            "eagle", "mtp",   "lookahead",   "auto"};
const Words kWeightTypes = {"auto", "bf16", "int8", "int4", "w8a8", "fp8"};

// The value of a word; the flags accept only words of the list.
template <class Enum>
Enum value_of(const Words& words, const std::string& word) {
  return static_cast<Enum>(std::find(words.begin(), words.end(), word) - words.begin());
}

std::string one_of(const Words& words) { return fmt::format("{}", fmt::join(words, " | ")); }

void declare_lookahead(CLI::App& command, LookaheadConfig& config) {
  command
      .add_option(
          "--lookahead-window-size", config.window_size,
          "--speculation lookahead: positions for which draft n-grams are computed in parallel")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      .add_option("--lookahead-ngram-size", config.ngram_size,
                  "tokens in an n-gram of lookahead decoding, its first one included")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command
      .add_option("--lookahead-verification-set-size", config.verification_set_size,
                  "n-grams of lookahead decoding tested in a step; these three options together "
                  "allow at most 64 draft tokens a step")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
}

void declare_trees(CLI::App& command, ExecutorConfig& executor) {
  command.add_option("--medusa-choices", executor.medusa_choices,
                     "draft tree of Medusa heads, each node as the ranks on its path, such as {0}, "
                     "{0, 0}, {1}; default: a chain of each head's likeliest token");
  command.add_option(
      "--eagle-choices", executor.eagle_choices,
      "draft tree of an EAGLE head, in the form of --medusa-choices; default: a chain");
  command
      .add_option(
          "--eagle-tree-top-k", executor.eagle_tree_top_k,
          "EAGLE-2: a draft tree in which this many nodes of each depth get as many children each, "
          "and the likeliest nodes are tested; 0 = a chain, or --eagle-choices")
      ->check(CLI::Range(0, kMaxTreeTopK))
      ->capture_default_str();
  command
      .add_option("--eagle-tree-depth", executor.eagle_tree_depth,
                  "depth of the tree of --eagle-tree-top-k; 0 = 5")
      ->check(CLI::Range(0, kMaxDraftLen))
      ->capture_default_str();
}

}  // namespace

void ModelOptions::declare_limits(CLI::App& command) {
  command
      .add_option("--max-batch-size", executor.max_batch_size,
                  "sequences (with beams: beams) computed together in one step; 0 = the engine's "
                  "limit, 32 for a new engine")
      ->check(CLI::Range(0, 65536))
      ->capture_default_str();
  command
      .add_option("--max-num-tokens", executor.max_num_tokens,
                  "tokens computed in one step; longer prompts are split over several steps; 0 = "
                  "the engine's limit, 2048 for a new engine")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command
      .add_option("--max-seq-len,--max-model-len", executor.max_sequence_length,
                  "most prompt and output tokens of a sequence; 0 = the model's maximum, which is "
                  "also the largest value")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  command
      .add_option("--max-beam-width", executor.max_beam_width,
                  "widest beam search of a request; 0 = the engine's limit, 1 for a new engine")
      ->check(CLI::Range(0, 16))
      ->capture_default_str();
  command
      .add_option("--max-queue-size", executor.max_queue_size,
                  "requests that may wait in the queue; more are refused with 503")
      ->check(CLI::Range(1, kMax))
      ->capture_default_str();
  command
      .add_option(
          "--max-logits-bytes", executor.max_logits_bytes,
          "bytes of logits that all running requests together may return, such as 2G or 512M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
}

void ModelOptions::declare_policies(CLI::App& command) {
  command
      .add_option(
          "--scheduler-policy", scheduler_policy,
          "which waiting sequences start, by free KV cache (max_utilization: as many as fit now, "
          "the newest are preempted when memory runs out; guaranteed_no_evict: those whose longest "
          "output fits; static_batch: the same, and none joins a running batch): " +
              one_of(kPolicies))
      ->check(CLI::IsMember(kPolicies))
      ->capture_default_str();
  command
      .add_option("--chunking-policy", chunking_policy,
                  "how prompts that do not fit whole share a step: " + one_of(kChunking))
      ->check(CLI::IsMember(kChunking))
      ->capture_default_str();
  command
      .add_option("--pause-policy", pause_policy,
                  "KV cache of a preempted sequence (recompute: freed, and computed again later; "
                  "swap: copied to host memory): " +
                      one_of(kPause) + " (swap needs --host-cache)")
      ->check(CLI::IsMember(kPause))
      ->capture_default_str();
  command.add_flag("--no-chunked-context", no_chunked_context,
                   "refuse prompts longer than --max-num-tokens instead of splitting them");
  command.add_flag("--no-overlap", no_overlap,
                   "prepare a step only after the previous one has finished (for comparison)");
}

void ModelOptions::declare_speculation(CLI::App& command) {
  command
      .add_option(
          "--speculation", executor.speculation,
          "draft tokens tested beside the next token of a sequence: " + one_of(kSpeculation) +
              " (ngram: the tokens that followed the same n-gram earlier in the text; draft_model, "
              "medusa, redrafter, eagle: proposed by --draft-model; mtp: by the checkpoint's layer "
              "for multi-token prediction; lookahead: n-grams that the model computes ahead; auto: "
              "by --draft-model, else mtp, else ngram, as many as pay)")
      ->check(CLI::IsMember(kSpeculation))
      ->default_str("auto with --draft-model, else none");
  command
      .add_option(
          "--draft-model", executor.draft_model,
          "proposes draft tokens: checkpoint folder or engine of a smaller model with the same "
          "vocabulary, or folder of Medusa heads, a ReDrafter head or an EAGLE head for the model")
      ->check([](const std::string& path) { return std::string(message(check_exists("", path))); });
  declare_trees(command, executor);
  declare_lookahead(command, executor.lookahead);
  command
      .add_option("--ngram-pool-size", executor.ngram_pool_size,
                  "--speculation ngram: n-grams kept of all requests' texts (16 bytes each) and "
                  "used where a request's own text has no match; 0 = none")
      ->check(CLI::Range(0, kMaxNgramPool))
      ->capture_default_str();
  command
      .add_option("--typical-acceptance", executor.typical_acceptance,
                  "above 0: a draft token of a sampled request is also accepted if its probability "
                  "is above min(this, sqrt(this) * exp(-entropy)); outputs then no longer have the "
                  "model's distribution")
      ->check(CLI::Range(0.0f, 1.0f))
      ->capture_default_str();
  command
      .add_option("--max-draft-len", executor.max_draft_len,
                  "draft tokens of a sequence in a step; 0 = 4 with --draft-model, else 8")
      ->check(CLI::Range(0, kMaxDraftLen))
      ->capture_default_str();
}

void ModelOptions::declare_kv_cache(CLI::App& command) {
  KvCacheConfig& kv = executor.kv_cache;
  command
      .add_option("--kv-cache-tokens", kv_cache_tokens,
                  "KV cache capacity in tokens; 0 = as many as fit in --memory")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--kv-cache-fraction", kv_cache_fraction,
                  "KV cache as a share of the memory free after weights and buffers, above 0, at "
                  "most 1; default: by --memory")
      ->check(CLI::Range(0.0, 1.0));
  command
      .add_option("--kv-cache-type", kv_cache_type,
                  "type of KV cache elements: " + one_of(kKvTypes) + "; auto = the model's own")
      ->check(CLI::IsMember(kKvTypes))
      ->capture_default_str();
  command.add_option("--tokens-per-block", kv.tokens_per_block, "KV cache block size in tokens")
      ->check(CLI::IsMember({16, 32, 64, 128}))
      ->capture_default_str();
  command.add_flag(
      "--no-kv-cache-reuse", no_kv_cache_reuse,
      "switch the prefix cache off: prompts with a common beginning are computed in full");
  command
      .add_option(
          "--host-cache", kv.host_cache_bytes,
          "bytes of host memory for blocks evicted from the KV cache, such as 4G or 512M; 0 = none")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command
      .add_option("--attention-window", kv.max_attention_window,
                  "positions that a token attends to, itself included; 0 = the model's own")
      ->check(CLI::Range(0, kMax))
      ->capture_default_str();
  command
      .add_option("--sink-tokens", kv.sink_token_length,
                  "leading positions that stay visible outside of --attention-window")
      ->check(CLI::Range(0, kMax))
      ->capture_default_str();
}

void ModelOptions::declare_machine(CLI::App& command) {
  const std::span<const std::string> names = convert::random_model_names();
  command
      .add_option("model", model_dir,
                  fmt::format("checkpoint folder, engine or .gguf file; with --random-weights "
                              "also {}",
                              fmt::join(names, ", ")))
      ->required();  // finish() checks that it exists
  command
      .add_option(
          "--device", executor.device,
          "auto (the device of a ready engine, else the first GPU, else the CPU) | cpu | cuda:N")
      ->check([](const std::string& name) -> std::string {
        const bool is_gpu = name.starts_with("cuda:") && name.size() > 5 &&
                            name.find_first_not_of("0123456789", 5) == name.npos;
        if (name == "auto" || name == "cpu" || is_gpu) return "";
        return fmt::format("'{}' is none of auto, cpu, cuda:N (cuda:0 is the first GPU)", name);
      })
      ->capture_default_str();
  command
      .add_option("--threads", executor.num_threads,
                  "CPU compute threads; 0 = one per physical core that this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command
      .add_option("--memory", executor.memory_bytes,
                  "bytes for weights, buffers and KV cache together, such as 2G or 512M; 0 = a "
                  "share of the free memory")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
}

void ModelOptions::declare(CLI::App& command) {
  executor.max_batch_size = executor.max_num_tokens = executor.max_beam_width = 0;
  executor.device = "auto";
  declare_machine(command);
  command
      .add_option(
          "--weights", executor.weights,
          "type that a new engine's weight matrices are rounded to: " + one_of(kWeightTypes) +
              " (int4: groups of 128, not calibrated; `nereid quantize` makes better ones; w8a8: "
              "int8 weights and int8 activations; fp8: on GPUs with fp8 activations); auto = the "
              "checkpoint's types")
      ->check(CLI::IsMember(kWeightTypes))
      ->capture_default_str();
  command
      .add_option("--head-weights", executor.head_weights,
                  "type that a new engine's head is rounded to, and the embedding if both are one "
                  "tensor: " +
                      one_of(kWeightTypes) +
                      "; auto = int8 with --weights int8, int4 and w8a8, bf16 with bf16 and fp8, "
                      "else the checkpoint's type")
      ->check(CLI::IsMember(kWeightTypes))
      ->capture_default_str();
  declare_limits(command);
  declare_policies(command);
  declare_speculation(command);
  declare_kv_cache(command);
  command.add_option("--isa", executor.isa,
                     "instruction set of CPU kernels: generic | avx2 | avx512 | avx512_bf16 | amx; "
                     "default: the best of this CPU");
  command.add_flag(
      "--exit-on-device-failure", executor.exit_on_device_failure,
      "end the process with exit code 1 when the device has failed for good, so that a supervisor "
      "restarts it; default: requests get 503 and the model is not ready");
  command
      .add_option("--device-timeout-secs", executor.device_timeout_secs,
                  "seconds without progress after which the device counts as failed; default 60, 0 "
                  "= no limit")
      ->check(CLI::Range(0, 86400));
  command.add_flag("--deterministic", executor.deterministic,
                   "the same request gives the same bits alone and in any batch, in chunks or not; "
                   "on GPUs this takes slower kernels, on CPUs it always holds");
  command.add_option("--kernel", executor.forced_kernels,
                     "force a kernel, op:name (`nereid inspect` lists them); may be repeated");
  command.add_flag("--random-weights", executor.random_weights,
                   "for benchmarks: random weights for a config.json without weight files, or for "
                   "a published model's name");
  command.add_option("--cache-dir", executor.cache_dir,
                     "folder of built engines; default: $NEREID_CACHE_DIR, else nereid in "
                     "$XDG_CACHE_HOME or ~/.cache");
  command
      .add_option("--log-level", log_level,
                  "least severe messages that are logged: debug | info | warn | error | off")
      ->capture_default_str();
}

Status ModelOptions::finish() {
  RETURN_IF_ERROR(set_log_level(log_level));
  if (std::error_code error; !exists(model_dir, error)) {  // then it is a name
    if (!executor.random_weights) return check_exists("model", model_dir.string());
    ASSIGN_OR_RETURN(model_dir, convert::random_model_dir(model_dir.string(), executor.cache_dir));
  }
  const std::string name = model_dir.extension().string();
  if (std::error_code error; std::filesystem::is_regular_file(model_dir, error) &&
                             (name == ".safetensors" || name == ".bin" || name == ".json" ||
                              name == ".pth" || name == ".pt"))
    return invalid_argument("model: {} is one file of a model; give the folder that it is in",
                            model_dir.string());
  RETURN_IF_ERROR(convert::check_is_model(model_dir));
  KvCacheConfig& kv = executor.kv_cache;
  SchedulerConfig& scheduler = executor.scheduler;
  if (kv_cache_tokens > 0) kv.max_tokens = kv_cache_tokens;
  if (kv_cache_fraction > 0) kv.memory_fraction = kv_cache_fraction;
  kv.type = value_of<KvCacheType>(kKvTypes, kv_cache_type);
  kv.enable_block_reuse = !no_kv_cache_reuse;
  scheduler.capacity_policy = value_of<CapacityPolicy>(kPolicies, scheduler_policy);
  scheduler.chunking_policy = value_of<ChunkingPolicy>(kChunking, chunking_policy);
  scheduler.pause_policy = value_of<PausePolicy>(kPause, pause_policy);
  scheduler.enable_chunked_context = !no_chunked_context;
  executor.enable_overlap = !no_overlap;
  return ok();
}

int fail(const Status& status) {
  std::fprintf(stderr, "nereid: %s\n", std::string(message(status)).c_str());
  return 1;
}

}  // namespace nereid::cli
