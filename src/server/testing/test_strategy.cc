// A batching library for tests: at most two requests in a batch, and none whose id is
// "alone" joins another.
#include <cstring>

#include "triton/core/tritonbackend.h"

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherInitialize(TRITONBACKEND_Batcher** batcher,
                                                         TRITONBACKEND_Model*) {
  *batcher = reinterpret_cast<TRITONBACKEND_Batcher*>(new int(2));
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatcherFinalize(TRITONBACKEND_Batcher* batcher) {
  delete reinterpret_cast<int*>(batcher);
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchInitialize(const TRITONBACKEND_Batcher* batcher,
                                                       void** userp) {
  *userp = new int(*reinterpret_cast<const int*>(batcher));
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchIncludeRequest(TRITONBACKEND_Request* request,
                                                           void* userp, bool* should_include) {
  int& num_left = *static_cast<int*>(userp);
  const char* id = "";
  if (auto* error = TRITONBACKEND_RequestId(request, &id)) return error;
  *should_include = num_left-- > 0 && std::strcmp(id, "alone") != 0;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelBatchFinalize(void* userp) {
  delete static_cast<int*>(userp);
  return nullptr;
}
