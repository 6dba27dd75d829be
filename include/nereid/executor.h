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

// Called on the executor's outbox thread, in order for one request; must not block.
using ResponseCallback = std::function<void(Response)>;

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
