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

TRITONSERVER_Error_Code to_code(absl::StatusCode code);

// Null when OK; else a new error that the caller of the C function owns.
TRITONSERVER_Error* to_error(const Status& status);

// The error for the exception being handled. Does not throw, even without memory.
TRITONSERVER_Error* exception_error() noexcept;

// Ends an exported function whose body is a try block: exceptions do not cross the C API.
#define NEREID_CATCH                            \
  catch (...) {                                 \
    return ::nereid::server::exception_error(); \
  }

// Deletes an error; null is allowed.
void free_error(TRITONSERVER_Error* error) noexcept;

// The error's code and message; OK for null. Does not take ownership.
Status to_status(const TRITONSERVER_Error* error);

// to_status(), and deletes the error that a C API function returned.
Status take(TRITONSERVER_Error* error);

// The code as text, such as "Invalid argument".
const char* code_string(TRITONSERVER_Error_Code code);

}  // namespace nereid::server
