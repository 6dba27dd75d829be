// Requests to the core, their responses, and the life of a call; see inference_call.h.
#include "front/bridge/inference_call.h"

#include <new>
#include <utility>

#include "base/log.h"
#include "base/log_limit.h"
#include "nereid/server.h"

namespace nereid::front {
namespace {

// Allocates a std::string, or returns the memory named in the request. `userp` is the spec.
TRITONSERVER_Error* allocate(TRITONSERVER_ResponseAllocator*, const char* name, size_t byte_size,
                             TRITONSERVER_MemoryType, int64_t, void* userp, void** buffer,
                             void** buffer_userp, TRITONSERVER_MemoryType* actual_type,
                             int64_t* actual_id) {
  *actual_type = TRITONSERVER_MEMORY_CPU;
  *actual_id = 0;
  *buffer_userp = nullptr;
  const auto& spec = *static_cast<const InferenceSpec*>(userp);
  if (const auto at = spec.output_memory.find(name); at != spec.output_memory.end()) {
    if (byte_size > at->second.size) {
      const std::string text = fmt::format(
          "shared memory size specified with the request for output '{}' ({} bytes) should be at "
          "least {} bytes to hold the results",
          name, at->second.size, byte_size);
      return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INVALID_ARG, text.c_str());
    }
    *buffer = at->second.base;
    return nullptr;
  }
  if (TRITONSERVER_Error* error = NEREID_ServerHoldMemory(byte_size)) return error;
  try {
    auto* bytes = new std::string(byte_size, '\0');
    *buffer = bytes->data();
    *buffer_userp = bytes;
  } catch (const std::exception&) {
    NEREID_ServerReleaseMemory(byte_size);
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE, "no memory for the response");
  }
  return nullptr;
}

TRITONSERVER_Error* release(TRITONSERVER_ResponseAllocator*, void*, void* buffer_userp,
                            size_t byte_size, TRITONSERVER_MemoryType, int64_t) {
  if (buffer_userp == nullptr) return nullptr;
  delete static_cast<std::string*>(buffer_userp);
  NEREID_ServerReleaseMemory(byte_size);
  return nullptr;
}

// The preferred memory type: main memory, where clients' regions are too.
TRITONSERVER_Error* query(TRITONSERVER_ResponseAllocator*, void*, const char*, size_t*,
                          TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) {
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}

// One stateless allocator for all requests of the process.
TRITONSERVER_ResponseAllocator* allocator() {
  static TRITONSERVER_ResponseAllocator* const shared = [] {
    TRITONSERVER_ResponseAllocator* made = nullptr;
    Status status =
        take_error(TRITONSERVER_ResponseAllocatorNew(&made, allocate, release, nullptr));
    if (status.ok())
      status = take_error(TRITONSERVER_ResponseAllocatorSetQueryFunction(made, query));
    if (!status.ok()) log_error("response allocator: {}", message(status));
    return made;
  }();
  return shared;
}

Status read_parameters(TRITONSERVER_InferenceResponse* response, InferenceReply& reply) {
  uint32_t count = 0;
  RETURN_IF_ERROR(take_error(TRITONSERVER_InferenceResponseParameterCount(response, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    TRITONSERVER_ParameterType type;
    const void* value = nullptr;
    RETURN_IF_ERROR(
        take_error(TRITONSERVER_InferenceResponseParameter(response, i, &name, &type, &value)));
    switch (type) {
      case TRITONSERVER_PARAMETER_STRING:
        reply.parameters.push_back({name, std::string(static_cast<const char*>(value))});
        break;
      case TRITONSERVER_PARAMETER_INT:
        reply.parameters.push_back({name, *static_cast<const int64_t*>(value)});
        break;
      case TRITONSERVER_PARAMETER_BOOL:
        reply.parameters.push_back({name, *static_cast<const bool*>(value)});
        break;
      case TRITONSERVER_PARAMETER_DOUBLE:
        reply.parameters.push_back({name, *static_cast<const double*>(value)});
        break;
      default:
        return internal_error("response parameter '{}' has a type that cannot be sent", name);
    }
  }
  return ok();
}

Status read_labels(TRITONSERVER_InferenceResponse* response, uint32_t index, Tensor& tensor) {
  const uint32_t size = TRITONSERVER_DataTypeByteSize(tensor.type);
  if (size == 0) return ok();
  // Labels for the elements of each row; without a batch dimension there is one row.
  for (size_t i = 0; i < tensor.bytes.size() / size; ++i) {
    const char* label = nullptr;
    RETURN_IF_ERROR(take_error(
        TRITONSERVER_InferenceResponseOutputClassificationLabel(response, index, i, &label)));
    if (label == nullptr) break;
    tensor.labels.emplace_back(label);
  }
  return ok();
}

Status read_outputs(TRITONSERVER_InferenceResponse* response, const InferenceSpec& spec,
                    InferenceReply& reply) {
  uint32_t count = 0;
  RETURN_IF_ERROR(take_error(TRITONSERVER_InferenceResponseOutputCount(response, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    const int64_t* shape = nullptr;
    uint64_t num_dims = 0;
    const void* base = nullptr;
    size_t byte_size = 0;
    TRITONSERVER_MemoryType memory_type;
    int64_t memory_id = 0;
    void* userp = nullptr;
    Tensor tensor;
    RETURN_IF_ERROR(take_error(
        TRITONSERVER_InferenceResponseOutput(response, i, &name, &tensor.type, &shape, &num_dims,
                                             &base, &byte_size, &memory_type, &memory_id, &userp)));
    tensor.name = name;
    tensor.shape.assign(shape, shape + num_dims);
    // The buffer may be larger than the output, or missing for an empty one.
    tensor.is_external = spec.output_memory.contains(tensor.name);
    auto* const text = static_cast<std::string*>(userp);  // from allocate(); null elsewhere
    if (!tensor.is_external && text != nullptr && base == text->data()) {
      tensor.bytes = std::move(*text);  // no reader is left
      tensor.bytes.resize(byte_size);
    } else if (!tensor.is_external) {
      tensor.bytes.assign(static_cast<const char*>(base), base == nullptr ? 0 : byte_size);
    }
    if (spec.labelled_outputs.contains(tensor.name)) {
      RETURN_IF_ERROR(read_labels(response, i, tensor));
    }
    reply.outputs.push_back(std::move(tensor));
  }
  return ok();
}

Status read_response(TRITONSERVER_InferenceResponse* response, const InferenceSpec& spec,
                     InferenceReply& reply) {
  const char* text = nullptr;
  if (take_error(TRITONSERVER_InferenceResponseId(response, &text)).ok() && text != nullptr) {
    reply.id = text;
  }
  if (TRITONSERVER_Error* error = TRITONSERVER_InferenceResponseError(response)) {
    return take_error(error);
  }
  text = nullptr;
  RETURN_IF_ERROR(
      take_error(TRITONSERVER_InferenceResponseModel(response, &text, &reply.model_version)));
  reply.model_name = text == nullptr ? "" : text;
  RETURN_IF_ERROR(read_parameters(response, reply));
  return read_outputs(response, spec, reply);
}

// An error if a client's memory was truncated while the model used it.
Status check_memory(const InferenceSpec& spec) {
  for (const auto* list : {&spec.input_memory, &spec.output_memory}) {
    for (const auto& [name, memory] : *list) {
      if (memory.is_lost == nullptr || !memory.is_lost->load()) continue;
      return invalid_argument(
          "the shared memory of {} '{}' is smaller than the region that was registered",
          list == &spec.input_memory ? "input" : "output", name);
    }
  }
  return ok();
}

Status set_parameter(TRITONSERVER_InferenceRequest* request, const Parameter& p) {
  const char* key = p.name.c_str();
  if (const auto* text = std::get_if<std::string>(&p.value)) {
    return take_error(TRITONSERVER_InferenceRequestSetStringParameter(request, key, text->c_str()));
  }
  if (const auto* number = std::get_if<int64_t>(&p.value)) {
    return take_error(TRITONSERVER_InferenceRequestSetIntParameter(request, key, *number));
  }
  if (const auto* flag = std::get_if<bool>(&p.value)) {
    return take_error(TRITONSERVER_InferenceRequestSetBoolParameter(request, key, *flag));
  }
  return take_error(
      TRITONSERVER_InferenceRequestSetDoubleParameter(request, key, std::get<double>(p.value)));
}

}  // namespace

size_t InferenceSpec::num_bytes() const {
  size_t sum = 0;
  for (const Tensor& t : inputs) sum += t.bytes.size();
  return sum;
}

Status check_count(std::string_view what, size_t count, size_t limit) {
  if (count <= limit) return ok();
  return invalid_argument("the request has {} {}, at most {} are allowed", count, what, limit);
}

StatusOr<std::shared_ptr<InferenceCall>> InferenceCall::start(TRITONSERVER_Server* server,
                                                              InferenceSpec spec,
                                                              OnReply on_reply) {
  std::shared_ptr<InferenceCall> call(new InferenceCall());
  call->spec_ = std::move(spec);
  call->on_reply_ = std::move(on_reply);
  RETURN_IF_ERROR(call->build(server));
  call->self_ = call;
  const RequestTracePtr trace = call->spec_.trace;
  TRITONSERVER_InferenceTrace* core_trace = trace == nullptr ? nullptr : trace->begin();
  // Responses may arrive, and the call may even end, before this returns.
  const Status sent = take_error(TRITONSERVER_ServerInferAsync(server, call->request_, core_trace));
  if (!sent.ok()) {
    if (core_trace != nullptr) trace->drop(core_trace);
    call->self_.reset();
    return sent;
  }
  return call;
}

InferenceCall::~InferenceCall() {
  if (request_ != nullptr) take_error(TRITONSERVER_InferenceRequestDelete(request_)).IgnoreError();
}

namespace {

// The C API ends names at the first NUL byte, which would name something else. (A text parameter
// ends there as well, as in the stock server.)
Status check_texts(const InferenceSpec& spec) {
  const auto check = [](const char* what, const std::string& text) {
    return text.find('\0') == std::string::npos
               ? ok()
               : invalid_argument("the {} '{}' has a NUL byte", what, text.c_str());
  };
  RETURN_IF_ERROR(check("model name", spec.model));
  RETURN_IF_ERROR(check("request id", spec.id));
  for (const Tensor& t : spec.inputs) RETURN_IF_ERROR(check("input name", t.name));
  for (const std::string& name : spec.requested_outputs)
    RETURN_IF_ERROR(check("output name", name));
  for (const Parameter& p : spec.parameters) RETURN_IF_ERROR(check("parameter name", p.name));
  const auto* sequence = std::get_if<std::string>(&spec.correlation_id);
  return sequence == nullptr ? ok() : check("sequence id", *sequence);
}

}  // namespace

Status InferenceCall::build(TRITONSERVER_Server* server) {
  RETURN_IF_ERROR(check_texts(spec_));
  RETURN_IF_ERROR(take_error(
      TRITONSERVER_InferenceRequestNew(&request_, server, spec_.model.c_str(), spec_.version)));
  if (!spec_.id.empty()) {
    RETURN_IF_ERROR(take_error(TRITONSERVER_InferenceRequestSetId(request_, spec_.id.c_str())));
  }
  RETURN_IF_ERROR(set_attributes());
  for (const Tensor& t : spec_.inputs) {
    RETURN_IF_ERROR(take_error(
        spec_.is_raw ? TRITONSERVER_InferenceRequestAddRawInput(request_, t.name.c_str())
                     : TRITONSERVER_InferenceRequestAddInput(request_, t.name.c_str(), t.type,
                                                             t.shape.data(), t.shape.size())));
    const auto external = spec_.input_memory.find(t.name);
    const bool is_external = external != spec_.input_memory.end();
    RETURN_IF_ERROR(take_error(TRITONSERVER_InferenceRequestAppendInputData(
        request_, t.name.c_str(), is_external ? external->second.base : t.bytes.data(),
        is_external ? external->second.size : t.bytes.size(), TRITONSERVER_MEMORY_CPU, 0)));
  }
  for (const std::string& name : spec_.requested_outputs) {
    RETURN_IF_ERROR(
        take_error(TRITONSERVER_InferenceRequestAddRequestedOutput(request_, name.c_str())));
  }
  for (const Parameter& p : spec_.parameters) RETURN_IF_ERROR(set_parameter(request_, p));
  RETURN_IF_ERROR(
      take_error(TRITONSERVER_InferenceRequestSetReleaseCallback(request_, &on_release, this)));
  if (allocator() == nullptr) return internal_error("no response allocator");
  return take_error(TRITONSERVER_InferenceRequestSetResponseCallback(request_, allocator(), &spec_,
                                                                     &on_response, this));
}

Status InferenceCall::set_attributes() {
  if (spec_.flags != 0) {
    RETURN_IF_ERROR(take_error(TRITONSERVER_InferenceRequestSetFlags(request_, spec_.flags)));
  }
  if (const auto* text = std::get_if<std::string>(&spec_.correlation_id)) {
    RETURN_IF_ERROR(
        take_error(TRITONSERVER_InferenceRequestSetCorrelationIdString(request_, text->c_str())));
  } else if (const uint64_t id = std::get<uint64_t>(spec_.correlation_id); id != 0) {
    RETURN_IF_ERROR(take_error(TRITONSERVER_InferenceRequestSetCorrelationId(request_, id)));
  }
  if (spec_.priority != 0) {
    RETURN_IF_ERROR(
        take_error(TRITONSERVER_InferenceRequestSetPriorityUInt64(request_, spec_.priority)));
  }
  NEREID_ServerSetTenant(request_, spec_.tenant);
  if (spec_.timeout_us == 0) return ok();
  return take_error(
      TRITONSERVER_InferenceRequestSetTimeoutMicroseconds(request_, spec_.timeout_us));
}

void InferenceCall::cancel() {
  // Called outside of the lock: the server may answer from inside the call.
  std::shared_ptr<InferenceCall> alive;
  {
    std::lock_guard lock(mutex_);
    if (final_seen_) return;
    alive = self_;
  }
  if (!alive) return;
  const Status status = take_error(TRITONSERVER_InferenceRequestCancel(request_));
  static LogLimit log;
  if (!status.ok()) log.warn("cancel of a request to '{}': {}", spec_.model, message(status));
}

// Deletes the request object once the server has both released it and sent its last response.
void InferenceCall::finish_part(bool released) {
  std::shared_ptr<InferenceCall> last;  // destroyed outside of the lock
  std::lock_guard lock(mutex_);
  (released ? released_ : final_seen_) = true;
  if (released_ && final_seen_) last = std::move(self_);
}

void InferenceCall::on_release(TRITONSERVER_InferenceRequest*, uint32_t flags, void* self) {
  if ((flags & TRITONSERVER_REQUEST_RELEASE_ALL) == 0) return;
  static_cast<InferenceCall*>(self)->finish_part(true);
}

void InferenceCall::on_response(TRITONSERVER_InferenceResponse* response, uint32_t flags,
                                void* self) {
  auto* call = static_cast<InferenceCall*>(self);
  if (call->spec_.trace != nullptr) call->spec_.trace->report_now("INFER_RESPONSE_COMPLETE");
  InferenceReply reply;
  reply.final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  if (response == nullptr) {
    if (!reply.final) return;
    reply.empty = true;
  } else {
    try {
      reply.status = read_response(response, call->spec_, reply);
      if (reply.status.ok()) reply.status = check_memory(call->spec_);
    } catch (const std::bad_alloc&) {
      reply.status = unavailable("no memory for the response");
    } catch (const std::exception& e) {
      reply.status = internal_error("reading a response: {}", e.what());
    }
  }
  const bool final = reply.final;
  if (final) {
    for (auto& [_, memory] : call->spec_.input_memory) memory.in_use.reset();
    for (auto& [_, memory] : call->spec_.output_memory) memory.in_use.reset();
  }
  // The closure usually refers to this call: dropped with the last reply.
  OnReply on_reply;
  try {
    on_reply = final ? std::exchange(call->on_reply_, nullptr) : call->on_reply_;
    on_reply(std::move(reply));
  } catch (const std::exception& e) {
    static LogLimit log;
    log.error("reply handler: {}", e.what());
  }
  // Deleted only now, so that the client does not wait for it.
  if (response != nullptr) {
    take_error(TRITONSERVER_InferenceResponseDelete(response)).IgnoreError();
  }
  if (final) call->finish_part(false);
}

Status several_answers(size_t count) {
  return invalid_argument(
      "infer returns one response and the model sent {}: request no streaming and one sequence of "
      "one prompt, or use generate_stream or the rpc ModelStreamInfer",
      count);
}

}  // namespace nereid::front
