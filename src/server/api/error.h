// The C API's error object and its translation from and to Status.
#pragma once

#include <initializer_list>
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

// The error for an index of the `count` things called `what` that `owner` has.
TRITONSERVER_Error* out_of_bounds(const char* owner, const char* what, uint32_t index,
                                  size_t count);

// The error for the exception that is being handled. Throws nothing, also when memory is short.
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

// The name of the enumerator `value`; their values are 0, 1, 2, ...
inline const char* enum_name(std::initializer_list<const char*> names, size_t value,
                             const char* otherwise) {
  return value < names.size() ? names.begin()[value] : otherwise;
}
// "Invalid argument" and friends.
const char* code_string(TRITONSERVER_Error_Code code);

}  // namespace nereid::server
