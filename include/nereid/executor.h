// The public C++ API: an Executor owns one model on one device and turns Requests into streams of
// Responses. Field names and defaults follow the executor API that the Triton TensorRT-LLM backend
// is written against.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nereid {

using TokenId = int32_t;
using RequestId = uint64_t;  // unique and increasing within one Executor; 0 is never used

// How the next token is drawn from the logits. Unset options take the stated default.
struct SamplingConfig {
  std::optional<int32_t> top_k;      // 0 = off; 1 = greedy; valid: >= 0
  std::optional<float> top_p;        // unset = off; valid: (0, 1]. top_k and top_p both off: greedy
  std::optional<float> temperature;  // default 1; 0 = greedy; valid: >= 0, finite
  std::optional<uint64_t> seed;      // default 0
  std::optional<int32_t>
      min_tokens;  // end ids and stop ids are banned before this many; valid: >= 0
};

struct OutputConfig {
  bool exclude_input_from_output = true;
};

struct Request {
  std::vector<TokenId> input_token_ids;  // not empty, each in [0, vocab)
  int32_t max_tokens = 0;                // new tokens, > 0
  bool streaming = false;                // one Response per step that produced tokens
  SamplingConfig sampling;
  OutputConfig output;
  std::vector<TokenId> end_ids;  // any of these ends the sequence; not part of the output
  std::vector<std::vector<TokenId>> stop_words;  // token sequences that end it; stay in the output
  std::vector<std::string> stop_strings;  // text that ends it, matched on the detokenised output
};

enum class FinishReason : uint8_t {
  kNotFinished = 0,
  kEndId = 1,
  kStopWords = 2,
  kLength = 3,
  kTimedOut = 4,
  kCancelled = 5,
};

// Times on the steady clock and block counts of one request; set on the final Response.
struct RequestMetrics {
  std::chrono::steady_clock::time_point arrival, first_scheduled, first_token, last_token;
  int32_t reused_blocks = 0;     // prompt blocks found in the prefix cache
  int32_t allocated_blocks = 0;  // blocks taken from the pool
  int32_t num_preemptions = 0;
};

// Either an error or a result. Every accepted request gets exactly one Response with is_final.
struct Response {
  RequestId request_id = 0;
  absl::Status status;  // not OK: the request failed; nothing else is set
  bool is_final = false;
  std::vector<TokenId> output_token_ids;  // streaming: only the new ones; else all of them
  FinishReason finish_reason = FinishReason::kNotFinished;
  int32_t num_input_tokens = 0;
  int32_t num_output_tokens = 0;  // generated so far (end id not counted)
  RequestMetrics metrics;
};

// Called on the executor's outbox thread, in order for one request; must not block.
using ResponseCallback = std::function<void(Response)>;

struct KvCacheConfig {
  std::optional<int64_t> max_tokens;  // KV capacity in tokens; unset: sized from memory_bytes
  bool enable_block_reuse = true;     // prefix cache
  int32_t tokens_per_block = 32;      // 16 | 32 | 64 | 128
};

struct ExecutorConfig {
  std::string device = "cpu";  // cpu | cuda:N
  int32_t num_threads = 0;     // CPU compute threads; 0 = one per physical core
  int64_t memory_bytes =
      0;  // budget for weights, arena and KV together; 0 = a share of what is free
  KvCacheConfig kv_cache;
  int32_t max_batch_size = 32;    // sequences per step
  int32_t max_num_tokens = 2048;  // tokens per step; longer prompts are chunked
  int32_t max_queue_size = 1024;  // accepted requests that wait; full: kResourceExhausted
  bool enable_overlap = true;     // host work of the next step beside device work of this one
  std::string isa;  // CPU kernels: empty = best | generic | avx2 | avx512 | avx512_bf16 | amx
  std::vector<std::string> forced_kernels;  // "op:name" each; see `nereid inspect`
  bool random_weights = false;  // benchmarks: a config.json without weight files gets random ones
  std::filesystem::path cache_dir;  // where built engines are kept; empty = the user's cache folder
};

// A consistent snapshot; also what the metrics endpoint publishes.
struct ExecutorStats {
  int64_t num_active = 0, num_waiting = 0;
  int64_t kv_blocks_total = 0, kv_blocks_free = 0;  // free includes cached blocks that nobody holds
  int64_t kv_tokens_per_block = 0;
  int64_t kv_blocks_reused = 0;  // prefix hits, total since start
  int64_t num_steps = 0, num_preemptions = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0;  // since start; prompt tokens actually computed
  int64_t num_finished = 0, num_cancelled = 0, num_failed = 0;
  int64_t last_step_context_tokens = 0, last_step_generation_tokens = 0;
  double last_step_seconds = 0;
  int64_t max_batch_size = 0;
};

// One row of the table that says where memory goes.
struct MemoryUse {
  std::string what;
  int64_t bytes = 0;
};

class Executor {
 public:
  // Loads MODEL_DIR: a Hugging Face checkpoint folder (an engine is built on first use and cached)
  // or an engine folder. Errors name the file, tensor or option at fault.
  static absl::StatusOr<std::unique_ptr<Executor>> create(const std::filesystem::path& model_dir,
                                                          const ExecutorConfig& config);
  virtual ~Executor() = default;  // cancels what still runs, then joins

  // Validates and queues. InvalidArgument names the field; ResourceExhausted: queue full;
  // Unavailable: shutting down. After OK, `callback` gets one or more Responses, exactly one of
  // them final.
  virtual absl::StatusOr<RequestId> enqueue(Request request, ResponseCallback callback) = 0;

  // Ends the request at the next step with kCancelled; unknown or finished ids are ignored.
  virtual void cancel(RequestId id) = 0;

  // Refuses new requests, lets accepted ones finish, returns when idle or when `timeout` has passed
  // (then cancels them).
  virtual void drain(std::chrono::milliseconds timeout) = 0;

  virtual ExecutorStats stats() const = 0;
  virtual std::vector<MemoryUse> memory() const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual int32_t max_sequence_length() const = 0;  // prompt + output tokens
  virtual std::vector<TokenId> default_end_ids()
      const = 0;  // from the checkpoint's generation_config
};

}  // namespace nereid
