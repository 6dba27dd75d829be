// Requests from one model to another.
#include "backend/common/infer_call.h"

#include <algorithm>
#include <cstdlib>

#include "nereid/server.h"

// Weak: stock tritonserver does not have this function.
#pragma weak NEREID_ServerHoldMemory
#pragma weak NEREID_ServerReleaseMemory
#pragma weak NEREID_ServerSetTenant

namespace nereid::backend {
namespace {

void ignore(TRITONSERVER_Error* error) { TRITONSERVER_ErrorDelete(error); }

TRITONSERVER_Error* allocate(TRITONSERVER_ResponseAllocator*, const char* name, size_t byte_size,
                             TRITONSERVER_MemoryType, int64_t, void*, void** buffer,
                             void** buffer_userp, TRITONSERVER_MemoryType* memory_type,
                             int64_t* memory_type_id) {
  if (NEREID_ServerHoldMemory != nullptr)
    if (TRITONSERVER_Error* error = NEREID_ServerHoldMemory(byte_size)) return error;
  *buffer = byte_size == 0 ? nullptr : std::malloc(byte_size);
  *buffer_userp = nullptr;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  if (byte_size == 0 || *buffer != nullptr) return nullptr;
  if (NEREID_ServerReleaseMemory != nullptr) NEREID_ServerReleaseMemory(byte_size);
  return give(unavailable("out of memory for {} bytes of output '{}'", byte_size, name));
}

TRITONSERVER_Error* deallocate(TRITONSERVER_ResponseAllocator*, void* buffer, void*,
                               size_t byte_size, TRITONSERVER_MemoryType, int64_t) {
  std::free(buffer);
  if (NEREID_ServerReleaseMemory != nullptr) NEREID_ServerReleaseMemory(byte_size);
  return nullptr;
}

TRITONSERVER_ResponseAllocator* allocator() {
  static TRITONSERVER_ResponseAllocator* const shared = [] {
    TRITONSERVER_ResponseAllocator* a = nullptr;
    ignore(TRITONSERVER_ResponseAllocatorNew(&a, allocate, deallocate, nullptr));
    return a;
  }();
  return shared;
}

Status copy_outputs(TRITONSERVER_InferenceResponse* response, std::vector<Output>& outputs) {
  uint32_t count = 0;
  RETURN_IF_ERROR(take(TRITONSERVER_InferenceResponseOutputCount(response, &count)));
  for (uint32_t i = 0; i < count; ++i) {
    const char* name = nullptr;
    TRITONSERVER_DataType datatype;
    const int64_t* shape = nullptr;
    uint64_t rank = 0;
    const void* base = nullptr;
    size_t size = 0;
    TRITONSERVER_MemoryType memory;
    int64_t memory_id = 0;
    void* userp = nullptr;
    RETURN_IF_ERROR(take(TRITONSERVER_InferenceResponseOutput(
        response, i, &name, &datatype, &shape, &rank, &base, &size, &memory, &memory_id, &userp)));
    outputs.push_back({name, datatype, Shape(shape, shape + rank),
                       std::string(static_cast<const char*>(base), size)});
  }
  return ok();
}

}  // namespace

const Output* find_output(const std::vector<Output>& outputs, std::string_view name) {
  const auto it = std::ranges::find(outputs, name, &Output::name);
  return it == outputs.end() ? nullptr : &*it;
}

StatusOr<std::shared_ptr<InferCall>> InferCall::start(TRITONSERVER_Server* server,
                                                      const std::string& model,
                                                      const std::string& id, uint64_t tenant,
                                                      std::vector<Output> inputs,
                                                      std::function<void(Reply)> on_reply) {
  std::shared_ptr<InferCall> call(new InferCall);
  call->inputs_ = std::move(inputs);
  call->on_reply_ = std::move(on_reply);
  RETURN_IF_ERROR(
      take(TRITONSERVER_InferenceRequestNew(&call->request_, server, model.c_str(), -1)));
  auto* r = call->request_;
  RETURN_IF_ERROR(take(TRITONSERVER_InferenceRequestSetId(r, id.c_str())));
  if (NEREID_ServerSetTenant != nullptr) NEREID_ServerSetTenant(r, tenant);
  for (const auto& input : call->inputs_) {
    RETURN_IF_ERROR(take(TRITONSERVER_InferenceRequestAddInput(
        r, input.name.c_str(), input.datatype, input.shape.data(), input.shape.size())));
    RETURN_IF_ERROR(take(TRITONSERVER_InferenceRequestAppendInputData(
        r, input.name.c_str(), input.bytes.data(), input.bytes.size(), TRITONSERVER_MEMORY_CPU,
        0)));
  }
  // Each callback owns a reference, deleted at its last call.
  auto* for_release = new std::shared_ptr<InferCall>(call);
  auto* for_responses = new std::shared_ptr<InferCall>(call);
  Status status = take(TRITONSERVER_InferenceRequestSetReleaseCallback(r, on_release, for_release));
  if (status.ok()) {
    status = take(TRITONSERVER_InferenceRequestSetResponseCallback(r, allocator(), nullptr,
                                                                   on_response, for_responses));
  }
  if (status.ok()) status = take(TRITONSERVER_ServerInferAsync(server, r, nullptr));
  if (status.ok()) return call;
  delete for_release;
  delete for_responses;
  return status;
}

InferCall::~InferCall() {
  if (request_ != nullptr) ignore(TRITONSERVER_InferenceRequestDelete(request_));
}

void InferCall::cancel() { ignore(TRITONSERVER_InferenceRequestCancel(request_)); }

void InferCall::on_release(TRITONSERVER_InferenceRequest*, const uint32_t, void* userp) {
  delete static_cast<std::shared_ptr<InferCall>*>(userp);
}

void InferCall::on_response(TRITONSERVER_InferenceResponse* response, const uint32_t flags,
                            void* userp) {
  auto* self = static_cast<std::shared_ptr<InferCall>*>(userp);
  Reply reply;
  reply.is_final = (flags & TRITONSERVER_RESPONSE_COMPLETE_FINAL) != 0;
  if (response != nullptr) {
    reply.has_content = true;
    if (TRITONSERVER_Error* error = TRITONSERVER_InferenceResponseError(response)) {
      reply.status = take(error);
    } else {
      reply.status = copy_outputs(response, reply.outputs);
    }
    ignore(TRITONSERVER_InferenceResponseDelete(response));
  }
  const bool is_final = reply.is_final;
  (*self)->on_reply_(std::move(reply));
  if (!is_final) return;
  (*self)->on_reply_ = nullptr;
  delete self;
}

}  // namespace nereid::backend
