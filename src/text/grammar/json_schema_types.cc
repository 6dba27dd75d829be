// Strings, numbers, arrays and objects of a schema.
#include <algorithm>
#include <cmath>
#include <limits>

#include "text/grammar/json_multiples.h"
#include "text/grammar/json_schema_maker.h"
#include "text/grammar/regex_expr.h"
#include "text/unicode/utf8.h"

namespace nereid::text {
namespace {

constexpr int32_t kMaxCount = std::numeric_limits<int32_t>::max();

std::string pattern_of(const json::string& text) { return {text.data(), text.size()}; }

}  // namespace

StatusOr<int32_t> JsonSchemaMaker::count(const SchemaAt& at, std::string_view key,
                                         int32_t fallback) const {
  const json::value* value = at.find(key);
  if (!value) return fallback;
  const bool whole = value->is_int64() || value->is_uint64();
  if (!whole || (value->is_int64() && value->get_int64() < 0))
    return at.error("must be an integer that is not negative", key);
  const uint64_t number = value->to_number<uint64_t>();
  return static_cast<int32_t>(std::min<uint64_t>(number, kMaxCount));
}

StatusOr<ExprPtr> JsonSchemaMaker::string(const SchemaAt& at) {
  const bool sized = at.find("minLength") || at.find("maxLength");
  const json::value *pattern = at.find("pattern"), *format = at.find("format");
  if (sized + (pattern != nullptr) + (format != nullptr) > 1)
    return at.error("'pattern', 'format' and limits of the length together are not supported",
                    pattern ? "pattern" : "format");
  if (pattern) {
    if (!pattern->is_string()) return at.error("must be a string", "pattern");
    auto inner =
        regex_expr(pattern_of(pattern->get_string()), {.anywhere = true, .json_string = true});
    if (!inner.ok()) return at.error(message(inner.status()), "pattern");
    return sequence({literal("\""), *std::move(inner), literal("\"")});
  }
  if (format) {
    if (!format->is_string()) return at.error("must be a string", "format");
    auto inner = json_format(format->get_string());
    if (!inner.ok()) return at.error(message(inner.status()), "format");
    return *std::move(inner);
  }
  if (!sized) return call(any_string_);
  ASSIGN_OR_RETURN(const int32_t least, count(at, "minLength", 0));
  ASSIGN_OR_RETURN(const int32_t most, count(at, "maxLength", kUnbounded));
  if (most != kUnbounded && most < least) return at.error("is below minLength", "maxLength");
  return sequence({literal("\""), repeat(json_char(), least, most), literal("\"")});
}

StatusOr<JsonBounds> JsonSchemaMaker::bounds(const SchemaAt& at, bool integer) const {
  constexpr double kMost = 9007199254740992;  // 2^53
  JsonBounds b;
  const auto read = [&](std::string_view key, bool low, bool exclusive) -> Status {
    const json::value* value = at.find(key);
    if (!value) return ok();
    if (!value->is_number()) return at.error("must be a number", key);
    double bound = value->to_number<double>();
    if (!(std::abs(bound) <= kMost)) return at.error("must be within 2^53 of zero", key);
    if (integer && bound != std::floor(bound)) {
      bound = low ? std::ceil(bound) : std::floor(bound);
      exclusive = false;
    }
    if (bound != std::floor(bound))
      return at.error("bounds of numbers that are no integers are not supported", key);
    const auto whole = static_cast<int64_t>(bound);
    std::optional<int64_t>& own = low ? b.least : b.most;
    bool& own_exclusive = low ? b.above_least : b.below_most;
    if (own && *own == whole) own_exclusive |= exclusive;
    if (own && (low ? *own >= whole : *own <= whole)) return ok();
    own = whole, own_exclusive = exclusive;
    return ok();
  };
  RETURN_IF_ERROR(read("minimum", true, false));
  RETURN_IF_ERROR(read("exclusiveMinimum", true, true));
  RETURN_IF_ERROR(read("maximum", false, false));
  RETURN_IF_ERROR(read("exclusiveMaximum", false, true));
  return b;
}

StatusOr<ExprPtr> JsonSchemaMaker::multiples(const SchemaAt& at) {
  const json::value& divisor = *at.find("multipleOf");
  const double number = divisor.is_number() ? divisor.to_number<double>() : 0;
  if (!(number > 0)) return at.error("must be a number above 0", "multipleOf");
  if (number != std::floor(number) || number > kMaxJsonDivisor)
    return at.error(fmt::format("only integers up to {} are supported", kMaxJsonDivisor),
                    "multipleOf");
  ASSIGN_OR_RETURN(const JsonBounds b, bounds(at, /*integer=*/true));
  auto numbers = json_multiples(b, static_cast<int64_t>(number), rules_);
  if (!numbers.ok()) return at.error(message(numbers.status()), "multipleOf");
  if (!*numbers) return at.error("no multiple is within the bounds", "multipleOf");
  return *std::move(numbers);
}

StatusOr<ExprPtr> JsonSchemaMaker::number(const SchemaAt& at, bool integer) {
  if (at.find("multipleOf")) return multiples(at);
  ASSIGN_OR_RETURN(const JsonBounds b, bounds(at, integer));
  if (!b.least && !b.most) return call(integer ? any_integer_ : any_number_);
  ExprPtr numbers = integer ? json_integer(b) : json_number(b);
  if (!numbers) return at.error("no number is within its bounds");
  return numbers;
}

// "prefixItems" have rules of their own, each of which goes on with the next one.
StatusOr<ExprPtr> JsonSchemaMaker::array(const SchemaAt& at) {
  ASSIGN_OR_RETURN(const int32_t least, count(at, "minItems", 0));
  ASSIGN_OR_RETURN(int32_t most, count(at, "maxItems", kUnbounded));
  const json::value *items = at.find("items"), *prefix = at.find("prefixItems");
  if (!items && !prefix && least == 0 && most == kUnbounded) return call(any_array_);
  if (prefix && !prefix->is_array()) return at.error("must be an array", "prefixItems");
  size_t num_prefix = prefix ? prefix->get_array().size() : 0;
  if (items && *items == json::value(false)) {
    const auto cap = static_cast<int32_t>(num_prefix);
    most = most == kUnbounded ? cap : std::min(most, cap);
    items = nullptr;
  }
  if (most != kUnbounded && most < least) return at.error("allows no array", "minItems");
  if (most != kUnbounded) num_prefix = std::min(num_prefix, static_cast<size_t>(most));
  const auto fixed = static_cast<int32_t>(num_prefix);
  // What follows the prefix.
  ExprPtr tail = literal("");
  const int32_t rest_least = std::max(0, least - fixed);
  const int32_t rest_most = most == kUnbounded ? kUnbounded : most - fixed;
  if (rest_most != 0) {
    ExprPtr item = any_;
    if (items) {
      ASSIGN_OR_RETURN(item, schema(at["items"]));
    }
    const ExprPtr more = sequence({comma_, item});
    if (fixed > 0) {
      tail = repeat(more, rest_least, rest_most);
    } else {
      tail = sequence({item, repeat(more, std::max(0, rest_least - 1),
                                    rest_most == kUnbounded ? kUnbounded : rest_most - 1)});
    }
  }
  for (int32_t i = fixed; i-- > 0;) {
    ASSIGN_OR_RETURN(ExprPtr item, schema(at["prefixItems"][static_cast<size_t>(i)]));
    ExprPtr here =
        i > 0 ? sequence({comma_, std::move(item), tail}) : sequence({std::move(item), tail});
    if (i > 0 && i >= least) here = optional(std::move(here));
    tail = call(add_rule(std::move(here)));
  }
  tail = sequence({tail, blanks_});
  if (most == 0) tail = literal("");
  if (least == 0) tail = optional(std::move(tail));
  return sequence({literal("["), blanks_, std::move(tail), literal("]")});
}

StatusOr<JsonSchemaMaker::Size> JsonSchemaMaker::size_of(const SchemaAt& at,
                                                         size_t num_members) const {
  constexpr int64_t kMostPlaces = 10'000;
  Size size;
  ASSIGN_OR_RETURN(size.least, count(at, "minProperties", 0));
  ASSIGN_OR_RETURN(size.most, count(at, "maxProperties", kUnbounded));
  if (size.most != kUnbounded && size.most < size.least)
    return at.error("is below minProperties", "maxProperties");
  const auto members = static_cast<int64_t>(num_members);
  const int64_t counted = std::min<int64_t>(members, std::max(size.least, size.most));
  if (counted > 1 && members * counted > kMostPlaces)
    return at.error("limits of the number of members are not supported beside so many properties",
                    at.find("minProperties") ? "minProperties" : "maxProperties");
  return size;
}

// Of members that no property names, one counts for "minProperties", since names may be repeated.
ExprPtr JsonSchemaMaker::others(const ExprPtr& other, int32_t before, Size size) {
  if (size.most != kUnbounded && before > size.most) return nullptr;
  const int32_t need = std::max(0, size.least - before);
  const int32_t room = size.most == kUnbounded ? kUnbounded : size.most - before;
  if (need > 1 || (need == 1 && (!other || room == 0))) return nullptr;
  if (!other || room == 0) return before > 0 ? blanks_ : literal("");
  const ExprPtr another = sequence({comma_, other});
  if (before > 0) return sequence({call(add_rule(repeat(another, need, room))), blanks_});
  ExprPtr more = repeat(another, 0, room == kUnbounded ? kUnbounded : room - 1);
  ExprPtr some = sequence({other, call(add_rule(std::move(more))), blanks_});
  return need > 0 ? some : optional(std::move(some));
}

// Chains of rules, from the last property to the first: what may come behind as many members as the
// place in `ways` says, the last place for more as well. Each way ends with the blanks before the
// brace, so that they are not there twice. Null: no object is within the limits.
ExprPtr JsonSchemaMaker::members_of(const std::vector<Member>& members, const ExprPtr& other,
                                    Size size) {
  const auto num_members = static_cast<int32_t>(members.size());
  const int32_t last = std::max(1, std::min(num_members, std::max(size.least, size.most)));
  std::vector<ExprPtr> ways;
  for (int32_t before = 0; before <= last; ++before) ways.push_back(others(other, before, size));
  for (int32_t i = num_members; i-- > 0;) {
    const Member& member = members[static_cast<size_t>(i)];
    if (!member.value) continue;
    const ExprPtr one = sequence({literal(json_quoted(member.name)), colon_, member.value});
    std::vector<ExprPtr> here(ways.size());
    for (int32_t before = 0; before <= std::min(i, last); ++before) {
      const ExprPtr& without = ways[static_cast<size_t>(before)];
      const ExprPtr& behind = ways[static_cast<size_t>(std::min(before + 1, last))];
      const bool room = size.most == kUnbounded || before < size.most;
      std::vector<ExprPtr> both;
      if (room && behind)
        both.push_back(before > 0 ? sequence({comma_, one, behind}) : sequence({one, behind}));
      if (without && !member.required) both.push_back(without);
      if (!both.empty())
        here[static_cast<size_t>(before)] = call(add_rule(choice(std::move(both))));
    }
    ways = std::move(here);
  }
  return ways[0];
}

StatusOr<ExprPtr> JsonSchemaMaker::object(const SchemaAt& at) {
  const json::value *properties = at.find("properties"), *required = at.find("required"),
                    *additional = at.find("additionalProperties");
  const bool sized = at.find("minProperties") || at.find("maxProperties");
  if (!properties && !required && !additional && !sized) return call(any_object_);
  if (properties && !properties->is_object()) return at.error("must be an object", "properties");
  if (required && !required->is_array()) return at.error("must be an array", "required");
  std::vector<Member> members;
  absl::flat_hash_map<std::string, size_t> index_of;
  ExprPtr other = any_;
  if (additional && *additional == json::value(false)) {
    other = nullptr;
  } else if (additional) {
    ASSIGN_OR_RETURN(other, schema(at["additionalProperties"]));
  }
  if (properties)
    for (const auto& [key, value] : properties->get_object()) {
      Member member{.name = std::string(key), .value = {}};
      if (value != json::value(false)) {
        ASSIGN_OR_RETURN(member.value, schema(at["properties"][std::string_view(key)]));
      }
      index_of[member.name] = members.size();
      members.push_back(std::move(member));
    }
  if (required)
    for (const json::value& name : required->get_array()) {
      if (!name.is_string()) return at.error("must be an array of strings", "required");
      const std::string key(name.get_string());
      const auto [found, is_new] = index_of.try_emplace(key, members.size());
      if (is_new) members.push_back({.name = key, .value = other});
      Member& member = members[found->second];
      member.required = true;
      if (!member.value)
        return at.error(fmt::format("no value of '{}' is allowed", key.substr(0, 100)), "required");
    }
  if (other) {
    std::vector<std::string> names;
    for (const Member& member : members) names.push_back(member.name);
    auto name = json_string_except(names);
    if (!name.ok()) return at.error(message(name.status()), "properties");
    other = call(add_rule(sequence({*std::move(name), colon_, other})));
  }
  ASSIGN_OR_RETURN(const Size size, size_of(at, members.size()));
  ExprPtr inner = members_of(members, other, size);
  if (!inner)
    return at.error(
        "no object has as many members; of those that no property names, only one counts for "
        "minProperties",
        size.least > 0 ? "minProperties" : "maxProperties");
  return sequence({literal("{"), blanks_, std::move(inner), literal("}")});
}

}  // namespace nereid::text
