// The C API's error object and its translation from and to Status.
#pragma once

#include <string>

#include "base/status.h"
#include "triton/core/tritonserver.h"

struct TRITONSERVER_Error {
  TRITONSERVER_Error_Code code;
  std::string message;
};

namespace nereid::server {

// Null when OK; else a new error that the caller of the C function owns.
TRITONSERVER_Error* to_error(const Status& status);

// The error for the exception that is being handled. Throws nothing, also when memory is short.
TRITONSERVER_Error* exception_error() noexcept;

// Ends an exported function whose body is a try block: exceptions do not cross the C API.
#define NEREID_CATCH                            \
  catch (...) {                                 \
    return ::nereid::server::exception_error(); \
  }

// Ends an error's life; null is none.
void free_error(TRITONSERVER_Error* error) noexcept;

// A copy of what the error says; OK for null. Does not take ownership.
Status to_status(const TRITONSERVER_Error* error);

// The same, and deletes it: for what a function of the C API returned.
Status take(TRITONSERVER_Error* error);

// "Invalid argument" and friends.
const char* code_string(TRITONSERVER_Error_Code code);

}  // namespace nereid::server
