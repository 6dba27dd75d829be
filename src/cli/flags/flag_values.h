// Values of `tritonserver` flags, in the spellings that the stock server accepts.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "config/option.h"

namespace nereid::cli {

// The largest value of flags that the stock server keeps in an int.
inline constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

// config::parse() with the stock server's words for a value that is not allowed.
Status parse_value(const config::Option& option, const std::string& text);

// parse_value() to a variable of its own.
template <class T>
StatusOr<T> value_of(const std::string& text, config::Range range = {}) {
  T value{};
  RETURN_IF_ERROR(parse_value({.name = "", .field = &value, .help = "", .range = range}, text));
  return value;
}

// Splits at the first `separator`; InvalidArgument, quoting `format` of the `flag`, without a
// separator or with an empty part.
StatusOr<std::pair<std::string, std::string>> parse_pair(const std::string& text, char separator,
                                                         const char* flag, const char* format);

// "api,api:key=value": the names of existing APIs, the key and the value.
struct RestrictedGroup {
  std::vector<std::string> apis;
  std::string key, value;
};
StatusOr<RestrictedGroup> parse_restricted(const std::string& text, const char* what);

}  // namespace nereid::cli
