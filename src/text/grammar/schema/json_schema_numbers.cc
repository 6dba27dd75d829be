// Numbers of a schema.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "text/grammar/schema/json_multiples.h"
#include "text/grammar/schema/json_schema_maker.h"

namespace nereid::text {

StatusOr<int32_t> schema_count(const SchemaAt& at, std::string_view key, int32_t fallback) {
  const json::value* value = at.find(key);
  if (!value) return fallback;
  const auto number = value->is_number() ? Decimal::of(*value) : std::nullopt;
  if (!number || number->negative || !number->fraction.empty())
    return at.error("must be an integer that is not negative", key);
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max() - 1;
  return number->whole.size() > 9 ? kMost : static_cast<int32_t>(std::stol(number->whole));
}

StatusOr<JsonBounds> JsonSchemaMaker::bounds(const Parts& parts) const {
  JsonBounds b;
  for (const Part& part : parts.all) {
    const SchemaAt& at = part.at;
    // Before draft 6 the exclusive bounds are booleans beside the others.
    const auto flag = [&](std::string_view key) {
      const json::value* value = at.find(key);
      return value && *value == json::value(true);
    };
    const auto read = [&](std::string_view key, bool low, bool strict) -> Status {
      const json::value* value = at.find(key);
      if (!value || (strict && value->is_bool())) return ok();
      if (!value->is_number()) return at.error("must be a number", key);
      const auto bound = Decimal::of(*value);
      if (!bound || bound->fraction.size() > kMaxJsonDigits)
        return at.error(fmt::format("more than {} digits are not supported", kMaxJsonDigits), key);
      // No generated number has as many digits.
      if (bound->whole.size() > kMaxJsonDigits && low == bound->negative) return ok();
      if (!strict) strict = flag(low ? "exclusiveMinimum" : "exclusiveMaximum");
      low ? b.tighten_least(*bound, strict) : b.tighten_most(*bound, strict);
      return ok();
    };
    RETURN_IF_ERROR(read("minimum", true, false));
    RETURN_IF_ERROR(read("exclusiveMinimum", true, true));
    RETURN_IF_ERROR(read("maximum", false, false));
    RETURN_IF_ERROR(read("exclusiveMaximum", false, true));
  }
  return b;
}

// The divisors as integers, in units of the finest divisor's last digit.
StatusOr<ExprPtr> JsonSchemaMaker::multiples(const Parts& parts, const JsonBounds& b,
                                             const Part& part) {
  const std::string limit = fmt::format(
      "only numbers of up to {} times 1, 0.1, 0.01 and so on are supported, also as the least "
      "common multiple of several",
      kMaxJsonDivisor);
  std::vector<Decimal> divisors;
  size_t places = 0;
  for (const Part& one : parts.all) {
    const json::value* value = one.at.find("multipleOf");
    if (!value) continue;
    const auto number = value->is_number() ? Decimal::of(*value) : std::nullopt;
    if (!value->is_number() || (number && *number <= Decimal()))
      return one.at.error("must be a number above 0", "multipleOf");
    if (!number || number->fraction.size() > kMaxDivisorPlaces || number->whole.size() > 4)
      return one.at.error(limit, "multipleOf");
    places = std::max(places, number->fraction.size());
    divisors.push_back(*number);
  }
  int64_t one = 1;
  for (size_t i = 0; i < places; ++i) one *= 10;
  const bool integer = (parts.types & kFractionTypes) == 0;
  int64_t units = integer ? one : 1;
  for (const Decimal& d : divisors) {
    const int64_t own =
        std::stoll(d.whole + d.fraction + std::string(places - d.fraction.size(), '0'));
    constexpr int64_t kMost = int64_t{1} << 62;
    const int64_t factor = own / std::gcd(own, units);
    if (units > kMost / factor) return part.at.error(limit, "multipleOf");
    units *= factor;
  }
  const bool whole = units % one == 0;
  if (units / (whole ? one : 1) > kMaxJsonDivisor) return part.at.error(limit, "multipleOf");
  if (whole && (parts.types & kIntegerType) == 0) return nothing();
  if (!whole && (parts.types & kIntegerType) == 0)
    return part.at.error("without integers this is not supported", "multipleOf");
  const int64_t divisor = units / one;
  int64_t modulus = divisor;
  std::vector<int64_t> others;  // divisors that must not divide
  for (const Part& other : parts.all) {
    const json::value* value = other.at.find(kUnlikeMultipleKey);
    if (!value) continue;
    const auto number = value->is_number() ? Decimal::of(*value) : std::nullopt;
    if (!whole || !number || *number <= Decimal() || number->whole.size() > 4)
      return part.at.error(limit, "multipleOf");
    others.push_back(std::stoll(number->whole));
    modulus = std::lcm(modulus, others.back());
    // One alternative of several, so it may be left out.
    if (modulus > kMaxJsonDivisor) {
      is_partial_ = true;
      return nothing();
    }
  }
  const auto good = [&](int64_t remainder) {
    return remainder % divisor == 0 &&
           std::ranges::none_of(others, [&](int64_t other) { return remainder % other == 0; });
  };
  auto numbers = whole ? json_multiples(b, modulus, good, rules_)
                       : json_decimal_multiples(b, units, places, rules_, work_);
  if (!numbers.ok()) return part.at.error(message(numbers.status()), "multipleOf");
  return *numbers ? *std::move(numbers) : nothing();
}

StatusOr<ExprPtr> JsonSchemaMaker::number(const Parts& parts) {
  const unsigned types = parts.types & (kIntegerType | kFractionTypes);
  ASSIGN_OR_RETURN(JsonBounds all, bounds(parts));
  const bool bounded = all.least || all.most;
  std::vector<Decimal> excepted;
  for (const Part& part : parts.all)
    if (const json::value* except = part.at.find(kExceptKey); except && except->is_array())
      for (const json::value& value : except->get_array())
        if (const auto number = value.is_number() ? Decimal::of(value) : std::nullopt)
          excepted.push_back(*number);
  const Part* part = parts.with("multipleOf");
  if (!part) part = parts.with(kUnlikeMultipleKey);
  const bool integer = types == kIntegerType;
  const bool broken = types == kFractionTypes;
  if (broken) {  // numbers whose digits a double holds
    is_partial_ = true;
    constexpr int64_t kMost = 1'000'000'000;
    all.tighten_least(Decimal::of(-kMost), false);
    all.tighten_most(Decimal::of(kMost), false);
  }
  if (!bounded && !broken && !part && excepted.empty())
    return call(integer ? any_integer_ : any_number_);
  // The intervals between excluded numbers.
  std::ranges::sort(excepted);
  std::vector<ExprPtr> ways;
  JsonBounds rest = all;
  const auto add = [&](const JsonBounds& b) -> Status {
    ExprPtr some;
    if (part) {
      ASSIGN_OR_RETURN(some, multiples(parts, b, *part));
    } else {
      some = integer ? json_integer(b) : broken ? json_fraction(b) : json_number(b);
    }
    if (some) ways.push_back(std::move(some));
    return ok();
  };
  for (const Decimal& number : excepted) {
    JsonBounds below = rest;
    below.tighten_most(number, true);
    RETURN_IF_ERROR(add(below));
    rest.tighten_least(number, true);
  }
  RETURN_IF_ERROR(add(rest));
  return choice(std::move(ways));
}

}  // namespace nereid::text
