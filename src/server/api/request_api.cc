// C API: inference requests, responses and response allocators as front ends use them.
#include <algorithm>

#include "server/api/accessors.h"
#include "server/api/error.h"
#include "server/request/request.h"
#include "server/request/response.h"
#include "server/server.h"

using namespace nereid;          // NOLINT: this file is the C face of what is in there
using namespace nereid::server;  // NOLINT
using nereid::server::of;

TRITONSERVER_Error* TRITONSERVER_InferenceRequestNew(TRITONSERVER_InferenceRequest** request,
                                                     TRITONSERVER_Server* server,
                                                     const char* model_name,
                                                     const int64_t model_version) try {
  auto model = of(server)->find(model_name, model_version);
  if (!model.ok()) return to_error(model.status());
  *request =
      reinterpret_cast<TRITONSERVER_InferenceRequest*>(new InferenceRequest(*std::move(model)));
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestDelete(
    TRITONSERVER_InferenceRequest* request) try {
  if (request == nullptr || of(request)->delete_later()) return nullptr;
  delete of(request);
  return nullptr;
}
NEREID_CATCH

NEREID_GETTER(TRITONSERVER_InferenceRequestId, TRITONSERVER_InferenceRequest, const char*,
              of(x)->id.c_str())
NEREID_SETTER(TRITONSERVER_InferenceRequestSetId, TRITONSERVER_InferenceRequest, const char*,
              of(x)->id = value)
NEREID_GETTER(TRITONSERVER_InferenceRequestFlags, TRITONSERVER_InferenceRequest, uint32_t,
              of(x)->flags)
NEREID_SETTER(TRITONSERVER_InferenceRequestSetFlags, TRITONSERVER_InferenceRequest, uint32_t,
              of(x)->flags = value)

TRITONSERVER_Error* TRITONSERVER_InferenceRequestCorrelationId(
    TRITONSERVER_InferenceRequest* request, uint64_t* correlation_id) try {
  const auto* number = std::get_if<uint64_t>(&of(request)->correlation_id);
  if (number == nullptr) return to_error(invalid_argument("correlation ID is a string"));
  *correlation_id = *number;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestCorrelationIdString(
    TRITONSERVER_InferenceRequest* request, const char** correlation_id) try {
  const auto* text = std::get_if<std::string>(&of(request)->correlation_id);
  if (text == nullptr) return to_error(invalid_argument("correlation ID is not a string"));
  *correlation_id = text->c_str();
  return nullptr;
}
NEREID_CATCH

NEREID_SETTER(TRITONSERVER_InferenceRequestSetCorrelationId, TRITONSERVER_InferenceRequest,
              uint64_t, of(x)->correlation_id = value)

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetCorrelationIdString(
    TRITONSERVER_InferenceRequest* request, const char* correlation_id) try {
  constexpr size_t kMaxLength = 128;
  const std::string_view text(correlation_id);
  if (text.size() > kMaxLength) {
    return to_error(
        invalid_argument("string correlation ID cannot be longer than {} characters", kMaxLength));
  }
  of(request)->correlation_id = std::string(text);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestPriority(TRITONSERVER_InferenceRequest* request,
                                                          uint32_t* priority) try {
  const uint64_t value = of(request)->priority;
  if (value > UINT32_MAX)
    return to_error(
        invalid_argument("request priority overflows uint32_t, use "
                         "TRITONSERVER_InferenceRequestPriorityUInt64, priority={}",
                         value));
  *priority = static_cast<uint32_t>(value);
  return nullptr;
}
NEREID_CATCH

NEREID_GETTER(TRITONSERVER_InferenceRequestPriorityUInt64, TRITONSERVER_InferenceRequest, uint64_t,
              of(x)->priority)
NEREID_SETTER(TRITONSERVER_InferenceRequestSetPriority, TRITONSERVER_InferenceRequest, uint32_t,
              of(x)->set_priority(value))
NEREID_SETTER(TRITONSERVER_InferenceRequestSetPriorityUInt64, TRITONSERVER_InferenceRequest,
              uint64_t, of(x)->set_priority(value))
NEREID_GETTER(TRITONSERVER_InferenceRequestTimeoutMicroseconds, TRITONSERVER_InferenceRequest,
              uint64_t, of(x)->timeout_us)
NEREID_SETTER(TRITONSERVER_InferenceRequestSetTimeoutMicroseconds, TRITONSERVER_InferenceRequest,
              uint64_t, of(x)->timeout_us = value)

namespace {

constexpr uint64_t kMaxRank = 64;

// Whether one of the request's lists, which the C API fills, contains `name`; constant time.
template <class List, class NameOf>
bool has_name(const List& list, std::string_view name, absl::flat_hash_set<std::string>& names,
              NameOf name_of) {
  constexpr size_t kFew = 16;
  if (list.size() <= kFew) {
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& item) { return name_of(item) == name; });
  }
  if (names.size() != list.size()) {
    names.clear();
    for (const auto& item : list) names.insert(name_of(item));
  }
  return names.contains(std::string(name));
}

template <class Use>
TRITONSERVER_Error* with_input(TRITONSERVER_InferenceRequest* request, const char* name, Use use) {
  auto& inputs = of(request)->inputs;
  // Fast path: data mostly arrives for the input added last.
  InputTensor* input =
      !inputs.empty() && inputs.back().name == name ? &inputs.back() : of(request)->input(name);
  if (input == nullptr) {
    return to_error(
        invalid_argument("{}input '{}' does not exist in request", of(request)->log_id(), name));
  }
  use(*input);
  return nullptr;
}

void set_parameter(InferenceRequest& request, TRITONSERVER_Parameter parameter) {
  auto& parameters = request.parameters;
  std::erase_if(parameters, [&](const auto& p) { return p.name == parameter.name; });
  parameters.push_back(std::move(parameter));
}

}  // namespace

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddInput(TRITONSERVER_InferenceRequest* request,
                                                          const char* name,
                                                          const TRITONSERVER_DataType datatype,
                                                          const int64_t* shape,
                                                          uint64_t dim_count) try {
  auto& inputs = of(request)->inputs;
  auto& names = of(request)->input_names;
  if (has_name(inputs, name, names, [](const auto& i) -> const std::string& { return i.name; })) {
    return to_error(
        invalid_argument("{}input '{}' already exists in request", of(request)->log_id(), name));
  }
  if (dim_count > kMaxRank) {
    return to_error(invalid_argument("{}input '{}' has {} dimensions, at most {}",
                                     of(request)->log_id(), name, dim_count, kMaxRank));
  }
  // 8 inputs: moving them later costs more than the unused room.
  if (inputs.empty()) inputs.reserve(8);
  if (!names.empty()) names.emplace(name);
  inputs.emplace_back(name, nullptr, datatype, Shape(shape, shape + dim_count));
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRawInput(TRITONSERVER_InferenceRequest* request,
                                                             const char* name) try {
  if (!of(request)->inputs.empty()) {
    return to_error(
        invalid_argument("raw input '{}' can't be added to request with other inputs", name));
  }
  of(request)->inputs.emplace_back().name = name;
  of(request)->is_raw = true;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveInput(TRITONSERVER_InferenceRequest* request,
                                                             const char* name) try {
  auto& inputs = of(request)->inputs;
  of(request)->input_names.clear();
  if (std::erase_if(inputs, [&](const auto& input) { return input.name == name; }) == 0) {
    return to_error(
        invalid_argument("{}input '{}' does not exist in request", of(request)->log_id(), name));
  }
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllInputs(
    TRITONSERVER_InferenceRequest* request) try {
  of(request)->inputs.clear();
  of(request)->input_names.clear();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputData(
    TRITONSERVER_InferenceRequest* request, const char* name, const void* base, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id) try {
  return with_input(request, name, [&](InputTensor& input) {
    if (byte_size > 0) input.buffers.push_back({base, byte_size, memory_type, memory_type_id, {}});
  });
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputDataWithBufferAttributes(
    TRITONSERVER_InferenceRequest* request, const char* name, const void* base,
    TRITONSERVER_BufferAttributes* attributes) try {
  return with_input(request, name, [&](InputTensor& input) {
    if (attributes->byte_size == 0) return;
    InputBuffer& buffer = input.buffers.emplace_back();
    buffer.base = base;
    buffer.byte_size = attributes->byte_size;
    buffer.memory_type = attributes->memory_type;
    buffer.memory_type_id = attributes->memory_type_id;
    if (attributes->cuda_ipc_handle) {
      buffer.ipc_handle = std::make_shared<const CudaIpcHandle>(*attributes->cuda_ipc_handle);
    }
  });
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAppendInputDataWithHostPolicy(
    TRITONSERVER_InferenceRequest* request, const char* name, const void* base, size_t byte_size,
    TRITONSERVER_MemoryType memory_type, int64_t memory_type_id, const char* host_policy_name) try {
  if (of(request)->is_raw) {
    return to_error(
        invalid_argument("raw input '{}' cannot have data for a host policy ('{}'): its shape "
                         "follows from data without a policy",
                         name, host_policy_name));
  }
  return with_input(request, name, [&](InputTensor& input) {
    if (byte_size == 0) return;
    auto& lists = input.policy_buffers;
    auto list = std::find_if(lists.begin(), lists.end(),
                             [&](const auto& row) { return row.first == host_policy_name; });
    if (list == lists.end()) list = lists.insert(list, {host_policy_name, {}});
    list->second.push_back({base, byte_size, memory_type, memory_type_id, {}});
  });
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllInputData(
    TRITONSERVER_InferenceRequest* request, const char* name) try {
  return with_input(request, name, [](InputTensor& input) {
    input.buffers.clear();
    input.policy_buffers.clear();
  });
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestAddRequestedOutput(
    TRITONSERVER_InferenceRequest* request, const char* name) try {
  auto& outputs = of(request)->requested_outputs;
  auto& names = of(request)->output_names;
  if (has_name(outputs, name, names, [](const auto& o) -> const std::string& { return o; })) {
    return nullptr;
  }
  if (!names.empty()) names.emplace(name);
  outputs.emplace_back(name);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveRequestedOutput(
    TRITONSERVER_InferenceRequest* request, const char* name) try {
  std::erase(of(request)->requested_outputs, name);
  of(request)->output_names.clear();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestRemoveAllRequestedOutputs(
    TRITONSERVER_InferenceRequest* request) try {
  of(request)->requested_outputs.clear();
  of(request)->output_names.clear();
  return nullptr;
}
NEREID_CATCH

NEREID_PARAMETER_SETTERS(TRITONSERVER_InferenceRequest, TRITONSERVER_InferenceRequest,
                         set_parameter(*of(x), std::move(parameter)))

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetReleaseCallback(
    TRITONSERVER_InferenceRequest* request, TRITONSERVER_InferenceRequestReleaseFn_t fn,
    void* userp) {
  of(request)->release_fn = fn;
  of(request)->release_userp = userp;
  return nullptr;
}

TRITONSERVER_Error* TRITONSERVER_InferenceRequestSetResponseCallback(
    TRITONSERVER_InferenceRequest* request, TRITONSERVER_ResponseAllocator* allocator,
    void* allocator_userp, TRITONSERVER_InferenceResponseCompleteFn_t fn, void* userp) try {
  of(request)->allocator = of(allocator);
  of(request)->allocator_userp = allocator_userp;
  of(request)->response_fn = fn;
  of(request)->response_userp = userp;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceRequestCancel(
    TRITONSERVER_InferenceRequest* request) try {
  of(request)->cancel();
  return nullptr;
}
NEREID_CATCH

NEREID_GETTER(TRITONSERVER_InferenceRequestIsCancelled, TRITONSERVER_InferenceRequest, bool,
              of(x)->cancel_state()->is_cancelled())
NEREID_DELETER(TRITONSERVER_InferenceResponseDelete, TRITONSERVER_InferenceResponse, of(x))

TRITONSERVER_Error* TRITONSERVER_InferenceResponseError(
    TRITONSERVER_InferenceResponse* response) try {
  const TRITONSERVER_Error* error = of(response)->error.get();
  return error == nullptr ? nullptr : new TRITONSERVER_Error(*error);
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceResponseModel(TRITONSERVER_InferenceResponse* response,
                                                        const char** model_name,
                                                        int64_t* model_version) {
  *model_name = of(response)->model_name.c_str();
  *model_version = of(response)->model_version;
  return nullptr;
}

NEREID_GETTER(TRITONSERVER_InferenceResponseId, TRITONSERVER_InferenceResponse, const char*,
              of(x)->id.c_str())
NEREID_GETTER(TRITONSERVER_InferenceResponseParameterCount, TRITONSERVER_InferenceResponse,
              uint32_t, static_cast<uint32_t>(of(x)->parameters.size()))

TRITONSERVER_Error* TRITONSERVER_InferenceResponseParameter(
    TRITONSERVER_InferenceResponse* response, const uint32_t index, const char** name,
    TRITONSERVER_ParameterType* type, const void** vvalue) try {
  return give_parameter("response", of(response)->parameters, index, name, type, vvalue);
}
NEREID_CATCH

NEREID_GETTER(TRITONSERVER_InferenceResponseOutputCount, TRITONSERVER_InferenceResponse, uint32_t,
              static_cast<uint32_t>(of(x)->outputs.size()))

TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutput(
    TRITONSERVER_InferenceResponse* response, const uint32_t index, const char** name,
    TRITONSERVER_DataType* datatype, const int64_t** shape, uint64_t* dim_count, const void** base,
    size_t* byte_size, TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id,
    void** userp) try {
  const auto& outputs = of(response)->outputs;
  if (index >= outputs.size()) return out_of_bounds("response", "outputs", index, outputs.size());
  const OutputTensor& output = outputs[index];
  *name = output.name.c_str();
  *datatype = output.datatype;
  *shape = output.shape.data();
  *dim_count = output.shape.size();
  *base = output.buffer;
  *byte_size = output.byte_size;
  *memory_type = output.memory_type;
  *memory_type_id = output.memory_type_id;
  *userp = output.buffer_userp;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_InferenceResponseOutputClassificationLabel(
    TRITONSERVER_InferenceResponse* response, const uint32_t index, const size_t class_index,
    const char** label) try {
  const auto& outputs = of(response)->outputs;
  if (index >= outputs.size()) return out_of_bounds("response", "outputs", index, outputs.size());
  *label = nullptr;
  const auto& names = of(response)->class_names;
  if (names == nullptr) return nullptr;
  const auto list = names->find(outputs[index].name);
  if (list == names->end() || class_index >= list->second.size()) return nullptr;
  *label = list->second[class_index].c_str();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONSERVER_ResponseAllocatorNew(
    TRITONSERVER_ResponseAllocator** allocator, TRITONSERVER_ResponseAllocatorAllocFn_t alloc_fn,
    TRITONSERVER_ResponseAllocatorReleaseFn_t release_fn,
    TRITONSERVER_ResponseAllocatorStartFn_t start_fn) try {
  auto* a = new ResponseAllocator;
  a->alloc = alloc_fn;
  a->release = release_fn;
  a->start = start_fn;
  *allocator = reinterpret_cast<TRITONSERVER_ResponseAllocator*>(a);
  return nullptr;
}
NEREID_CATCH

NEREID_SETTER(TRITONSERVER_ResponseAllocatorSetQueryFunction, TRITONSERVER_ResponseAllocator,
              TRITONSERVER_ResponseAllocatorQueryFn_t, of(x)->query = value)
NEREID_SETTER(TRITONSERVER_ResponseAllocatorSetBufferAttributesFunction,
              TRITONSERVER_ResponseAllocator, TRITONSERVER_ResponseAllocatorBufferAttributesFn_t,
              of(x)->attributes = value)
NEREID_DELETER(TRITONSERVER_ResponseAllocatorDelete, TRITONSERVER_ResponseAllocator, of(x))
