// Which headers become request parameters: --http-header-forward-pattern,
// --grpc-header-forward-pattern.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace nereid::front {

using HeaderFilter = std::function<bool(const std::string& name)>;

// Whether `pattern`, in RE2's syntax, is found anywhere in a name, whatever the case of its letters
// unless the pattern says (?-i). "": null. InvalidArgument: not a pattern.
StatusOr<HeaderFilter> header_filter(const std::string& pattern);

}  // namespace nereid::front
