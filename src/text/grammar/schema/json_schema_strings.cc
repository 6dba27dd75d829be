// Strings of a schema: characters, names, formats.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "text/grammar/regex_expr.h"
#include "text/grammar/schema/json_schema_maker.h"

namespace nereid::text {
namespace {

constexpr std::string_view kStringKeys[] = {"minLength", "maxLength", "pattern",
                                            "format",    kUnlikeKey,  kExceptKey};
constexpr int32_t kBlockLength = 1024;

// Escapes: the text behind a backslash.
constexpr std::string_view kEscaped =
    R"(["\\/bfnrt]|u([0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|)"
    R"([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))";

// Days are valid for the month and year; year 0 is excluded.
constexpr std::string_view kDate =
    R"((000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|)"
    R"(([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)";
constexpr std::string_view kTime =
    R"(([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))";
// No "--", which has a meaning in international names.
constexpr std::string_view kLabel = "[A-Za-z0-9](-?[A-Za-z0-9]){0,23}";
constexpr std::string_view kByte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr std::string_view kGroup = "[0-9a-fA-F]{1,4}";  // a group of an IPv6 address
constexpr std::string_view kDurationTime =
    "([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S)";
constexpr std::string_view kJsonPointer = "(/([^~/]|~[01])*)*";

// The first position of `mark` outside of groups and classes; pattern.size(): none.
size_t find_outside(std::string_view pattern, char mark) {
  int depth = 0;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      ++i;
    } else if (in_class) {
      in_class = c != ']';
    } else {
      if (depth == 0 && c == mark) return i;
      in_class = c == '[';
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
  }
  return pattern.size();
}

ExprPtr known_regex(std::string_view pattern) {
  auto expr = regex_expr(pattern);
  NEREID_CHECK(expr.ok());
  return *std::move(expr);
}

std::string ipv4() { return fmt::format("{0}(\\.{0}){{3}}", kByte); }

// Eight groups, the last two possibly an IPv4 address; "::" is at least one group.
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

// Expressions valid in ECMA-262 with and without its flag "u", and in Python: characters, classes,
// one level of groups.
std::string regex_text() {
  const std::string one = R"(([A-Za-z0-9 _,:;=@#%&'"<>/~!.-]|\\[dDwWsS.\\/*+?()\[\]{}|^$]|)"
                          R"(\[\^?([A-Za-z0-9_. ]|a-z|A-Z|0-9)+\])[*+?]?)";
  return fmt::format(R"(\^?({0}|\((\?:)?({0})*(\|({0})*)*\)[*+?]?)*\$?)", one);
}

std::map<std::string_view, JsonFormat> formats() {
  const std::string domain = fmt::format("({0}(\\.{0}){{0,4}}|[A-Za-z0-9]{{1,63}})", kLabel);
  const std::string email =
      fmt::format("[A-Za-z0-9_+-]{{1,16}}(\\.[A-Za-z0-9_+-]{{1,15}}){{0,2}}@{}", domain);
  const std::string any = "[\\s\\S]*", scheme = "\\s*[A-Za-z][^:]*:[\\s\\S]*";
  return {
      {"date", {std::string(kDate), "[^:@A-VX-Za-z]*"}},
      {"time", {std::string(kTime), "\\s*[0-9]{1,2}:[\\s\\S]*"}},
      {"date-time", {fmt::format("({})T({})", kDate, kTime), "[^@/]*[tT ][^@/]*"}},
      {"duration",
       {fmt::format("P([0-9]{{1,9}}W|([0-9]{{1,9}}Y([0-9]{{1,9}}M([0-9]{{1,9}}D)?)?|"
                    "[0-9]{{1,9}}M([0-9]{{1,9}}D)?|[0-9]{{1,9}}D)(T{0})?|T{0})",
                    kDurationTime),
        "[-+]?[pP][^:@/]*"}},
      {"uuid",
       {"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
        "[\\s\\S]*[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}[\\s\\S]*"}},
      {"ipv4", {ipv4(), "\\s*[0-9][0-9a-fA-FxX.\\s]*"}},
      {"ipv6", {ipv6(), "[^@]*:[^@]*"}},
      {"hostname", {domain, "[^@:/]*"}},
      {"idn-hostname", {domain, "[^@:/]*"}},
      {"email", {email, "[\\s\\S]*@[\\s\\S]*"}},
      {"idn-email", {email, "[\\s\\S]*@[\\s\\S]*"}},
      {"uri", {uri(false), scheme}},
      {"iri", {uri(false), scheme}},
      {"uri-reference", {uri(true), any}},
      {"iri-reference", {uri(true), any}},
      {"uri-template", {uri(true), any}},
      {"json-pointer", {std::string(kJsonPointer), "(/[\\s\\S]*)?"}},
      {"relative-json-pointer", {"(0|[1-9][0-9]{0,8})(#|(/([^~/]|~[01])*)+)", "[+-]?\\d[\\s\\S]*"}},
      {"regex", {regex_text(), any}},
  };
}

}  // namespace

ExprPtr JsonSchemaMaker::json_char() {
  const ExprPtr escaped = call(add_rule(known_regex(kEscaped)));
  return choice({known_regex(R"([^"\\\x00-\x1f])"), sequence({literal("\\"), escaped})});
}

const JsonFormat* json_format(std::string_view format) {
  static const std::map<std::string_view, JsonFormat> kFormats = formats();
  const auto found = kFormats.find(format);
  return found == kFormats.end() ? nullptr : &found->second;
}

std::string json_quoted(std::string_view text) { return json::serialize(json::string(text)); }

// Texts in which the pattern is found. Lookahead is supported at the start of the pattern.
StatusOr<TextSet> JsonSchemaMaker::matched(std::string_view pattern, int depth) {
  constexpr int kMaxDepth = 16;
  const bool is_not = pattern.starts_with("^(?!");
  if ((is_not || pattern.starts_with("^(?=")) && depth < kMaxDepth) {
    const std::string_view behind = pattern.substr(4);
    const size_t end = find_outside(behind, ')');
    const std::string_view rest = behind.substr(std::min(end + 1, behind.size()));
    if (end < behind.size() && find_outside(rest, '|') == rest.size()) {
      ASSIGN_OR_RETURN(const TextSet all, matched(fmt::format("^{}", rest), depth + 1));
      const std::string ahead = fmt::format("^(?:{})", behind.substr(0, end));
      ASSIGN_OR_RETURN(const TextSet some, matched(ahead, depth + 1));
      return is_not ? all.without(some, work_) : all.both(some, work_);
    }
  }
  ASSIGN_OR_RETURN(const ExprPtr expr, regex_expr(pattern, {.anywhere = true, .assertions = true}));
  return TextSet::of(*expr, work_);
}

StatusOr<const TextSet*> JsonSchemaMaker::pattern_set(const SchemaAt& at, std::string_view pattern,
                                                      std::string_view key) {
  const auto found = pattern_sets_.find(pattern);
  if (found != pattern_sets_.end()) return &found->second;
  auto set = matched(pattern, 0);
  if (!set.ok()) return at.error(message(set.status()), key);
  return &(pattern_sets_[std::string(pattern)] = *std::move(set));
}

StatusOr<const TextSet*> JsonSchemaMaker::format_set(const SchemaAt& at) {
  const json::value& name = *at.find("format");
  if (!name.is_string()) return at.error("must be a string", "format");
  const JsonFormat* format = json_format(name.get_string());
  if (!format) return nullptr;
  return pattern_set(at, "^(" + format->texts + ")$", "format");
}

StatusOr<TextSet> JsonSchemaMaker::keep_texts(const SchemaAt& at, TextSet all) {
  TextSet kept = std::move(all);
  const auto keep = [&](StatusOr<TextSet> set, std::string_view key) -> Status {
    if (!set.ok()) return at.error(message(set.status()), key);
    kept = *std::move(set);
    return ok();
  };
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

// The texts of lengths that all parts allow; if these need too many states, longer
// ones are left out.
StatusOr<TextSet> JsonSchemaMaker::keep_lengths(const Parts& parts, const TextSet& all) {
  constexpr int32_t kMost = TextSet::kMaxStates / 2;
  constexpr int64_t kFewStates = 4000;
  int32_t least = 0, most = kUnbounded;
  const SchemaAt* of = nullptr;
  std::string_view key = "minLength";
  for (const Part& part : parts.all) {
    ASSIGN_OR_RETURN(const int32_t low, schema_count(part.at, "minLength", 0));
    ASSIGN_OR_RETURN(const int32_t high, schema_count(part.at, "maxLength", kUnbounded));
    if (low > least || (high != kUnbounded && most == kUnbounded)) of = &part.at;
    least = std::max(least, low);
    if (high == kUnbounded) continue;
    most = most == kUnbounded ? high : std::min(most, high);
    key = "maxLength";
  }
  if (all.empty() || !of) return all;
  if (most != kUnbounded && most < least) return TextSet::of_texts({});
  const auto [shortest, longest] = all.text_lengths();
  if (longest != kUnbounded && longest < least) return TextSet::of_texts({});
  if (most != kUnbounded && shortest > most) return TextSet::of_texts({});
  if (longest != kUnbounded && most != kUnbounded && longest <= most) most = kUnbounded;
  if (least <= shortest) least = 0;
  if (least == 0 && most == kUnbounded) return all;
  if (least > kMost)
    return of->error(fmt::format("more than {} beside other keywords is not supported", kMost),
                     "minLength");
  if (most != kUnbounded) {
    const int32_t lowest = std::max(least, shortest);
    most = std::min(most, std::max(lowest, kMost));
    if (all.num_states_within(most) > static_cast<int64_t>(TextSet::kMaxStates))
      for (const int32_t shorter : {1024, 256, 64, 16}) {
        if (lowest + shorter < most) most = lowest + shorter;
        if (all.num_states_within(most) <= kFewStates) break;
      }
  }
  auto kept = all.both(TextSet::lengths(least, most), work_);
  if (!kept.ok()) return of->error(message(kept.status()), key);
  return kept;
}

StatusOr<TextSet> JsonSchemaMaker::string_set(const Parts& parts) {
  ASSIGN_OR_RETURN(const auto listed, listed_values(parts));
  if (listed) {
    std::vector<std::string_view> texts;
    for (const json::value& value : *listed)
      if (value.is_string()) texts.push_back(value.get_string());
    return TextSet::of_texts(texts);
  }
  TextSet all = TextSet::all();
  for (const Part& part : parts.all) {
    ASSIGN_OR_RETURN(all, keep_texts(part.at, std::move(all)));
  }
  return keep_lengths(parts, all);
}

StatusOr<const TextSet*> JsonSchemaMaker::names_of(const SchemaAt& at) {
  if (const auto found = name_sets_.find(at.value); found != name_sets_.end())
    return &found->second;
  TextSet all = TextSet::of_texts({});
  ASSIGN_OR_RETURN(const std::vector<Parts> ways, alternatives({at}));
  for (const Parts& parts : ways) {
    if ((parts.types & kStringType) == 0) continue;
    ASSIGN_OR_RETURN(const TextSet some, string_set(parts));
    auto both = all.either(some, work_);
    if (!both.ok()) return at.error(message(both.status()));
    all = *std::move(both);
  }
  return &(name_sets_[at.value] = std::move(all));
}

ExprPtr JsonSchemaMaker::block() {
  if (!block_) block_ = call(add_rule(repeat(char_, kBlockLength, kBlockLength)));
  return block_;
}

// Long strings are a number of blocks, which share one rule, and then single characters.
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
    // At least a block's number of characters remains, so that every total is possible.
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

// A single pattern or format, or limits of the length, become an expression directly; other
// combinations need a TextSet.
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
    if (inner.ok()) return quoted(*std::move(inner));
  }
  if (const auto name = text("format")) {
    const JsonFormat* format = json_format(*name);
    if (!format) return call(any_string_);
    ASSIGN_OR_RETURN(ExprPtr inner, regex_expr(format->texts, {.json_string = true}));
    return quoted(std::move(inner));
  }
  ASSIGN_OR_RETURN(const TextSet set, string_set(parts));
  if (set.empty()) return nothing();
  ASSIGN_OR_RETURN(ExprPtr inner, written(set, parts.all[0].at));
  return quoted(std::move(inner));
}

}  // namespace nereid::text
