// C API for backends: requests, inputs, responses and response factories.
#include <algorithm>

#include "base/log.h"
#include "server/api/accessors.h"
#include "server/api/error.h"
#include "server/model/backend_model.h"
#include "server/request/request.h"
#include "server/request/response.h"

using namespace nereid;          // NOLINT: this file is the C face of what is in there
using namespace nereid::server;  // NOLINT
using nereid::server::of;

namespace {

const InputBuffers& buffers_of(const InputTensor& input, const char* host_policy) {
  return host_policy == nullptr ? input.buffers : input.buffers_for(host_policy);
}

}  // namespace

NEREID_GETTER(TRITONBACKEND_RequestId, TRITONBACKEND_Request, const char*, of(x)->id.c_str())

TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationId(TRITONBACKEND_Request* request,
                                                       uint64_t* id) try {
  return TRITONSERVER_InferenceRequestCorrelationId(
      reinterpret_cast<TRITONSERVER_InferenceRequest*>(request), id);
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_RequestCorrelationIdString(TRITONBACKEND_Request* request,
                                                             const char** id) try {
  return TRITONSERVER_InferenceRequestCorrelationIdString(
      reinterpret_cast<TRITONSERVER_InferenceRequest*>(request), id);
}
NEREID_CATCH

NEREID_GETTER(TRITONBACKEND_RequestFlags, TRITONBACKEND_Request, uint32_t, of(x)->flags)
NEREID_GETTER(TRITONBACKEND_RequestParameterCount, TRITONBACKEND_Request, uint32_t,
              static_cast<uint32_t>(of(x)->parameters.size()))

TRITONSERVER_Error* TRITONBACKEND_RequestParameter(TRITONBACKEND_Request* request, uint32_t index,
                                                   const char** key,
                                                   TRITONSERVER_ParameterType* type,
                                                   const void** vvalue) try {
  return give_parameter("request", of(request)->parameters, index, key, type, vvalue);
}
NEREID_CATCH

NEREID_GETTER(TRITONBACKEND_InferenceRequestTimeoutMicroseconds, TRITONBACKEND_Request, uint64_t,
              of(x)->timeout_us)
NEREID_GETTER(TRITONBACKEND_RequestIsCancelled, TRITONBACKEND_Request, bool,
              of(x)->context()->is_cancelled())
NEREID_GETTER(TRITONBACKEND_RequestInputCount, TRITONBACKEND_Request, uint32_t,
              static_cast<uint32_t>(of(x)->num_inputs()))

TRITONSERVER_Error* TRITONBACKEND_RequestInputByIndex(TRITONBACKEND_Request* request,
                                                      uint32_t index,
                                                      TRITONBACKEND_Input** input) try {
  const size_t count = of(request)->num_inputs();
  if (index >= count) return out_of_bounds("request", "inputs", index, count);
  *input = reinterpret_cast<TRITONBACKEND_Input*>(&of(request)->input_at(index));
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_RequestInputName(TRITONBACKEND_Request* request, uint32_t index,
                                                   const char** input_name) try {
  const size_t count = of(request)->num_inputs();
  if (index >= count) return out_of_bounds("request", "inputs", index, count);
  *input_name = of(request)->input_at(index).name.c_str();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_RequestInput(TRITONBACKEND_Request* request, const char* name,
                                               TRITONBACKEND_Input** input) try {
  InputTensor* found = of(request)->input(name);
  *input = reinterpret_cast<TRITONBACKEND_Input*>(found);
  if (found != nullptr) return nullptr;
  return to_error(invalid_argument("{}unknown request input name {}", of(request)->log_id(), name));
}
NEREID_CATCH

NEREID_GETTER(TRITONBACKEND_RequestOutputCount, TRITONBACKEND_Request, uint32_t,
              static_cast<uint32_t>(of(x)->wanted_outputs.size()))

TRITONSERVER_Error* TRITONBACKEND_RequestOutputName(TRITONBACKEND_Request* request, uint32_t index,
                                                    const char** output_name) try {
  const auto& outputs = of(request)->wanted_outputs;
  if (index >= outputs.size())
    return out_of_bounds("request", "requested outputs", index, outputs.size());
  *output_name = outputs[index]->name.c_str();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_RequestOutputBufferProperties(
    TRITONBACKEND_Request* request, const char* name, size_t* byte_size,
    TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) try {
  ResponseAllocator* allocator = of(request)->allocator;
  if (allocator == nullptr || allocator->query == nullptr) {
    return to_error(unavailable("Output properties are not available"));
  }
  return allocator->query(reinterpret_cast<TRITONSERVER_ResponseAllocator*>(allocator),
                          of(request)->allocator_userp, name, byte_size, memory_type,
                          memory_type_id);
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_RequestTrace(TRITONBACKEND_Request* request,
                                               TRITONSERVER_InferenceTrace** trace) {
  const auto& hold = of(request)->trace;  // null for a request that is not traced
  *trace = hold == nullptr ? nullptr : reinterpret_cast<TRITONSERVER_InferenceTrace*>(hold->get());
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_RequestRelease(TRITONBACKEND_Request* request,
                                                 uint32_t release_flags) try {
  if (release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE) {
    return to_error(of(request)->reschedule());
  }
  if (release_flags != TRITONSERVER_REQUEST_RELEASE_ALL) {
    return to_error(
        invalid_argument("release flags {}: one of TRITONSERVER_REQUEST_RELEASE_ALL and "
                         "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE must be given",
                         release_flags));
  }
  of(request)->release(release_flags);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_InputProperties(TRITONBACKEND_Input* input, const char** name,
                                                  TRITONSERVER_DataType* datatype,
                                                  const int64_t** shape, uint32_t* dims_count,
                                                  uint64_t* byte_size, uint32_t* buffer_count) try {
  return TRITONBACKEND_InputPropertiesForHostPolicy(input, nullptr, name, datatype, shape,
                                                    dims_count, byte_size, buffer_count);
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_InputPropertiesForHostPolicy(
    TRITONBACKEND_Input* input, const char* host_policy_name, const char** name,
    TRITONSERVER_DataType* datatype, const int64_t** shape, uint32_t* dims_count,
    uint64_t* byte_size, uint32_t* buffer_count) try {
  const InputTensor& t = *of(input);
  const auto& buffers = buffers_of(t, host_policy_name);
  if (name != nullptr) *name = t.name.c_str();
  if (datatype != nullptr) *datatype = t.datatype;
  if (shape != nullptr) *shape = t.backend_shape.data();
  if (dims_count != nullptr) *dims_count = static_cast<uint32_t>(t.backend_shape.size());
  if (byte_size != nullptr) {
    *byte_size = 0;
    for (const InputBuffer& buffer : buffers) *byte_size += buffer.byte_size;
  }
  if (buffer_count != nullptr) *buffer_count = static_cast<uint32_t>(buffers.size());
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_InputBuffer(TRITONBACKEND_Input* input, uint32_t index,
                                              const void** buffer, uint64_t* buffer_byte_size,
                                              TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_type_id) try {
  return TRITONBACKEND_InputBufferForHostPolicy(input, nullptr, index, buffer, buffer_byte_size,
                                                memory_type, memory_type_id);
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_InputBufferForHostPolicy(
    TRITONBACKEND_Input* input, const char* host_policy_name, uint32_t index, const void** buffer,
    uint64_t* buffer_byte_size, TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) try {
  const auto& buffers = buffers_of(*of(input), host_policy_name);
  if (buffers.empty() && index == 0) {  // an input without elements
    *buffer = nullptr;
    *buffer_byte_size = 0;
    return nullptr;
  }
  if (index >= buffers.size())
    return out_of_bounds("request", "buffers in this input", index, buffers.size());
  *buffer = buffers[index].base;
  *buffer_byte_size = buffers[index].byte_size;
  *memory_type = buffers[index].memory_type;
  *memory_type_id = buffers[index].memory_type_id;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_InputBufferAttributes(
    TRITONBACKEND_Input* input, uint32_t index, const void** buffer,
    TRITONSERVER_BufferAttributes** attributes) try {
  InputTensor& t = *of(input);
  if (index >= t.buffers.size()) {
    return out_of_bounds("request", "buffers in this input", index, t.buffers.size());
  }
  const InputBuffer& b = t.buffers[index];
  t.attributes = {b.memory_type, b.memory_type_id, b.byte_size, {}};
  if (b.ipc_handle != nullptr) t.attributes.cuda_ipc_handle = *b.ipc_handle;
  *buffer = b.base;
  *attributes = &t.attributes;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_ResponseNew(TRITONBACKEND_Response** response,
                                              TRITONBACKEND_Request* request) try {
  *response =
      reinterpret_cast<TRITONBACKEND_Response*>(new InferenceResponse(of(request)->context()));
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_ResponseNewFromFactory(
    TRITONBACKEND_Response** response, TRITONBACKEND_ResponseFactory* factory) try {
  *response = reinterpret_cast<TRITONBACKEND_Response*>(new InferenceResponse(*of(factory)));
  return nullptr;
}
NEREID_CATCH

NEREID_DELETER(TRITONBACKEND_ResponseDelete, TRITONBACKEND_Response, of(x))

NEREID_PARAMETER_SETTERS(TRITONBACKEND_Response, TRITONBACKEND_Response,
                         of(x)->set_parameter(std::move(parameter)))

TRITONSERVER_Error* TRITONBACKEND_ResponseOutput(TRITONBACKEND_Response* response,
                                                 TRITONBACKEND_Output** output, const char* name,
                                                 TRITONSERVER_DataType datatype,
                                                 const int64_t* shape, uint32_t dims_count) try {
  auto added = of(response)->add_output(name, datatype, {shape, shape + dims_count});
  if (!added.ok()) return to_error(added.status());
  *output = reinterpret_cast<TRITONBACKEND_Output*>(*added);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_ResponseSend(TRITONBACKEND_Response* response,
                                               uint32_t send_flags, TRITONSERVER_Error* error) try {
  return to_error(InferenceResponse::send(std::unique_ptr<InferenceResponse>(of(response)),
                                          send_flags, to_status(error)));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_InferenceResponseOutput(TRITONBACKEND_Response* response,
                                                          uint32_t index, const char** name,
                                                          TRITONSERVER_DataType* datatype,
                                                          const int64_t** shape,
                                                          uint64_t* dim_count) try {
  const auto& outputs = of(response)->outputs;
  if (index >= outputs.size()) return out_of_bounds("request", "outputs", index, outputs.size());
  *name = outputs[index].name.c_str();
  *datatype = outputs[index].datatype;
  *shape = outputs[index].shape.data();
  *dim_count = outputs[index].shape.size();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_InferenceResponseOutputByName(TRITONBACKEND_Response* response,
                                                                const char* name,
                                                                TRITONSERVER_DataType* datatype,
                                                                const int64_t** shape,
                                                                uint64_t* dim_count) try {
  for (const auto& output : of(response)->outputs) {
    if (output.name != name) continue;
    *datatype = output.datatype;
    *shape = output.shape.data();
    *dim_count = output.shape.size();
    return nullptr;
  }
  return to_error(not_found("the response has no output '{}'", name));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_OutputBuffer(TRITONBACKEND_Output* output, void** buffer,
                                               uint64_t buffer_byte_size,
                                               TRITONSERVER_MemoryType* memory_type,
                                               int64_t* memory_type_id) try {
  OutputTensor& t = *of(output);
  auto allocated = t.allocate(buffer_byte_size, *memory_type, *memory_type_id);
  if (!allocated.ok()) return to_error(allocated.status());
  *buffer = *allocated;
  *memory_type = t.memory_type;
  *memory_type_id = t.memory_type_id;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_OutputBufferAttributes(
    TRITONBACKEND_Output* output, TRITONSERVER_BufferAttributes** attributes) try {
  OutputTensor& t = *of(output);
  t.attributes.memory_type = t.memory_type;
  t.attributes.memory_type_id = t.memory_type_id;
  t.attributes.byte_size = t.byte_size;
  *attributes = &t.attributes;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_ResponseFactoryNew(TRITONBACKEND_ResponseFactory** factory,
                                                     TRITONBACKEND_Request* request) try {
  *factory =
      reinterpret_cast<TRITONBACKEND_ResponseFactory*>(new ResponseFactory(of(request)->context()));
  return nullptr;
}
NEREID_CATCH

NEREID_DELETER(TRITONBACKEND_ResponseFactoryDelete, TRITONBACKEND_ResponseFactory, of(x))

TRITONSERVER_Error* TRITONBACKEND_ResponseFactorySendFlags(TRITONBACKEND_ResponseFactory* factory,
                                                           uint32_t send_flags) try {
  return to_error((*of(factory))->send(nullptr, send_flags));
}
NEREID_CATCH

NEREID_GETTER(TRITONBACKEND_ResponseFactoryIsCancelled, TRITONBACKEND_ResponseFactory, bool,
              (*of(x))->is_cancelled())
