// One inference through the Triton C API: owns the request object and its inputs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "front/bridge/request_trace.h"
#include "front/bridge/tensor.h"

namespace nereid::front {

// Memory outside of the call that holds, or receives, a tensor's data.
struct ExternalMemory {
  char* base = nullptr;
  size_t size = 0;
  std::shared_ptr<void> keep;
  std::shared_ptr<const std::atomic<bool>> is_lost;  // true: truncated; null: cannot be
  std::shared_ptr<void> in_use;  // held until the last reply, while `keep` may live longer
};

// Most tensors of a request, checked before any look-up by name: inputs, and requested outputs.
inline constexpr size_t kMaxTensors = 4096;
inline constexpr size_t kMaxParameters = 1024;

// InvalidArgument, naming `what` and both numbers, when `count` > `limit`.
Status check_count(std::string_view what, size_t count, size_t limit);

struct InferenceSpec {
  std::string model;
  int64_t version = -1;  // -1: newest ready
  std::string id;
  std::vector<Tensor> inputs;
  std::vector<Parameter> parameters;
  std::vector<std::string> requested_outputs;  // empty: all
  uint32_t flags = 0;                          // TRITONSERVER_RequestFlag
  std::variant<uint64_t, std::string> correlation_id = uint64_t{0};
  uint64_t priority = 0;
  uint64_t timeout_us = 0;
  uint64_t tenant = 0;                                 // NEREID_ServerSetTenant
  bool is_raw = false;                                 // one input, of which only the data is known
  std::map<std::string, ExternalMemory> input_memory;  // by input: instead of its bytes
  std::map<std::string, ExternalMemory> output_memory;  // by output: where the data goes
  std::set<std::string> labelled_outputs;               // outputs to classify
  RequestTracePtr trace;                                // null: not traced

  size_t num_bytes() const;  // of the inputs that are in it
};

class InferenceCall : public std::enable_shared_from_this<InferenceCall> {
 public:
  // Called on a thread of the server for every response, in order; exactly the last call has final
  // = true. After an accepted start it always comes.
  using OnReply = std::function<void(InferenceReply)>;

  // Sends the request. On an error nothing was accepted and `on_reply` is never called.
  static StatusOr<std::shared_ptr<InferenceCall>> start(TRITONSERVER_Server* server,
                                                        InferenceSpec spec, OnReply on_reply);
  ~InferenceCall();
  InferenceCall(const InferenceCall&) = delete;
  InferenceCall& operator=(const InferenceCall&) = delete;

  // Asks the server to cancel; the final reply still comes. Any thread, any time, repeatable.
  void cancel();

 private:
  InferenceCall() = default;
  Status build(TRITONSERVER_Server* server);
  Status set_attributes();
  void finish_part(bool released);

  static void on_release(TRITONSERVER_InferenceRequest* request, uint32_t flags, void* self);
  static void on_response(TRITONSERVER_InferenceResponse* response, uint32_t flags, void* self);

  InferenceSpec spec_;
  OnReply on_reply_;
  std::mutex mutex_;
  TRITONSERVER_InferenceRequest* request_ = nullptr;  // null once released and final
  std::shared_ptr<InferenceCall> self_;               // set while the server may call back
  bool released_ = false;
  bool final_seen_ = false;
};

// The error for a unary request to a decoupled model that sent `count` > 1 responses.
Status several_answers(size_t count);

}  // namespace nereid::front
