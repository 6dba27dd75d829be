#include "server/request/trace.h"

#include <utility>

#include "base/json.h"
#include "server/request/request.h"
#include "server/request/response.h"

namespace nereid::server {
namespace {

constexpr size_t kMaxContextBytes = 64 << 10;  // names of further custom activities are dropped

TRITONSERVER_InferenceTrace* handle(InferenceTrace* trace) {
  return reinterpret_cast<TRITONSERVER_InferenceTrace*>(trace);
}

}  // namespace

std::atomic<uint64_t> InferenceTrace::next_id_{1};  // 0 means "no parent"

InferenceTrace* InferenceTrace::spawn_child() {
  auto* child = new InferenceTrace(level_, id_, callbacks_);
  child->parent_ = this;
  refs_.fetch_add(1);
  return child;
}

void InferenceTrace::release() { unref(); }

void InferenceTrace::unref() {
  if (refs_.fetch_sub(1) != 1) return;
  // Kept: the callback deletes this object, and the parent must be released after it.
  InferenceTrace* parent = std::exchange(parent_, nullptr);
  callbacks_.release(handle(this), callbacks_.userp);
  if (parent != nullptr) parent->unref();
}

void InferenceTrace::leave_parent() {
  if (auto* parent = std::exchange(parent_, nullptr)) parent->unref();
}

void InferenceTrace::report(TRITONSERVER_InferenceTraceActivity activity, uint64_t ns) {
  if (!has(TRITONSERVER_TRACE_LEVEL_TIMESTAMPS) || callbacks_.activity == nullptr) return;
  callbacks_.activity(handle(this), activity, ns, callbacks_.userp);
}

void InferenceTrace::report_custom(uint64_t ns, const std::string& name) {
  {
    std::lock_guard lock(context_mutex_);
    json::object context;
    if (auto parsed = parse_json(context_); parsed.ok() && parsed->is_object()) {
      context = std::move(parsed->get_object());
    }
    if (context_.size() + name.size() < kMaxContextBytes) {
      context[std::to_string(ns)] = name;
      context_ = json::serialize(context);
    }
  }
  report(TRITONSERVER_TRACE_CUSTOM_ACTIVITY, ns);
}

void InferenceTrace::report_input(TRITONSERVER_InferenceTraceActivity activity,
                                  const InputTensor& tensor) {
  if (!has(TRITONSERVER_TRACE_LEVEL_TENSORS) || callbacks_.tensor == nullptr) return;
  std::string joined;
  const void* base = tensor.buffers.empty() ? nullptr : tensor.buffers[0].base;
  const TRITONSERVER_MemoryType type =
      tensor.buffers.empty() ? TRITONSERVER_MEMORY_CPU : tensor.buffers[0].memory_type;
  const int64_t id = tensor.buffers.empty() ? 0 : tensor.buffers[0].memory_type_id;
  if (tensor.buffers.size() > 1) {
    for (const InputBuffer& b : tensor.buffers) {
      if (b.memory_type == TRITONSERVER_MEMORY_GPU) return;  // parts cannot be joined here
      joined.append(static_cast<const char*>(b.base), b.byte_size);
    }
    base = joined.data();
  }
  callbacks_.tensor(handle(this), activity, tensor.name.c_str(), tensor.datatype, base,
                    tensor.byte_size(), tensor.shape.data(), tensor.shape.size(), type, id,
                    callbacks_.userp);
}

void InferenceTrace::report_output(TRITONSERVER_InferenceTraceActivity activity,
                                   const OutputTensor& tensor) {
  if (!has(TRITONSERVER_TRACE_LEVEL_TENSORS) || callbacks_.tensor == nullptr) return;
  callbacks_.tensor(handle(this), activity, tensor.name.c_str(), tensor.datatype, tensor.buffer,
                    tensor.byte_size, tensor.shape.data(), tensor.shape.size(), tensor.memory_type,
                    tensor.memory_type_id, callbacks_.userp);
}

const char* InferenceTrace::context() {
  std::lock_guard lock(context_mutex_);
  shown_context_ = context_;
  return shown_context_.c_str();
}

void InferenceTrace::set_context(const char* text) {
  std::lock_guard lock(context_mutex_);
  context_ = text == nullptr ? "" : text;
}

}  // namespace nereid::server
