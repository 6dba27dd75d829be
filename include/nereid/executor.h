// The public C++ API: an Executor owns one model on one device and turns Requests into streams of
// Responses.
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
// executor, but not destroy it, shut it down or await responses. A callback that throws has not
// taken its response: the request ends, with one final error response in its place
// (ResourceExhausted for std::bad_alloc, else Internal); what is thrown at that one is logged.
using ResponseCallback = std::function<void(Response)>;

// How long a call may wait; none: until there is something to return.
using Timeout = std::optional<std::chrono::milliseconds>;

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
  virtual ~Executor() = default;  // cancels what still runs, then joins

  // Validates and queues. After OK, `callback` gets one or more Responses, exactly one of them with
  // is_final. Each of num_return_sequences (best_of) takes one place in the queue and one id: the
  // next request's id is that much higher.
  // InvalidArgument: a field of the request; ResourceExhausted: the queue is full; Unavailable:
  // shutting down, a device that has failed, or the logits asked for do not fit beside those of
  // other requests.
  virtual absl::StatusOr<RequestId> enqueue(Request request, ResponseCallback callback) = 0;

  // The same without a callback: the responses are kept until await_responses() takes them or the
  // executor is destroyed.
  virtual absl::StatusOr<RequestId> enqueue(Request request) = 0;

  // Many without callbacks, in this order, under one check: either all are accepted (their ids, in
  // order) or none (errors as above, those of a field with "requests[i]: " before the message).
  virtual absl::StatusOr<std::vector<RequestId>> enqueue_requests(
      std::vector<Request> requests) = 0;

  // Every response that is ready, of all requests enqueued without a callback; those of one request
  // stay in order. Waits for the first one; empty: `timeout` has passed, or the executor is
  // shutting down and nothing can come any more.
  virtual std::vector<Response> await_responses(Timeout timeout = {}) = 0;

  // Those of one request, waiting for the first one; empty: `timeout` has passed. An id whose final
  // response was taken before, that has a callback or was never given out is answered at once with
  // one final error response (InvalidArgument).
  virtual std::vector<Response> await_responses(RequestId id, Timeout timeout = {}) = 0;

  // The above for each id in turn, all within one `timeout`; entry i belongs to ids[i].
  virtual std::vector<std::vector<Response>> await_responses(const std::vector<RequestId>& ids,
                                                             Timeout timeout = {}) = 0;

  // Responses that await_responses() would return without waiting: of one request, or of all.
  virtual int64_t num_responses_ready(std::optional<RequestId> id = {}) const = 0;

  // Ends the request, all its sequences, at the next step with kCancelled; its final response
  // carries no new tokens. Unknown or finished ids are ignored.
  virtual void cancel(RequestId id) = 0;

  // Whether a request for one sequence would find a place: false when the queue is full, the
  // executor is shutting down or health() is not OK.
  virtual bool can_enqueue() const = 0;

  // Not OK once the device has failed for good: Unavailable, with the device and its first error.
  // All requests then end with this status, and new ones are refused with it.
  virtual absl::Status health() const = 0;

  // Refuses new requests, lets accepted ones finish, returns when idle or when `timeout` has passed
  // (then cancels them). Responses and statistics can still be taken.
  virtual void drain(std::chrono::milliseconds timeout) = 0;

  // drain() with all the time that accepted requests need. May be called again.
  virtual void shutdown() = 0;

  // A consistent snapshot of counts since creation and of the last step.
  virtual ExecutorStats stats() const = 0;

  // One entry for each step since the last call, oldest first; at most iter_stats_max_iterations
  // are kept, the newest ones. Each call empties the ring.
  virtual std::vector<IterationStats> latest_iteration_stats() = 0;

  // The same for request_stats_max_iterations: all requests known at each of the steps.
  virtual std::vector<RequestStatsPerIteration> latest_request_stats() = 0;

  // Changes of the prefix cache since the last call, oldest first; at most
  // kv_cache.event_buffer_size are kept, the newest ones: a gap in event_id tells of others.
  virtual std::vector<KvCacheEvent> kv_cache_events() = 0;

  virtual std::vector<MemoryUse> memory() const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual int32_t embedding_width() const = 0;  // numbers that stand for a token
  virtual int32_t num_labels() const = 0;       // of Pooling::kScore; 0: the model scores nothing
  virtual int32_t hidden_size() const = 0;      // of an embedding; 0: the model gives none
  virtual int32_t max_sequence_length() const = 0;  // prompt + output tokens
  virtual std::vector<TokenId> default_end_ids()
      const = 0;  // of generation_config.json, then of config.json
};

}  // namespace nereid
