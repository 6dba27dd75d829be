#include "front/http/header_filter.h"

#include <re2/re2.h>

#include <memory>

namespace nereid::front {

StatusOr<HeaderFilter> header_filter(const std::string& pattern) {
  if (pattern.empty()) return HeaderFilter();
  const auto regex = std::make_shared<const re2::RE2>("(?i)" + pattern, re2::RE2::Quiet);
  if (!regex->ok())
    return invalid_argument("header forward pattern '{}': {}", pattern, regex->error());
  return [regex](const std::string& name) { return re2::RE2::PartialMatch(name, *regex); };
}

}  // namespace nereid::front
