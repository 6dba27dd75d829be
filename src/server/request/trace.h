// The trace of one request: activities with their times, reported to its creator's callbacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "triton/core/tritonserver.h"

namespace nereid::server {

struct InputTensor;
struct OutputTensor;

// The object behind TRITONSERVER_InferenceTrace. A child has its parent's callbacks, and a parent
// is released only after its children, so a caller may free shared data with the root.
class InferenceTrace {
 public:
  struct Callbacks {
    TRITONSERVER_InferenceTraceActivityFn_t activity = nullptr;
    TRITONSERVER_InferenceTraceTensorActivityFn_t tensor = nullptr;  // may be null
    TRITONSERVER_InferenceTraceReleaseFn_t release = nullptr;
    void* userp = nullptr;
  };

  InferenceTrace(uint32_t level, uint64_t parent_id, const Callbacks& callbacks)
      : level_(level), parent_id_(parent_id), callbacks_(callbacks) {}
  ~InferenceTrace() { leave_parent(); }
  InferenceTrace(const InferenceTrace&) = delete;
  InferenceTrace& operator=(const InferenceTrace&) = delete;

  // Owned by the caller until a request takes it.
  InferenceTrace* spawn_child();
  // Ends the core's use: calls the release callback, now or when the last child is gone.
  void release();

  // `ns`: steady clock. Has no effect without the level TIMESTAMPS.
  void report(TRITONSERVER_InferenceTraceActivity activity, uint64_t ns);
  // Reports a CUSTOM_ACTIVITY; its name goes into the context by its time, where the
  // callback reads it.
  void report_custom(uint64_t ns, const std::string& name);
  // Has no effect without the level TENSORS.
  void report_input(TRITONSERVER_InferenceTraceActivity activity, const InputTensor& tensor);
  void report_output(TRITONSERVER_InferenceTraceActivity activity, const OutputTensor& tensor);

  uint64_t id() const { return id_; }
  uint64_t parent_id() const { return parent_id_; }

  // Valid until the next call or set_context().
  const char* context();
  void set_context(const char* text);

  // The request's model and id; set before its first activity.
  std::string model_name, request_id;
  int64_t model_version = -1;

 private:
  void leave_parent();
  void unref();
  bool has(TRITONSERVER_InferenceTraceLevel bit) const { return (level_ & bit) != 0; }

  static std::atomic<uint64_t> next_id_;
  const uint32_t level_;
  const uint64_t id_ = next_id_.fetch_add(1);
  const uint64_t parent_id_;
  const Callbacks callbacks_;
  InferenceTrace* parent_ = nullptr;  // set while it waits for this one
  std::atomic<int> refs_{1};          // this trace until released, and its children
  std::mutex context_mutex_;
  std::string context_, shown_context_;
};

// A request's reference to its trace, shared with everything that may still answer it; the
// last one releases.
class TraceHold {
 public:
  explicit TraceHold(InferenceTrace* trace) : trace_(trace) {}
  ~TraceHold() {
    if (trace_ != nullptr) trace_->release();
  }
  TraceHold(const TraceHold&) = delete;
  TraceHold& operator=(const TraceHold&) = delete;
  InferenceTrace* get() const { return trace_; }
  // Before it is shared: leaves the trace to its owner.
  void disown() { trace_ = nullptr; }

 private:
  InferenceTrace* trace_;
};

inline InferenceTrace* of(TRITONSERVER_InferenceTrace* t) {
  return reinterpret_cast<InferenceTrace*>(t);
}

}  // namespace nereid::server
