// An inference request: what a client filled in, and the context that ties its responses together.
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

// The caller's functions that hand out and take back output buffers.
struct ResponseAllocator {
  TRITONSERVER_ResponseAllocatorAllocFn_t alloc = nullptr;
  TRITONSERVER_ResponseAllocatorReleaseFn_t release = nullptr;
  TRITONSERVER_ResponseAllocatorStartFn_t start = nullptr;
  TRITONSERVER_ResponseAllocatorQueryFn_t query = nullptr;
  TRITONSERVER_ResponseAllocatorBufferAttributesFn_t attributes = nullptr;
};

using CorrelationId = std::variant<uint64_t, std::string>;

// Whether the client still wants an answer; outlives the request's release, because cancelling must
// work until FINAL.
class CancelState {
 public:
  bool is_cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  void cancel();
  // Runs `action` once on cancel(), at once if that already happened.
  void on_cancel(std::function<void()> action);

 private:
  std::atomic<bool> cancelled_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> on_cancel_;
};

// Where a request's responses go; shared by the request, its response factories and unsent
// responses. It lets exactly one FINAL through, and sends one itself when everything that could
// have sent it is gone.
class ResponseContext {
 public:
  ~ResponseContext();

  // Takes the response (may be null: flags only). Internal when FINAL was sent before; the response
  // is then dropped.
  Status send(std::unique_ptr<InferenceResponse> response, uint32_t flags);

  // An error response with FINAL, unless FINAL was sent before.
  void fail(const Status& status);

  // The request was released to its caller. The model counts the request as running until that and
  // FINAL have happened.
  void released() { part_ended(); }

  explicit ResponseContext(std::shared_ptr<CancelState> cancel) : cancel_(std::move(cancel)) {}
  CancelState& cancel_state() const { return *cancel_; }
  bool is_cancelled() const { return cancel_->is_cancelled(); }
  bool is_final() const { return final_sent_.load(); }

  // Index of the response that a backend's response statistics are about: it reports them in order.
  uint64_t next_reported_response() { return num_reported_.fetch_add(1); }

  // Status of the last error response; what the failure counter is labelled by.
  bool was_cancelled_by_error() const { return cancel_error_.load(std::memory_order_relaxed); }

  std::shared_ptr<Model> model;
  std::string id;
  ResponseAllocator* allocator = nullptr;
  void* allocator_userp = nullptr;
  std::shared_ptr<TraceHold> trace;  // null: not traced
  std::function<void(std::unique_ptr<InferenceResponse>, uint32_t flags)> deliver;
  uint64_t start_ns = 0;          // the request was accepted
  bool armed = false;             // accepted by the core: from now on a FINAL is owed
  bool counts_as_running = true;  // the model waits for it when it stops

 private:
  void deliver_final(std::unique_ptr<InferenceResponse> response, uint32_t flags);
  void part_ended();

  std::atomic<bool> final_sent_{false}, cancel_error_{false}, responded_{false};
  std::atomic<uint64_t> num_reported_{0};
  std::atomic<int> num_parts_left_{2};  // FINAL delivered, request released
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
  const TensorSpec* spec = nullptr;  // of the model; null: not looked up yet
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  Shape shape;          // as the client gave it
  Shape backend_shape;  // after the model's reshape; set by validate()
  InputBuffers buffers;
  // The same data once more for instances of a host policy, in memory that is near them.
  std::vector<std::pair<std::string, InputBuffers>> policy_buffers;
  TRITONSERVER_BufferAttributes attributes;  // scratch for InputBufferAttributes

  size_t byte_size() const;
  // The input's data for a host policy; `buffers` when there is none for it.
  const InputBuffers& buffers_for(std::string_view host_policy) const;
};

class InferenceRequest {
 public:
  explicit InferenceRequest(std::shared_ptr<Model> model);

  // "[request id: <id>] "
  std::string log_id() const;
  InputTensor* input(std::string_view name);  // the client's, then the core's; null = none
  // What a backend sees: the client's inputs, then the core's.
  size_t num_inputs() const { return inputs.size() + core_inputs.size(); }
  InputTensor& input_at(size_t i) {
    return i < inputs.size() ? inputs[i] : core_inputs[i - inputs.size()];
  }

  // 0, and what is above the model's levels, is its default level. An ensemble takes any.
  void set_priority(uint64_t wanted);

  // Checks inputs and requested outputs against the model (server protocol's messages) and sets the
  // batch size.
  Status validate();

  // A fresh response context from the callbacks; the model calls it when it accepts the request.
  std::shared_ptr<ResponseContext> arm();

  // Tells the trace, if there is one. `ns` 0: now.
  void report(TRITONSERVER_InferenceTraceActivity activity, uint64_t ns = 0) const;
  // QUEUE_START and the inputs.
  void report_queued() const;
  // Gives the request to its sequence batcher again instead of releasing it. InvalidArgument when
  // the model has no iterative sequences or FINAL was sent.
  Status reschedule();

  // Ends the core's ownership: calls the release callback, after which `this` may be gone.
  void release(uint32_t flags);

  // From arm() to release(): no other thread may send it, and it goes with the release when its
  // client deletes it. Any thread.
  bool is_owned() const { return owner_.load(std::memory_order_acquire) != Owner::kClient; }
  void disown() { owner_.store(Owner::kClient, std::memory_order_release); }  // it was not accepted
  // Whether release() will delete it, as it is owned; else that is the caller's.
  bool delete_later();

  // Between arm() and release(), for the request's owner then.
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
  // The names of both lists, where request_api.cc looks them up; may be behind.
  absl::flat_hash_set<std::string> input_names, output_names;
  // For a step of an ensemble, instead of requested_outputs: its outputs, checked and put in order
  // when the ensemble was loaded.
  const std::vector<const TensorSpec*>* known_outputs = nullptr;
  std::vector<TRITONSERVER_Parameter> parameters;
  bool is_raw = false;  // the one input's type and shape follow from the model and its size
  TRITONSERVER_InferenceRequestReleaseFn_t release_fn = nullptr;
  void* release_userp = nullptr;
  ResponseAllocator* allocator = nullptr;
  void* allocator_userp = nullptr;
  TRITONSERVER_InferenceResponseCompleteFn_t response_fn = nullptr;
  void* response_userp = nullptr;
  // Set instead of response_fn by the core itself (ensembles).
  std::function<void(std::unique_ptr<InferenceResponse>, uint32_t flags)> deliver;

  // The times of the ensemble's request that this one is a step of; null: it is no step.
  StageSums* stage_sums = nullptr;

  // The trace that the next use of the request goes with: the core's when that was accepted. Null:
  // not traced.
  std::shared_ptr<TraceHold> trace;

  // Set while the core owns the request.
  std::vector<const TensorSpec*> wanted_outputs;  // requested, or all of the model's; by name
  int64_t batch_size = 0;                         // 0: the model has no batch dimension
  uint64_t start_ns = 0;                          // accepted
  // Sequence controls and state, and what holds their bytes; while a sequence's turn lasts.
  std::vector<InputTensor> core_inputs;
  std::vector<std::shared_ptr<const std::string>> core_memory;
  std::shared_ptr<SequenceTurn> turn;
  bool is_padding = false;                         // no client's: fills a slot of a sequence batch
  std::shared_ptr<ImplicitStates> unowned_states;  // of a request that belongs to no sequence

 private:
  Status deduce_raw_input();
  Status match_inputs();
  Status choose_outputs();

  std::string raw_element_;  // of a raw BYTES input, with its length in front
  std::shared_ptr<ResponseContext> context_;
  mutable std::mutex cancel_mutex_;
  std::shared_ptr<CancelState>
      cancel_;  // never null; a new one each time the request is used again
  bool used_ = false;
  enum class Owner { kClient, kCore, kCoreAlone };  // the last: no client waits for it any more
  std::atomic<Owner> owner_{Owner::kClient};
};

// What the C API's opaque pointers point at.
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
