// Failure as a value: absl::Status across folder borders, no exceptions. Messages are
// built with fmt.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nereid {

using Status = absl::Status;
template <class T>
using StatusOr = absl::StatusOr<T>;

inline Status ok() { return {}; }

// The message as a standard view (distribution builds of Abseil have a string_view of their own).
inline std::string_view message(const Status& status) {
  return {status.message().data(), status.message().size()};
}

[[nodiscard, gnu::cold]] Status make_error(absl::StatusCode code, fmt::string_view format,
                                           fmt::format_args args);

// invalid_argument("field 'n': {} is not in [1, {}]", n, max) and friends, one per code that we
// use. Cold: the compiler moves the branches that make one out of the way of those that run.
#define NEREID_DEFINE_ERROR(name, code)                                                      \
  template <class... Args>                                                                   \
  [[nodiscard, gnu::cold]] Status name(fmt::format_string<Args...> format, Args&&... args) { \
    return make_error(code, format, fmt::make_format_args(args...));                         \
  }
NEREID_DEFINE_ERROR(invalid_argument, absl::StatusCode::kInvalidArgument)  // the caller's input
NEREID_DEFINE_ERROR(not_found, absl::StatusCode::kNotFound)                // no such thing
NEREID_DEFINE_ERROR(already_exists, absl::StatusCode::kAlreadyExists)
NEREID_DEFINE_ERROR(resource_exhausted,
                    absl::StatusCode::kResourceExhausted)           // over a limit or full
NEREID_DEFINE_ERROR(unavailable, absl::StatusCode::kUnavailable)    // may work later; I/O
NEREID_DEFINE_ERROR(unsupported, absl::StatusCode::kUnimplemented)  // known, not offered
NEREID_DEFINE_ERROR(internal_error, absl::StatusCode::kInternal)    // our bug
NEREID_DEFINE_ERROR(data_loss, absl::StatusCode::kDataLoss)         // damaged file
NEREID_DEFINE_ERROR(cancelled, absl::StatusCode::kCancelled)
NEREID_DEFINE_ERROR(deadline_exceeded, absl::StatusCode::kDeadlineExceeded)
#undef NEREID_DEFINE_ERROR

// The same code with "<context>: " before the message.
Status annotate(const Status& status, std::string_view context);

}  // namespace nereid

#define NEREID_CONCAT_INNER(a, b) a##b
#define NEREID_CONCAT(a, b) NEREID_CONCAT_INNER(a, b)

// Returns the status of `expr` from the enclosing function when it is not OK.
#define RETURN_IF_ERROR(expr)                                                    \
  do {                                                                           \
    if (::absl::Status nereid_status = (expr); !nereid_status.ok()) [[unlikely]] \
      return nereid_status;                                                      \
  } while (false)

// Declares or assigns `lhs` from a StatusOr, or returns its status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  NEREID_ASSIGN_OR_RETURN_INNER(NEREID_CONCAT(nereid_or_, __LINE__), lhs, expr)
#define NEREID_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                  \
  if (!tmp.ok()) [[unlikely]]                         \
    return std::move(tmp).status();                   \
  lhs = *std::move(tmp)
