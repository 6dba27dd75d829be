#include "cli/flags/flag_values.h"

#include <set>
#include <string_view>
#include <variant>

#include <fmt/ranges.h>

#include "absl/strings/str_split.h"
#include "base/nearest.h"
#include "front/protection/protection.h"

namespace nereid::cli {

Status parse_value(const config::Option& option, const std::string& text) {
  const Status status = config::parse(option, text);
  if (status.ok() || std::holds_alternative<config::Action>(option.field)) return status;
  std::string_view allowed = message(status);
  if (constexpr std::string_view kExpected = "expected "; allowed.starts_with(kExpected))
    allowed.remove_prefix(kExpected.size());
  if (std::holds_alternative<bool*>(option.field))
    return invalid_argument("invalid value for bool option: {} (allowed: {})", text, allowed);
  if (*option.words)
    return invalid_argument("invalid argument for --{}: {} (allowed: {})", option.name, text,
                            allowed);
  return invalid_argument("Invalid option value. Got {} (allowed: {})", text, allowed);
}

StatusOr<std::pair<std::string, std::string>> parse_pair(const std::string& text, char separator,
                                                         const char* flag, const char* format) {
  const size_t at = text.find(separator);
  if (at == text.npos || at == 0 || at + 1 == text.size()) {
    return invalid_argument("{} option format is '{}'. Got {}", flag, format, text);
  }
  return std::pair(text.substr(0, at), text.substr(at + 1));
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
  group.apis = absl::StrSplit(text.substr(0, colon), ',');
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
