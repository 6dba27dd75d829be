// JSON numbers within bounds.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "base/json.h"
#include "text/grammar/expr.h"

namespace nereid::text {

// Largest numbers of digits before and after the point; behind the point of a number above zero,
// zeros before the first other digit are not counted.
inline constexpr int32_t kMaxJsonDigits = 40;

// A number in decimal digits.
struct Decimal {
  bool negative = false;  // false for zero
  std::string whole = "0";
  std::string fraction;  // without trailing zeros

  // The shortest digits of the number; nullopt for more than kMaxDecimalDigits.
  static std::optional<Decimal> of(const json::value& number);
  static Decimal of(int64_t number);
  std::optional<int64_t> integer() const;  // nullopt for fractions and more than 18 digits
  Decimal negated() const;
  bool operator==(const Decimal&) const = default;
  std::strong_ordering operator<=>(const Decimal& other) const;
};
inline constexpr size_t kMaxDecimalDigits = 400;

struct JsonBounds {
  std::optional<Decimal> least, most;
  bool above_least = false, below_most = false;  // the bound itself is excluded

  void tighten_least(const Decimal& bound, bool above);
  void tighten_most(const Decimal& bound, bool below);
  bool allow(const Decimal& number) const;
  // The bounds of the integers within: integers, inclusive.
  JsonBounds whole() const;
};

// Integers without point and exponent. Null: none.
ExprPtr json_integer(const JsonBounds& bounds);
// Numbers; with bounds, those without exponent. Null: none.
ExprPtr json_number(const JsonBounds& bounds);
// Non-integers within bounds, without exponent. Null: none.
ExprPtr json_fraction(const JsonBounds& bounds);

}  // namespace nereid::text
