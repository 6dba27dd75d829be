// Strings of a schema: characters, names, formats.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "text/grammar/json_schema_maker.h"
#include "text/grammar/regex_expr.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

constexpr std::string_view kStringKeys[] = {"minLength", "maxLength", "pattern",
                                            "format",    kUnlikeKey,  kExceptKey};
constexpr int32_t kBlockLength = 1024;

// What may follow a backslash.
constexpr std::string_view kEscaped =
    R"(["\\/bfnrt]|u([0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|)"
    R"([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))";

// The last day of a month is that of its year.
constexpr std::string_view kDate =
    R"([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|)"
    R"(([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    R"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
// Without "--", which international names give a meaning.
constexpr std::string_view kLabel = "[A-Za-z0-9](-?[A-Za-z0-9]){0,23}";
constexpr std::string_view kByte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr std::string_view kGroup = "[0-9a-fA-F]{1,4}";  // of IPv6
constexpr std::string_view kDurationTime =
    "([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S)";
constexpr std::string_view kJsonPointer = "(/([^~/]|~[01])*)*";

ExprPtr known_regex(std::string_view pattern) {
  auto expr = regex_expr(pattern);
  NEREID_CHECK(expr.ok());
  return *std::move(expr);
}

std::string ipv4() { return fmt::format("{0}(\\.{0}){{3}}", kByte); }

// Eight groups, of which the last two may be an IPv4 address; "::" stands for at least one.
std::string ipv6() {
  std::string all = fmt::format("({0}:){{7}}{0}|({0}:){{6}}{1}", kGroup, ipv4());
  for (int before = 0; before <= 7; ++before) {
    const std::string front =
        before == 0 ? "" : fmt::format("{0}(:{0}){{{1}}}", kGroup, before - 1);
    const int most = 7 - before;  // behind "::"
    all += fmt::format("|{}::", front);
    if (most > 0) all += fmt::format("({0}(:{0}){{0,{1}}})?", kGroup, most - 1);
    if (most >= 2) all += fmt::format("|{}::({}:){{0,{}}}{}", front, kGroup, most - 2, ipv4());
  }
  return all;
}

// RFC 3986: an address with its scheme, or any reference.
std::string uri(bool reference) {
  const std::string other = "[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9a-fA-F]{2}";
  const std::string step = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})";
  const std::string plain_step = "([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9a-fA-F]{2})";
  const std::string host =
      fmt::format("(\\[({})\\]|([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9a-fA-F]{{2}})*)", ipv6());
  const std::string authority =
      fmt::format("//(([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9a-fA-F]{{2}})*@)?{}(:[0-9]{{0,5}})?(/{}*)*",
                  host, step);
  const std::string rooted = fmt::format("/({0}+(/{0}*)*)?", step);
  const std::string end = fmt::format("(\\?({0})*)?(#({0})*)?", other);
  const std::string whole = fmt::format("[A-Za-z][A-Za-z0-9+.-]*:({0}|{1}|({2}+(/{2}*)*)?){3}",
                                        authority, rooted, step, end);
  if (!reference) return whole;
  return fmt::format("{0}|({1}|{2}|({3}+(/{4}*)*)?){5}", whole, authority, rooted, plain_step, step,
                     end);
}

std::map<std::string_view, std::string> format_patterns() {
  const std::string domain = fmt::format("({0}(\\.{0}){{0,4}}|[A-Za-z0-9]{{1,63}})", kLabel);
  const std::string email =
      fmt::format("[A-Za-z0-9_+-]{{1,16}}(\\.[A-Za-z0-9_+-]{{1,15}}){{0,2}}@{}", domain);
  return {
      {"date", std::string(kDate)},
      {"time", std::string(kTime)},
      {"date-time", fmt::format("({})T({})", kDate, kTime)},
      {"duration", fmt::format("P([0-9]{{1,9}}W|([0-9]{{1,9}}Y([0-9]{{1,9}}M([0-9]{{1,9}}D)?)?|"
                               "[0-9]{{1,9}}M([0-9]{{1,9}}D)?|[0-9]{{1,9}}D)(T{0})?|T{0})",
                               kDurationTime)},
      {"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {"ipv4", ipv4()},
      {"ipv6", ipv6()},
      {"hostname", domain},
      {"idn-hostname", domain},
      {"email", email},
      {"idn-email", email},
      {"uri", uri(false)},
      {"iri", uri(false)},
      {"uri-reference", uri(true)},
      {"iri-reference", uri(true)},
      {"uri-template", uri(true)},
      {"json-pointer", std::string(kJsonPointer)},
      {"relative-json-pointer", fmt::format("(0|[1-9][0-9]{{0,8}})(#|{})", kJsonPointer)},
  };
}

}  // namespace

ExprPtr JsonSchemaMaker::json_char() {
  const ExprPtr escaped = call(add_rule(known_regex(kEscaped)));
  return choice({known_regex(R"([^"\\\x00-\x1f])"), sequence({literal("\\"), escaped})});
}

StatusOr<const std::string*> json_format(std::string_view format) {
  static const std::map<std::string_view, std::string> kPatterns = format_patterns();
  const auto found = kPatterns.find(format);
  if (found != kPatterns.end()) return &found->second;
  // Other names are not of the specification, which lets them say nothing.
  if (format != "regex") return nullptr;
  std::vector<std::string_view> names;
  for (const auto& [name, pattern] : kPatterns) names.push_back(name);
  return invalid_argument("must be one of {}", fmt::join(names, ", "));
}

std::string json_quoted(std::string_view text) { return json::serialize(json::string(text)); }

StatusOr<const TextSet*> JsonSchemaMaker::pattern_set(const SchemaAt& at, std::string_view pattern,
                                                      std::string_view key) {
  const auto found = pattern_sets_.find(pattern);
  if (found != pattern_sets_.end()) return &found->second;
  const auto expr = regex_expr(pattern, {.anywhere = true});
  if (!expr.ok()) return at.error(message(expr.status()), key);
  auto set = TextSet::of(**expr, work_);
  if (!set.ok()) return at.error(message(set.status()), key);
  return &(pattern_sets_[std::string(pattern)] = *std::move(set));
}

StatusOr<const TextSet*> JsonSchemaMaker::format_set(const SchemaAt& at) {
  const json::value& name = *at.find("format");
  if (!name.is_string()) return at.error("must be a string", "format");
  const auto pattern = json_format(name.get_string());
  if (!pattern.ok()) return at.error(message(pattern.status()), "format");
  if (!*pattern) return nullptr;
  return pattern_set(at, "^(" + **pattern + ")$", "format");
}

StatusOr<TextSet> JsonSchemaMaker::keep_string(const SchemaAt& at, const TextSet& all) {
  TextSet kept = all;
  const auto keep = [&](StatusOr<TextSet> set, std::string_view key) -> Status {
    if (!set.ok()) return at.error(message(set.status()), key);
    kept = *std::move(set);
    return ok();
  };
  if (at.find("minLength") || at.find("maxLength")) {
    constexpr int32_t kMost = TextSet::kMaxStates / 2;
    ASSIGN_OR_RETURN(const int32_t least, schema_count(at, "minLength", 0));
    ASSIGN_OR_RETURN(const int32_t most, schema_count(at, "maxLength", kUnbounded));
    const std::string_view key = at.find("maxLength") ? "maxLength" : "minLength";
    if (std::max(least, most) > kMost)
      return at.error(fmt::format("more than {} beside other keywords is not supported", kMost),
                      key);
    if (most != kUnbounded && most < least) return TextSet::of_texts({});
    RETURN_IF_ERROR(keep(kept.both(TextSet::lengths(least, most), work_), key));
  }
  for (const std::string_view key : {std::string_view("pattern"), kUnlikeKey}) {
    if (!at.find(key)) continue;
    if (!at.find(key)->is_string()) return at.error("must be a string", key);
    ASSIGN_OR_RETURN(const TextSet* set, pattern_set(at, at.find(key)->get_string(), key));
    RETURN_IF_ERROR(
        keep(key == "pattern" ? kept.both(*set, work_) : kept.without(*set, work_), key));
  }
  if (at.find("format")) {
    ASSIGN_OR_RETURN(const TextSet* set, format_set(at));
    if (set) RETURN_IF_ERROR(keep(kept.both(*set, work_), "format"));
  }
  if (const json::value* except = at.find(kExceptKey); except && except->is_array()) {
    std::vector<std::string_view> texts;
    for (const json::value& value : except->get_array())
      if (value.is_string()) texts.push_back(value.get_string());
    RETURN_IF_ERROR(keep(kept.without(TextSet::of_texts(texts), work_), ""));
  }
  return kept;
}

// Strings that all parts allow.
StatusOr<TextSet> JsonSchemaMaker::string_set(const Parts& parts) {
  TextSet all = TextSet::all();
  ASSIGN_OR_RETURN(const auto listed, listed_values(parts));
  if (listed) {
    std::vector<std::string_view> texts;
    for (const json::value& value : *listed)
      if (value.is_string()) texts.push_back(value.get_string());
    return TextSet::of_texts(texts);
  }
  for (const Part& part : parts.all) {
    ASSIGN_OR_RETURN(all, keep_string(part.at, all));
  }
  return all;
}

StatusOr<TextSet> JsonSchemaMaker::names_of(const SchemaAt& at) {
  TextSet all = TextSet::of_texts({});
  ASSIGN_OR_RETURN(const std::vector<Parts> ways, alternatives({at}));
  for (const Parts& parts : ways) {
    if ((parts.types & kStringType) == 0) continue;
    ASSIGN_OR_RETURN(const TextSet some, string_set(parts));
    auto both = all.either(some, work_);
    if (!both.ok()) return at.error(message(both.status()));
    all = *std::move(both);
  }
  return all;
}

ExprPtr JsonSchemaMaker::block() {
  if (!block_) block_ = call(add_rule(repeat(char_, kBlockLength, kBlockLength)));
  return block_;
}

// Long strings are some blocks, which all share one rule, and then some characters.
ExprPtr JsonSchemaMaker::chars_of(int32_t least, int32_t most) {
  constexpr int32_t kLongest = 10'000'000;
  most = std::min(most, std::max(least, kLongest));
  if (std::max(least, most) <= 2 * kBlockLength) return repeat(char_, least, most);
  std::vector<ExprPtr> parts;
  if (const int32_t blocks = least / kBlockLength; blocks > 0)
    parts.push_back(repeat(block(), blocks, blocks));
  if (const int32_t rest = least % kBlockLength; rest > 0)
    parts.push_back(repeat(char_, rest, rest));
  int32_t more = most == kUnbounded ? kUnbounded : most - least;
  if (more >= 2 * kBlockLength) {
    // At least as many are left as a block has, so that each number of characters is there.
    const int32_t blocks = more / kBlockLength - 1;
    parts.push_back(repeat(block(), 0, blocks));
    more -= blocks * kBlockLength;
  }
  parts.push_back(repeat(char_, 0, more));
  return sequence(std::move(parts));
}

StatusOr<ExprPtr> JsonSchemaMaker::string(const Parts& parts) {
  // Strings of the same limits share a rule.
  std::vector<std::string> key;
  for (const Part& part : parts.all)
    for (const std::string_view name : kStringKeys)
      if (const json::value* value = part.at.find(name))
        key.push_back(fmt::format("{} {}", name, json::serialize(*value)));
  if (key.empty()) return call(any_string_);
  const auto found = strings_.find(key);
  if (found != strings_.end()) return found->second;
  ASSIGN_OR_RETURN(ExprPtr made, new_string(parts));
  return strings_[std::move(key)] = call(add_rule(std::move(made)));
}

// One pattern or format, or limits of the length, are written as they stand; anything else needs
// the set of all texts.
StatusOr<ExprPtr> JsonSchemaMaker::new_string(const Parts& parts) {
  const Part* only = nullptr;
  bool sized = false;
  int count = 0;
  for (const Part& part : parts.all) {
    const bool has_size = part.at.find("minLength") || part.at.find("maxLength");
    for (const std::string_view key : kStringKeys)
      if (part.at.find(key) && !(key == "minLength" && part.at.find("maxLength")))
        only = &part, ++count;
    sized |= has_size;
  }
  const auto quoted = [](ExprPtr inner) {
    return sequence({literal("\""), std::move(inner), literal("\"")});
  };
  const SchemaAt& at = only->at;
  if (count == 1 && sized) {
    ASSIGN_OR_RETURN(const int32_t least, schema_count(at, "minLength", 0));
    ASSIGN_OR_RETURN(const int32_t most, schema_count(at, "maxLength", kUnbounded));
    if (most != kUnbounded && most < least) return nothing();
    return quoted(chars_of(least, most));
  }
  const auto text = [&](std::string_view key) -> std::optional<std::string_view> {
    const json::value* value = at.find(key);
    if (count != 1 || !value || !value->is_string()) return std::nullopt;
    return value->get_string();
  };
  if (const auto pattern = text("pattern")) {
    auto inner = regex_expr(*pattern, {.anywhere = true, .json_string = true});
    if (!inner.ok()) return at.error(message(inner.status()), "pattern");
    return quoted(*std::move(inner));
  }
  if (const auto format = text("format")) {
    const auto pattern = json_format(*format);
    if (!pattern.ok()) return at.error(message(pattern.status()), "format");
    if (!*pattern) return call(any_string_);
    ASSIGN_OR_RETURN(ExprPtr inner, regex_expr(**pattern, {.json_string = true}));
    return quoted(std::move(inner));
  }
  ASSIGN_OR_RETURN(const TextSet set, string_set(parts));
  if (set.empty()) return nothing();
  return quoted(set.in_json(rules_));
}

}  // namespace nereid::text
