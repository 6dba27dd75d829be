// Responses, their buffers, and the rule of exactly one FINAL.
#include "server/request/response.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "server/model/model.h"
#include "server/model/run_here.h"

namespace nereid::server {

ResponseContext::~ResponseContext() {
  if (armed && !is_final())
    fail(internal_error("model '{}' ended the request without a final response",
                        model->config().name));
  if (armed && counts_as_running) model->responder_gone();
}

Status ResponseContext::send(std::unique_ptr<InferenceResponse> response, uint32_t flags) {
  const bool is_final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  const bool was_final = is_final ? final_sent_.exchange(true) : final_sent_.load();
  if (was_final) {
    return internal_error("model '{}': response after the final one", model->config().name);
  }
  if (response == nullptr && !is_final) return ok();
  if (response != nullptr && response->error != nullptr) {
    cancel_error_.store(response->error->code == TRITONSERVER_ERROR_CANCELLED,
                        std::memory_order_relaxed);
  }
  if (response != nullptr && model->statistics().has_first_response_times() &&
      !responded_.exchange(true)) {
    model->statistics().first_response(start_ns);
  }
  if (is_final) {
    deliver_final(std::move(response), flags);
  } else {
    deliver(std::move(response), flags);
  }
  return ok();
}

void ResponseContext::deliver_final(std::unique_ptr<InferenceResponse> response, uint32_t flags) {
  const absl::Cleanup ended = [this] { part_ended(); };
  deliver(std::move(response), flags);
}

void ResponseContext::part_ended() {
  if (num_parts_left_.fetch_sub(1) == 1 && armed && counts_as_running) model->request_ended();
}

void ResponseContext::fail(const Status& status) {
  if (final_sent_.exchange(true)) return;
  cancel_error_.store(status.code() == absl::StatusCode::kCancelled, std::memory_order_relaxed);
  // A response without context: no shared_ptr to this object may exist in its destructor.
  auto response = std::make_unique<InferenceResponse>(nullptr);
  response->model_name = model->config().name;
  response->model_version = model->version();
  response->id = id;
  response->error.reset(to_error(status));
  deliver_final(std::move(response), TRITONSERVER_RESPONSE_COMPLETE_FINAL);
}

void CancelState::cancel() {
  std::vector<std::function<void()>> actions;
  {
    std::lock_guard lock(mutex_);
    cancelled_.store(true, std::memory_order_release);
    actions.swap(on_cancel_);
  }
  for (auto& action : actions) action();
}

void CancelState::on_cancel(std::function<void()> action) {
  {
    std::lock_guard lock(mutex_);
    if (!is_cancelled()) {
      on_cancel_.push_back(std::move(action));
      return;
    }
  }
  action();
}

StatusOr<void*> OutputTensor::allocate(size_t size, TRITONSERVER_MemoryType preferred,
                                       int64_t preferred_id) {
  if (allocated) return invalid_argument("output '{}' already has a buffer", name);
  RETURN_IF_ERROR(response->start_allocator());
  auto* allocator = response->allocator_;
  TRITONSERVER_Error* error =
      allocator->alloc(reinterpret_cast<TRITONSERVER_ResponseAllocator*>(allocator), name.c_str(),
                       size, preferred, preferred_id, response->allocator_userp_, &buffer,
                       &buffer_userp, &memory_type, &memory_type_id);
  if (error != nullptr) {
    Status status = to_status(error);
    free_error(error);
    return status;
  }
  allocated = true;
  byte_size = size;
  if (allocator->attributes != nullptr) RETURN_IF_ERROR(ask_attributes());
  return buffer;
}

StatusOr<void*> OutputTensor::allocate_here(size_t size) {
  ASSIGN_OR_RETURN(void* const made, allocate(size, TRITONSERVER_MEMORY_CPU, 0));
  if (memory_type == TRITONSERVER_MEMORY_GPU) {
    return unsupported("output '{}' cannot be copied to device memory", name);
  }
  if (made == nullptr && size > 0) {
    return internal_error("allocator gave no buffer of {} bytes for output '{}'", size, name);
  }
  return made;
}

Status OutputTensor::ask_attributes() {
  auto* allocator = response->allocator_;
  attributes = {memory_type, memory_type_id, byte_size, {}};
  return take(allocator->attributes(reinterpret_cast<TRITONSERVER_ResponseAllocator*>(allocator),
                                    name.c_str(), &attributes, response->allocator_userp_,
                                    buffer_userp));
}

InferenceResponse::InferenceResponse(std::shared_ptr<ResponseContext> context)
    : context_(std::move(context)),
      allocator_(context_ ? context_->allocator : nullptr),
      allocator_userp_(context_ ? context_->allocator_userp : nullptr) {
  if (context_ == nullptr) return;
  model_name = context_->model->config().name;
  model_version = context_->model->version();
  id = context_->id;
  class_names = context_->model->class_names();
}

InferenceResponse::~InferenceResponse() {
  for (auto& output : outputs) {
    if (!output.allocated || allocator_->release == nullptr) continue;
    free_error(allocator_->release(reinterpret_cast<TRITONSERVER_ResponseAllocator*>(allocator_),
                                   output.buffer, output.buffer_userp, output.byte_size,
                                   output.memory_type, output.memory_type_id));
  }
}

Status InferenceResponse::start_allocator() {
  if (allocator_ == nullptr || allocator_->alloc == nullptr) {
    return internal_error("the request has no response allocator");
  }
  if (started_ || allocator_->start == nullptr) return ok();
  started_ = true;
  TRITONSERVER_Error* error = allocator_->start(
      reinterpret_cast<TRITONSERVER_ResponseAllocator*>(allocator_), allocator_userp_);
  Status status = to_status(error);
  free_error(error);
  return status;
}

namespace {

// The shape in the model's dims for an output made in the spec's reshape: variable dims are taken,
// in order, from the backend's shape. Other shapes stay.
Shape as_declared(const TensorSpec& spec, bool batched, const Shape& made) {
  const size_t skip = batched && !spec.is_shape_tensor ? 1 : 0;
  if (made.size() != skip + spec.reshape->size()) return made;
  Shape variable;
  for (size_t i = 0; i < spec.reshape->size(); ++i) {
    const int64_t dim = (*spec.reshape)[i];
    if (dim == -1) {
      variable.push_back(made[skip + i]);
    } else if (dim != made[skip + i]) {
      return made;
    }
  }
  Shape out(made.begin(), made.begin() + static_cast<ptrdiff_t>(skip));
  size_t next = 0;
  for (int64_t dim : spec.dims) {
    out.push_back(dim == -1 && next < variable.size() ? variable[next++] : dim);
  }
  return out;
}

}  // namespace

StatusOr<OutputTensor*> InferenceResponse::add_output(const std::string& name,
                                                      TRITONSERVER_DataType datatype, Shape shape) {
  const TensorSpec* spec = context_->model->config().output(name);
  if (spec == nullptr) {
    return invalid_argument("unexpected inference output '{}' for model '{}'", name, model_name);
  }
  return &add_output(*spec, datatype, std::move(shape));
}

OutputTensor& InferenceResponse::add_output(const TensorSpec& spec, TRITONSERVER_DataType datatype,
                                            Shape shape) {
  const bool is_batched = context_->model->config().max_batch_size > 0;
  if (spec.reshape) shape = as_declared(spec, is_batched, shape);
  return outputs.emplace_back(this, spec.name, datatype, std::move(shape));
}

void InferenceResponse::set_parameter(TRITONSERVER_Parameter parameter) {
  const auto it = std::find_if(parameters.begin(), parameters.end(),
                               [&](const auto& p) { return p.name == parameter.name; });
  if (it == parameters.end()) {
    parameters.push_back(std::move(parameter));
  } else {
    it->value = std::move(parameter.value);
  }
}

Status InferenceResponse::send(std::unique_ptr<InferenceResponse> response, uint32_t flags,
                               const Status& error) {
  if (!error.ok()) response->error.reset(to_error(error));
  const auto context = std::move(response->context_);
  if (context == nullptr) return internal_error("response sent twice");
  if (context->trace != nullptr) {
    for (const OutputTensor& output : response->outputs) {
      context->trace->get()->report_output(TRITONSERVER_TRACE_TENSOR_BACKEND_OUTPUT, output);
    }
  }
  const InlineExecution here(context->model->lends_thread());
  return context->send(std::move(response), flags);
}

}  // namespace nereid::server
