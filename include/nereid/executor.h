// The public C++ API: an Executor owns one model on one device and turns each Request into a
// stream of Responses.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "nereid/config.h"
#include "nereid/request.h"
#include "nereid/response.h"
#include "nereid/stats.h"

namespace nereid {

// Called on the executor's outbox thread, in order for one request; must not block. It may call the
// executor, but not destroy it, shut it down or await responses. When it throws, the request ends
// with one final error response (ResourceExhausted for std::bad_alloc, else Internal); an exception
// at that one is logged.
using ResponseCallback = std::function<void(Response)>;

// How long a call may wait; unset: without limit.
using Timeout = std::optional<std::chrono::milliseconds>;

// The encoder of an encoder-decoder model.
struct EncoderFacts {
  int32_t max_length = 0;         // positions of an input; 0: the model has no encoder
  int32_t feature_width = 0;      // numbers of an audio frame; 0: inputs are token ids
  TokenId decoder_start_id = -1;  // first token of the decoder's prompt; -1: the model names none
  TokenId forced_bos_id = -1;     // the second one (forced_bos_token_id); -1: none
  int32_t output_width = 0;       // numbers of a position's output; 0: outputs are not returned

  // The usual prompt of the decoder; empty: the model names none.
  std::vector<TokenId> decoder_prompt() const {
    if (decoder_start_id < 0) return {};
    if (forced_bos_id < 0) return {decoder_start_id};
    return {decoder_start_id, forced_bos_id};
  }
};

// Pictures that a model takes.
struct PictureFacts {
  int32_t patch_width = 0;      // numbers of a patch; 0: the model takes no pictures
  int32_t merge = 1;            // merge x merge patches of a frame make one token
  int32_t max_patches = 0;      // of a picture, all frames
  int32_t grid = 0;             // height and width of every picture in patches; 0: any
  int32_t max_frames = 1;       // of a picture, or tiles
  bool row_breaks = false;      // a text token stands behind each row of tokens
  bool tiles_in_plane = false;  // see Picture::tile_rows
  int32_t blended_tiles = 0;    // tiles whose tokens a plane of more tiles has, blended; 0: all
  int32_t max_across = 0;       // pictures of a prompt that the decoder reads by cross attention
};

// All calls may come from any thread. Statuses have the codes of absl::StatusCode; their messages
// name the field at fault, its value and what is allowed.
class Executor {
 public:
  // Loads MODEL_DIR: a Hugging Face checkpoint folder (an engine is built on first use and cached)
  // or an engine folder.
  // InvalidArgument: an option of `config`; NotFound, DataLoss: a file of the model (named);
  // Unimplemented: a model or a device that this build does not run; ResourceExhausted: memory.
  static absl::StatusOr<std::unique_ptr<Executor>> create(const std::filesystem::path& model_dir,
                                                          const ExecutorConfig& config);
  virtual ~Executor() = default;  // cancels running requests, then joins

  // Validates and queues. After OK, `callback` gets one or more Responses, exactly one of them with
  // is_final. Each of num_return_sequences (best_of) takes one entry of the queue and one id: the
  // next request's id is higher by their number (with several instances: of the same one).
  // InvalidArgument: a field of the request; ResourceExhausted: the queue is full; Unavailable:
  // shutting down, a device that has failed, or logits beyond max_logits_bytes beside others.
  virtual absl::StatusOr<RequestId> enqueue(Request request, ResponseCallback callback) = 0;

  // enqueue() without a callback: responses are kept until await_responses() takes them or the
  // executor is destroyed.
  virtual absl::StatusOr<RequestId> enqueue(Request request) = 0;

  // Enqueues several requests without callbacks, in order: either all are accepted (their ids, in
  // order) or none (errors as above, those of a field with "requests[i]: " before the message).
  virtual absl::StatusOr<std::vector<RequestId>> enqueue_requests(
      std::vector<Request> requests) = 0;

  // Enqueues several requests as above, with one callback for the responses of all.
  virtual absl::StatusOr<std::vector<RequestId>> enqueue_requests(std::vector<Request> requests,
                                                                  ResponseCallback callback) = 0;

  // Every ready response of all requests enqueued without a callback, in order for one
  // request. Waits for the first one; empty: `timeout` has passed, or the executor is shutting
  // down and none can come.
  virtual std::vector<Response> await_responses(Timeout timeout = {}) = 0;

  // The ready responses of one request; waits for the first one. Empty: `timeout` has passed. An id
  // whose final response was taken, that has a callback or that does not exist gets one final error
  // response (InvalidArgument) at once.
  virtual std::vector<Response> await_responses(RequestId id, Timeout timeout = {}) = 0;

  // await_responses() for each id in turn, all within one `timeout`; entry i belongs to ids[i].
  virtual std::vector<std::vector<Response>> await_responses(const std::vector<RequestId>& ids,
                                                             Timeout timeout = {}) = 0;

  // Number of responses that await_responses() would return without waiting: of one
  // request, or of all.
  virtual int64_t num_responses_ready(std::optional<RequestId> id = {}) const = 0;

  // Ends the request, all its sequences, at the next step with kCancelled; its final response
  // carries no new tokens. Unknown or finished ids are ignored.
  virtual void cancel(RequestId id) = 0;

  // Whether a request for one sequence would be queued: false when the queue is full, the executor
  // is shutting down or health() is not OK.
  virtual bool can_enqueue() const = 0;

  // Not OK once the device has failed for good: Unavailable, with the device and its first error.
  // All requests then end with this status, and new ones are refused with it. OK while one of
  // several instances is healthy.
  virtual absl::Status health() const = 0;

  // Whether the failed device may still execute: its memory stays allocated for ever.
  virtual bool is_hung() const { return false; }

  // Refuses new requests and waits until accepted ones have finished; after `timeout` cancels the
  // rest. Responses and statistics can still be taken.
  virtual void drain(std::chrono::milliseconds timeout) = 0;

  // drain() without a timeout. May be called again.
  virtual void shutdown() = 0;

  // A consistent snapshot of counts since creation and of the last step.
  virtual ExecutorStats stats() const = 0;

  // One entry for each step since the last call, oldest first; at most iter_stats_max_iterations
  // are kept, the newest ones. Each call empties the ring.
  virtual std::vector<IterationStats> latest_iteration_stats() = 0;

  // One entry for each step, with all requests known at it; as
  // above, with request_stats_max_iterations.
  virtual std::vector<RequestStatsPerIteration> latest_request_stats() = 0;

  // Changes of the prefix cache since the last call, oldest first; at most
  // kv_cache.event_buffer_size are kept, the newest ones: a gap in event_id shows dropped ones.
  virtual std::vector<KvCacheEvent> kv_cache_events() = 0;

  virtual std::vector<MemoryUse> memory() const = 0;
  virtual std::vector<RankStats> ranks() const { return {}; }  // none: the model has one rank
  // Timeline of the batch. Recorded from the first call on, until ten seconds pass without one; at
  // other times steps cost nothing for it. Thread-safe.
  virtual BatchTimeline batch_timeline() { return {}; }
  // The prefix tree of each instance, as the engine outlined it last. The engine makes an outline
  // only after a call, between two steps, and at most four in a second: the caller waits for it up
  // to 10 ms, and gets the former one where a step takes longer. Thread-safe.
  virtual std::vector<PrefixTreeOutline> prefix_trees() { return {}; }
  // The report is made at the first call and kept; it is the first rank's. Thread-safe.
  virtual PlanReport plan_report() const { return {}; }
  // By layer; none without ExecutorConfig::expert_load, or without experts.
  virtual std::vector<ExpertLoad> expert_load() const { return {}; }
  // None: there is one, which is not restarted.
  virtual std::vector<InstanceStats> instances() const { return {}; }
  virtual int32_t vocab_size() const = 0;
  virtual int32_t embedding_width() const = 0;  // numbers in the embedding of a token
  virtual int32_t num_labels() const = 0;   // size of a Pooling::kScore result; 0: no score head
  virtual int32_t hidden_size() const = 0;  // size of an embedding; 0: the model has none
  virtual EncoderFacts encoder() const { return {}; }
  virtual PictureFacts pictures() const { return {}; }
  virtual int32_t max_sequence_length() const = 0;  // prompt + output tokens
  virtual std::vector<TokenId> default_end_ids()
      const = 0;  // from generation_config.json, then config.json
};

}  // namespace nereid
