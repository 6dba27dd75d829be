// Headers forwarded as request parameters:
// --http-header-forward-pattern, --grpc-header-forward-pattern.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace nereid::front {

using HeaderFilter = std::function<bool(const std::string& name)>;

// A test whether `pattern`, in RE2's syntax, matches anywhere in a name; case is ignored unless the
// pattern has (?-i). "": null. InvalidArgument: an invalid pattern.
StatusOr<HeaderFilter> header_filter(const std::string& pattern);

}  // namespace nereid::front
