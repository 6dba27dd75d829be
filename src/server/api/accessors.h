// Functions of the C API that give, set or end one thing of an object `x`.
#pragma once

#include "server/api/error.h"

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
