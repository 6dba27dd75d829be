// The entry points of a backend whose model is one C++ object and whose instances have no state.
#pragma once

#include <memory>

#include "backend/common/triton.h"
#include "nereid/backend.h"

// Defines TRITONBACKEND_Initialize, GetBackendAttribute, ModelInitialize, ModelFinalize and
// ModelInstanceExecute, and NEREID_RequestIsQuick, for a class Model with
//   static constexpr uint64_t kQuickBytes;
//       for inputs of at most this size execute() takes up to 0.1 ms
//   static StatusOr<std::unique_ptr<Model>> create(TRITONBACKEND_Model*);
//   void execute(std::unique_ptr<nereid::backend::Request>);
//       takes the request over; any thread
#define NEREID_DEFINE_BACKEND(Model)                                                              \
  TRITONSERVER_Error* TRITONBACKEND_Initialize(TRITONBACKEND_Backend*) {                          \
    uint32_t major = 0, minor = 0;                                                                \
    if (auto* error = TRITONBACKEND_ApiVersion(&major, &minor)) return error;                     \
    if (major == TRITONBACKEND_API_VERSION_MAJOR && minor >= TRITONBACKEND_API_VERSION_MINOR)     \
      return nullptr;                                                                             \
    return ::nereid::backend::give(                                                               \
        ::nereid::unsupported("backend API {}.{} is older than {}.{}", major, minor,              \
                              TRITONBACKEND_API_VERSION_MAJOR, TRITONBACKEND_API_VERSION_MINOR)); \
  }                                                                                               \
  /* Tensors are in host memory whatever the model computes on. */                                \
  TRITONSERVER_Error* TRITONBACKEND_GetBackendAttribute(                                          \
      TRITONBACKEND_Backend*, TRITONBACKEND_BackendAttribute* attribute) {                        \
    return TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(                               \
        attribute, TRITONSERVER_INSTANCEGROUPKIND_CPU, 0, nullptr, 0);                            \
  }                                                                                               \
  TRITONSERVER_Error* TRITONBACKEND_ModelInitialize(TRITONBACKEND_Model* model) {                 \
    return ::nereid::backend::give(::nereid::backend::guarded([&]() -> ::nereid::Status {         \
      ASSIGN_OR_RETURN(auto made, Model::create(model));                                          \
      return ::nereid::backend::take(TRITONBACKEND_ModelSetState(model, made.release()));         \
    }));                                                                                          \
  }                                                                                               \
  TRITONSERVER_Error* TRITONBACKEND_ModelFinalize(TRITONBACKEND_Model* model) {                   \
    void* state = nullptr;                                                                        \
    if (auto* error = TRITONBACKEND_ModelState(model, &state)) return error;                      \
    delete static_cast<Model*>(state);                                                            \
    return nullptr;                                                                               \
  }                                                                                               \
  TRITONSERVER_Error* TRITONBACKEND_ModelInstanceExecute(TRITONBACKEND_ModelInstance* instance,   \
                                                         TRITONBACKEND_Request** requests,        \
                                                         uint32_t request_count) {                \
    TRITONBACKEND_Model* model = nullptr;                                                         \
    void* state = nullptr;                                                                        \
    if (auto* error = TRITONBACKEND_ModelInstanceModel(instance, &model)) return error;           \
    if (auto* error = TRITONBACKEND_ModelState(model, &state)) return error;                      \
    for (uint32_t i = 0; i < request_count; ++i)                                                  \
      static_cast<Model*>(state)->execute(                                                        \
          std::make_unique<::nereid::backend::Request>(instance, requests[i]));                   \
    return nullptr;                                                                               \
  }                                                                                               \
  bool NEREID_RequestIsQuick(TRITONBACKEND_Request* request) {                                    \
    return ::nereid::backend::has_small_inputs(request, Model::kQuickBytes);                      \
  }
