// Values of `tritonserver` flags, in the spellings that the stock server accepts.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace nereid::cli {

// true, on, 1 / false, off, 0; case ignored.
StatusOr<bool> parse_bool(const std::string& text);

// The largest value of flags that the stock server keeps in an int.
inline constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

// The whole text as a decimal integer within [low, high].
StatusOr<int64_t> parse_integer(const std::string& text, int64_t low, int64_t high);

StatusOr<double> parse_number(const std::string& text);

// Splits at the first `separator`; InvalidArgument, quoting `format` of the `flag`, without a
// separator or with an empty part.
StatusOr<std::pair<std::string, std::string>> parse_pair(const std::string& text, char separator,
                                                         const char* flag, const char* format);

std::vector<std::string> split_list(const std::string& text, char separator);

// "api,api:key=value": the names of existing APIs, the key and the value.
struct RestrictedGroup {
  std::vector<std::string> apis;
  std::string key, value;
};
StatusOr<RestrictedGroup> parse_restricted(const std::string& text, const char* what);

}  // namespace nereid::cli
