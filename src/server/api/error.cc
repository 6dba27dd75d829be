// Error objects of the C API.
#include "server/api/error.h"

#include <exception>
#include <new>

#include "base/error_codes.h"

namespace nereid::server {

TRITONSERVER_Error* to_error(const Status& status) {
  if (status.ok()) return nullptr;
  return new TRITONSERVER_Error{to_error_code(status.code()), std::string(message(status))};
}

TRITONSERVER_Error* out_of_bounds(const char* owner, const char* what, uint32_t index,
                                  size_t count) {
  return to_error(
      invalid_argument("out of bounds index {}, {} has {} {}", index, owner, count, what));
}

namespace {

// The error for exhausted memory; static, never deleted.
TRITONSERVER_Error no_memory{TRITONSERVER_ERROR_UNAVAILABLE, "out of memory"};

}  // namespace

TRITONSERVER_Error* exception_error() noexcept {
  const auto made = [](const char* text) -> TRITONSERVER_Error* {
    try {
      return new TRITONSERVER_Error{TRITONSERVER_ERROR_INTERNAL, text};
    } catch (const std::bad_alloc&) {
      return &no_memory;
    }
  };
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return &no_memory;
  } catch (const std::exception& e) {
    return made(e.what());
  } catch (...) {
    return made("an exception that is no std::exception");
  }
}

void free_error(TRITONSERVER_Error* error) noexcept {
  if (error != &no_memory) delete error;
}

Status to_status(const TRITONSERVER_Error* error) {
  if (error == nullptr) return ok();
  return Status(to_status_code(error->code), error->message);
}

Status take(TRITONSERVER_Error* error) {
  Status status = to_status(error);
  free_error(error);
  return status;
}

const char* code_string(TRITONSERVER_Error_Code code) {
  return enum_name({"Unknown", "Internal", "Not found", "Invalid argument", "Unavailable",
                    "Unsupported", "Already exists", "Cancelled"},
                   code, "<invalid code>");
}

}  // namespace nereid::server

using nereid::server::code_string;

TRITONSERVER_Error* TRITONSERVER_ErrorNew(TRITONSERVER_Error_Code code, const char* msg) {
  return new TRITONSERVER_Error{code, msg == nullptr ? "" : msg};
}

void TRITONSERVER_ErrorDelete(TRITONSERVER_Error* error) { nereid::server::free_error(error); }

TRITONSERVER_Error_Code TRITONSERVER_ErrorCode(TRITONSERVER_Error* error) { return error->code; }

const char* TRITONSERVER_ErrorCodeString(TRITONSERVER_Error* error) {
  return code_string(error->code);
}

const char* TRITONSERVER_ErrorMessage(TRITONSERVER_Error* error) { return error->message.c_str(); }
