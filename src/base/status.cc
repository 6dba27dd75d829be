// Construction of errors, out of line, so that a caller has one call in its cold part.
#include "base/status.h"

namespace nereid {

Status make_error(absl::StatusCode code, fmt::string_view format, fmt::format_args args) {
  return Status(code, fmt::vformat(format, args));
}

Status annotate(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  return Status(status.code(), fmt::format("{}: {}", context, message(status)));
}

}  // namespace nereid
