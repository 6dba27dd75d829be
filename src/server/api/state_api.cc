// C API for backends: implicit state of sequences.
#include "server/api/error.h"
#include "server/batching/sequence_batcher.h"
#include "server/batching/sequence_inputs.h"
#include "server/model/model.h"

using namespace nereid;          // NOLINT: this file is the C face of what is in there
using namespace nereid::server;  // NOLINT
using nereid::server::of;

TRITONSERVER_Error* TRITONBACKEND_StateNew(TRITONBACKEND_State** state,
                                           TRITONBACKEND_Request* request, const char* name,
                                           TRITONSERVER_DataType datatype, const int64_t* shape,
                                           uint32_t dims_count) try {
  InferenceRequest& r = *of(request);
  *state = nullptr;
  // Padding and warm-up requests belong to no sequence: their states are dropped after the request.
  ImplicitStates* states = r.turn != nullptr ? r.turn->lane->states.get() : r.unowned_states.get();
  if (states == nullptr) {
    return to_error(
        invalid_argument("unable to add state '{}'. State configuration is missing for model '{}'.",
                         name, r.model->config().name));
  }
  auto written = states->write(name, datatype, {shape, shape + dims_count});
  if (!written.ok()) return to_error(written.status());
  *state = reinterpret_cast<TRITONBACKEND_State*>(*written);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_StateUpdate(TRITONBACKEND_State* state) try {
  return to_error(of(state)->update());
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_StateBuffer(TRITONBACKEND_State* state, void** buffer,
                                              uint64_t buffer_byte_size,
                                              TRITONSERVER_MemoryType* memory_type,
                                              int64_t* memory_type_id) try {
  auto allocated = of(state)->allocate(buffer_byte_size);
  if (!allocated.ok()) return to_error(allocated.status());
  *buffer = *allocated;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_StateBufferAttributes(
    TRITONBACKEND_State* state, TRITONSERVER_BufferAttributes** buffer_attributes) try {
  ImplicitState& s = *of(state);
  const size_t size = s.next != nullptr ? s.next->size() : 0;
  s.attributes = {TRITONSERVER_MEMORY_CPU, 0, size, {}};
  *buffer_attributes = &s.attributes;
  return nullptr;
}
NEREID_CATCH
