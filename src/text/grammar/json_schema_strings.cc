// Strings of a schema: characters, names, formats.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "text/grammar/json_schema_maker.h"
#include "text/grammar/regex_expr.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

constexpr std::string_view kChar =
    R"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u([0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|)"
    R"([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})))";

// The last day of a month is that of its year.
constexpr std::string_view kDate =
    R"([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|)"
    R"(([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    R"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
constexpr std::string_view kLabel = R"([A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)";
constexpr std::string_view kByte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

ExprPtr known_regex(std::string_view pattern) {
  auto expr = regex_expr(pattern);
  NEREID_CHECK(expr.ok());
  return *std::move(expr);
}

CharSet plain_chars() {
  CharSet set(0x20, 0x10FFFF);
  CharSet hidden('"', '"');
  hidden.add('\\', '\\');
  return set.without(hidden);
}

// What may follow the same characters of some names: anything that makes none of the `names`
// (what is left of them), and the quote.
ExprPtr name_rest(const std::vector<std::u32string_view>& names) {
  std::map<char32_t, std::vector<std::u32string_view>> next;
  bool is_name = false;
  for (const std::u32string_view name : names) {
    is_name |= name.empty();
    if (!name.empty()) next[name[0]].push_back(name.substr(1));
  }
  CharSet others = plain_chars();
  std::vector<ExprPtr> ways;
  for (const auto& [c, rests] : next) {
    others = others.without({c, c});
    ways.push_back(sequence({one_of({c, c}), name_rest(rests)}));
  }
  ways.push_back(
      sequence({one_of(others), repeat(one_of(plain_chars()), 0, kUnbounded), literal("\"")}));
  if (!is_name) ways.push_back(literal("\""));
  return choice(std::move(ways));
}

}  // namespace

ExprPtr json_char() { return known_regex(kChar); }

StatusOr<ExprPtr> json_string_except(const std::vector<std::string>& names) {
  constexpr size_t kMaxName = 256;
  std::vector<std::u32string> texts;
  for (const std::string& name : names) {
    std::u32string text;
    for (size_t at = 0; at < name.size();) {
      const Utf8Step step = utf8_step(std::string_view(name).substr(at));
      text += step.code;
      at += step.length;
    }
    if (text.size() > kMaxName)
      return invalid_argument("names of more than {} characters beside others are not supported",
                              kMaxName);
    // Others need an escape.
    const CharSet plain = plain_chars();
    if (std::ranges::all_of(text, [&](char32_t c) { return plain.contains(c); }))
      texts.push_back(std::move(text));
  }
  const std::vector<std::u32string_view> views(texts.begin(), texts.end());
  return sequence({literal("\""), name_rest(views)});
}

StatusOr<ExprPtr> json_format(std::string_view format) {
  const std::string domain = fmt::format("{0}(\\.{0}){{0,4}}", kLabel);
  const std::map<std::string_view, std::string> kPatterns = {
      {"date", std::string(kDate)},
      {"time", std::string(kTime)},
      {"date-time", fmt::format("({})T({})", kDate, kTime)},
      {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {"ipv4", fmt::format("{0}(\\.{0}){{3}}", kByte)},
      {"hostname", domain},
      {"email", fmt::format("[A-Za-z0-9_+-]{{1,32}}(\\.[A-Za-z0-9_+-]{{1,16}}){{0,2}}@{}", domain)},
  };
  const auto found = kPatterns.find(format);
  if (found != kPatterns.end())
    return sequence({literal("\""), known_regex(found->second), literal("\"")});
  std::vector<std::string_view> names;
  for (const auto& [name, pattern] : kPatterns) names.push_back(name);
  return invalid_argument("must be one of {}", fmt::join(names, ", "));
}

std::string json_quoted(std::string_view text) { return json::serialize(json::string(text)); }

}  // namespace nereid::text
