// An inference request: the client's fields, and the context shared by its responses.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "server/api/values.h"
#include "server/config/model_config.h"
#include "server/metrics/statistics.h"
#include "server/request/trace.h"
#include "triton/core/tritonbackend.h"

namespace nereid::server {

class Model;
class InferenceResponse;
class ImplicitStates;
struct SequenceTurn;

// The caller's functions for output buffers.
struct ResponseAllocator {
  TRITONSERVER_ResponseAllocatorAllocFn_t alloc = nullptr;
  TRITONSERVER_ResponseAllocatorReleaseFn_t release = nullptr;
  TRITONSERVER_ResponseAllocatorStartFn_t start = nullptr;
  TRITONSERVER_ResponseAllocatorQueryFn_t query = nullptr;
  TRITONSERVER_ResponseAllocatorBufferAttributesFn_t attributes = nullptr;
};

using CorrelationId = std::variant<uint64_t, std::string>;

// Whether a request was cancelled. It outlives the request's release, since cancelling
// must work until FINAL.
class CancelState {
 public:
  bool is_cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  void cancel();
  // Runs `action` once on cancel(); at once if already cancelled.
  void on_cancel(std::function<void()> action);

 private:
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> on_cancel_;
};

// The destination of a request's responses; shared by the request, its response factories
// and unsent responses. It passes exactly one FINAL, and sends one itself when every
// possible sender is gone.
class ResponseContext {
 public:
  ~ResponseContext();

  // Sends the response (may be null: flags only). Internal when FINAL was sent before; the
  // response is then dropped.
  Status send(std::unique_ptr<InferenceResponse> response, uint32_t flags);

  // Sends an error response with FINAL, unless FINAL was sent before.
  void fail(const Status& status);

  // Called when the request was released to its caller. The model counts it as running until that
  // and FINAL have happened.
  void released() { part_ended(); }

  explicit ResponseContext(std::shared_ptr<CancelState> cancel) : cancel_(std::move(cancel)) {}
  CancelState& cancel_state() const { return *cancel_; }
  bool is_cancelled() const { return cancel_->is_cancelled(); }
  bool is_final() const { return final_sent_.load(); }

  // Index of the response whose statistics the backend reports next: reports come in order.
  uint64_t next_reported_response() { return num_reported_.fetch_add(1); }

  // Whether the last error response was a cancellation, a label of the failure counter.
  bool was_cancelled_by_error() const { return cancel_error_.load(std::memory_order_relaxed); }

  std::shared_ptr<Model> model;
  std::string id;
  ResponseAllocator* allocator = nullptr;
  void* allocator_userp = nullptr;
  std::shared_ptr<TraceHold> trace;  // null: not traced
  std::function<void(std::unique_ptr<InferenceResponse>, uint32_t flags)> deliver;
  uint64_t start_ns = 0;          // time of acceptance
  bool armed = false;             // accepted by the core: a FINAL must follow
  bool counts_as_running = true;  // a stopping model waits for it

 private:
  void deliver_final(std::unique_ptr<InferenceResponse> response, uint32_t flags);
  void part_ended();

  std::atomic<bool> final_sent_{false}, cancel_error_{false}, responded_{false};
  std::atomic<uint64_t> num_reported_{0};
  std::atomic<int> num_parts_left_{2};  // FINAL delivered; request released
  const std::shared_ptr<CancelState> cancel_;
};

struct InputBuffer {
  const void* base = nullptr;
  size_t byte_size = 0;
  TRITONSERVER_MemoryType memory_type = TRITONSERVER_MEMORY_CPU;
  int64_t memory_type_id = 0;
  std::shared_ptr<const CudaIpcHandle> ipc_handle;  // null: none
};
using InputBuffers = absl::InlinedVector<InputBuffer, 1>;

struct InputTensor {
  std::string name;
  const TensorSpec* spec = nullptr;  // in the model; null: not looked up yet
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  Shape shape;          // as set by the client
  Shape backend_shape;  // after the model's reshape; set by validate()
  InputBuffers buffers;
  // Copies of the data for instances with a host policy, in near memory.
  std::vector<std::pair<std::string, InputBuffers>> policy_buffers;
  TRITONSERVER_BufferAttributes attributes;  // scratch for InputBufferAttributes

  size_t byte_size() const;
  // The data for a host policy; `buffers` without any.
  const InputBuffers& buffers_for(std::string_view host_policy) const;
};

class InferenceRequest {
 public:
  explicit InferenceRequest(std::shared_ptr<Model> model);

  // "[request id: <id>] "
  std::string log_id() const;
  InputTensor* input(std::string_view name);  // searches the client's, then the core's; null = none
  // Inputs for the backend: the client's, then the core's.
  size_t num_inputs() const { return inputs.size() + core_inputs.size(); }
  InputTensor& input_at(size_t i) {
    return i < inputs.size() ? inputs[i] : core_inputs[i - inputs.size()];
  }

  // 0, and values above the model's levels, become its default level. An ensemble takes any.
  void set_priority(uint64_t wanted);

  // Checks inputs and requested outputs against the model (messages of the server protocol) and
  // sets the batch size.
  Status validate();

  // Makes a new response context from the callbacks; called by the model on acceptance.
  std::shared_ptr<ResponseContext> arm();

  // Reports to the trace, if any. `ns` 0: now.
  void report(TRITONSERVER_InferenceTraceActivity activity, uint64_t ns = 0) const;
  // Reports QUEUE_START and the inputs.
  void report_queued() const;
  // Queues the request again in its sequence batcher instead of releasing it. InvalidArgument when
  // the model has no iterative sequences or FINAL was sent.
  Status reschedule();

  // Calls the release callback, which ends the core's ownership: `this` may then be gone.
  void release(uint32_t flags);

  // True from arm() to release(): no other thread may send it, and a delete by its client takes
  // effect at the release. Any thread.
  bool is_owned() const { return owner_.load(std::memory_order_acquire) != Owner::kClient; }
  // Undoes arm() for a refused request.
  void disown() { owner_.store(Owner::kClient, std::memory_order_release); }
  // Marks an owned request for deletion by release(). False: not owned, the caller deletes it.
  bool delete_later();

  // Valid between arm() and release(), for the request's owner.
  const std::shared_ptr<ResponseContext>& context() const { return context_; }
  std::shared_ptr<CancelState> cancel_state() const;  // any thread
  void cancel() { cancel_state()->cancel(); }         // any thread

  std::shared_ptr<Model> model;
  std::string id;
  uint32_t flags = 0;
  CorrelationId correlation_id = uint64_t{0};
  uint64_t priority = 0;  // see set_priority()
  uint64_t timeout_us = 0;
  uint64_t tenant = 0;  // NEREID_ServerSetTenant
  std::vector<InputTensor> inputs;
  std::vector<std::string> requested_outputs;  // empty = all
  // The names of both lists for request_api.cc's look-ups; may lag behind.
  absl::flat_hash_set<std::string> input_names, output_names;
  // Replaces requested_outputs for a step of an ensemble: checked and sorted when the
  // ensemble was loaded.
  const std::vector<const TensorSpec*>* known_outputs = nullptr;
  std::vector<TRITONSERVER_Parameter> parameters;
  // Type and shape of its only input follow from the model and the data's size.
  bool is_raw = false;
  TRITONSERVER_InferenceRequestReleaseFn_t release_fn = nullptr;
  void* release_userp = nullptr;
  ResponseAllocator* allocator = nullptr;
  void* allocator_userp = nullptr;
  TRITONSERVER_InferenceResponseCompleteFn_t response_fn = nullptr;
  void* response_userp = nullptr;
  // Replaces response_fn in requests of the core itself (ensembles).
  std::function<void(std::unique_ptr<InferenceResponse>, uint32_t flags)> deliver;

  // Times of the ensemble's request that this is a step of; null: no step.
  StageSums* stage_sums = nullptr;

  // The trace for the next use of the request; the core's after acceptance. Null: not traced.
  std::shared_ptr<TraceHold> trace;

  // Requested, or all of the model's; sorted by name.
  std::vector<const TensorSpec*> wanted_outputs;
  int64_t batch_size = 0;  // 0: the model has no batch dimension
  uint64_t start_ns = 0;   // time of acceptance
  // Sequence controls and states, and their memory, during a turn.
  std::vector<InputTensor> core_inputs;
  std::vector<std::shared_ptr<const std::string>> core_memory;
  std::shared_ptr<SequenceTurn> turn;
  bool is_padding = false;  // no client's request: fills a slot of a sequence batch
  std::shared_ptr<ImplicitStates> unowned_states;  // for a request that belongs to no sequence

 private:
  Status deduce_raw_input();
  Status match_inputs();
  Status choose_outputs();

  std::string raw_element_;  // a raw BYTES input with its length in front
  std::shared_ptr<ResponseContext> context_;
  mutable std::mutex cancel_mutex_;
  std::shared_ptr<CancelState> cancel_;  // never null; replaced when the request is used again
  bool used_ = false;
  // KCoreAlone: deleted by its client, freed at the release.
  enum class Owner { kClient, kCore, kCoreAlone };
  std::atomic<Owner> owner_{Owner::kClient};
};

// Conversions of the C API's opaque pointers.
inline InferenceRequest* of(TRITONSERVER_InferenceRequest* r) {
  return reinterpret_cast<InferenceRequest*>(r);
}
inline InferenceRequest* of(TRITONBACKEND_Request* r) {
  return reinterpret_cast<InferenceRequest*>(r);
}
inline InputTensor* of(TRITONBACKEND_Input* i) { return reinterpret_cast<InputTensor*>(i); }
inline ResponseAllocator* of(TRITONSERVER_ResponseAllocator* a) {
  return reinterpret_cast<ResponseAllocator*>(a);
}

}  // namespace nereid::server
