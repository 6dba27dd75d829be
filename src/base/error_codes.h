// Error codes of Triton's C API and those of Status.
#pragma once

#include <utility>

#include "base/status.h"
#include "triton/core/tritonserver.h"

namespace nereid {

inline constexpr std::pair<absl::StatusCode, TRITONSERVER_Error_Code> kErrorCodes[] = {
    {absl::StatusCode::kUnknown, TRITONSERVER_ERROR_UNKNOWN},
    {absl::StatusCode::kNotFound, TRITONSERVER_ERROR_NOT_FOUND},
    {absl::StatusCode::kInvalidArgument, TRITONSERVER_ERROR_INVALID_ARG},
    {absl::StatusCode::kUnavailable, TRITONSERVER_ERROR_UNAVAILABLE},
    {absl::StatusCode::kResourceExhausted, TRITONSERVER_ERROR_UNAVAILABLE},
    {absl::StatusCode::kUnimplemented, TRITONSERVER_ERROR_UNSUPPORTED},
    {absl::StatusCode::kAlreadyExists, TRITONSERVER_ERROR_ALREADY_EXISTS},
    {absl::StatusCode::kCancelled, TRITONSERVER_ERROR_CANCELLED}};

// Codes that are not in the table are internal errors.
inline TRITONSERVER_Error_Code to_error_code(absl::StatusCode code) {
  for (const auto& [ours, theirs] : kErrorCodes)
    if (code == ours) return theirs;
  return TRITONSERVER_ERROR_INTERNAL;
}
inline absl::StatusCode to_status_code(TRITONSERVER_Error_Code code) {
  for (const auto& [ours, theirs] : kErrorCodes)
    if (code == theirs) return ours;
  return absl::StatusCode::kInternal;
}

}  // namespace nereid
