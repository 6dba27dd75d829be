// Functions of the C API that give, set or end one thing of an object `x`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/api/error.h"
#include "server/api/values.h"

namespace nereid::server {

// Gives parameter `index` of what `owner` has.
inline TRITONSERVER_Error* give_parameter(const char* owner,
                                          const std::vector<TRITONSERVER_Parameter>& parameters,
                                          uint32_t index, const char** name,
                                          TRITONSERVER_ParameterType* type, const void** value) {
  if (index >= parameters.size())
    return out_of_bounds(owner, "parameters", index, parameters.size());
  *name = parameters[index].name.c_str();
  *type = parameters[index].type();
  *value = parameters[index].pointer();
  return nullptr;
}

inline TRITONSERVER_Error* refuse_config_version(uint32_t version) {
  return to_error(unsupported("model config version {} is not supported, only 1", version));
}

}  // namespace nereid::server

// Gives `expression`.
#define NEREID_GETTER(function, Handle, Type, expression)     \
  TRITONSERVER_Error* function(Handle* x, Type* result) try { \
    *result = expression;                                     \
    return nullptr;                                           \
  }                                                           \
  NEREID_CATCH

// `statement` takes `value`.
#define NEREID_SETTER(function, Handle, Type, statement)                     \
  TRITONSERVER_Error* function([[maybe_unused]] Handle* x, Type value) try { \
    statement;                                                               \
    return nullptr;                                                          \
  }                                                                          \
  NEREID_CATCH

#define NEREID_DELETER(function, Handle, pointer) \
  TRITONSERVER_Error* function(Handle* x) {       \
    delete pointer;                               \
    return nullptr;                               \
  }

// The functions that set a parameter; `statement` takes `parameter`.
#define NEREID_PARAMETER_SETTERS(prefix, Handle, statement)                                        \
  NEREID_PARAMETER_SETTER(prefix##SetStringParameter, Handle, const char*, std::string, statement) \
  NEREID_PARAMETER_SETTER(prefix##SetIntParameter, Handle, int64_t, int64_t, statement)            \
  NEREID_PARAMETER_SETTER(prefix##SetBoolParameter, Handle, bool, bool, statement)                 \
  NEREID_PARAMETER_SETTER(prefix##SetDoubleParameter, Handle, double, double, statement)

#define NEREID_PARAMETER_SETTER(function, Handle, Type, Held, statement)      \
  TRITONSERVER_Error* function(Handle* x, const char* name, Type value) try { \
    TRITONSERVER_Parameter parameter{name, Held(value)};                      \
    statement;                                                                \
    return nullptr;                                                           \
  }                                                                           \
  NEREID_CATCH
