#include "cli/flags/flag_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "base/nearest.h"
#include "front/protection/protection.h"

namespace nereid::cli {

StatusOr<bool> parse_bool(const std::string& text) {
  std::string lower = text;
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (lower == "true" || lower == "on" || lower == "1") return true;
  if (lower == "false" || lower == "off" || lower == "0") return false;
  return invalid_argument("invalid value for bool option: {} (allowed: true, false, on, off, 1, 0)",
                          text);
}

StatusOr<int64_t> parse_integer(const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < low || value > high) {
    return invalid_argument("Invalid option value. Got {} (allowed: integers from {} to {})", text,
                            low, high);
  }
  return value;
}

StatusOr<double> parse_number(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) {
    return invalid_argument("Invalid option value. Got {} (allowed: a number)", text);
  }
  return value;
}

StatusOr<std::pair<std::string, std::string>> parse_pair(const std::string& text, char separator,
                                                         const char* flag, const char* format) {
  const size_t at = text.find(separator);
  if (at == text.npos || at == 0 || at + 1 == text.size()) {
    return invalid_argument("{} option format is '{}'. Got {}", flag, format, text);
  }
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

std::vector<std::string> split_list(const std::string& text, char separator) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

StatusOr<RestrictedGroup> parse_restricted(const std::string& text, const char* what) {
  static const std::set<std::string> kApis(front::kApiNames.begin(), front::kApiNames.end());
  const size_t colon = text.find(':');
  const size_t equals = colon == text.npos ? colon : text.find('=', colon);
  if (equals == text.npos || colon == 0 || equals == colon + 1 || equals + 1 == text.size()) {
    return invalid_argument("option format is <{}>,<{}>,..:<key>=<value>. Got {}", what, what,
                            text);
  }
  RestrictedGroup group;
  group.apis = split_list(text.substr(0, colon), ',');
  group.key = text.substr(colon + 1, equals - colon - 1);
  group.value = text.substr(equals + 1);
  for (const auto& api : group.apis) {
    if (kApis.contains(api)) continue;
    return invalid_argument("unknown restricted {} '{}' (allowed: {}).{}", what, api,
                            fmt::join(kApis, ", "), did_you_mean(api, kApis));
  }
  return group;
}

}  // namespace nereid::cli
