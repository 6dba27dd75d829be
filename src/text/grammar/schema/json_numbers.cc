#include "text/grammar/schema/json_numbers.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

namespace nereid::text {
namespace {

ExprPtr digit(char first, char last) {
  return one_of({static_cast<char32_t>(first), static_cast<char32_t>(last)});
}
ExprPtr digits(int32_t least, int32_t most) { return repeat(digit('0', '9'), least, most); }

std::strong_ordering compare_whole(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return a.size() <=> b.size();
  return a <=> b;
}

std::string plus_one(std::string digits) {
  for (size_t i = digits.size(); i-- > 0; digits[i] = '0')
    if (digits[i] != '9') {
      ++digits[i];
      return digits;
    }
  return "1" + digits;
}

// Decimal digits of n - 1, for n > 0.
std::string minus_one(std::string digits) {
  size_t i = digits.size() - 1;
  for (; digits[i] == '0'; --i) digits[i] = '9';
  --digits[i];
  return digits.size() > 1 && digits[0] == '0' ? digits.substr(1) : digits;
}

// Numbers from `least` to `most`, which have equally many digits.
ExprPtr same_length(std::string_view least, std::string_view most) {
  const auto rest = static_cast<int32_t>(least.size()) - 1;
  std::vector<ExprPtr> ways;
  if (least.empty()) return literal("");
  if (least[0] == most[0])
    return sequence({digit(least[0], least[0]), same_length(least.substr(1), most.substr(1))});
  const std::string nines(static_cast<size_t>(rest), '9'), zeros(static_cast<size_t>(rest), '0');
  char first = least[0], last = most[0];
  if (least.substr(1) != zeros)
    ways.push_back(sequence({digit(first, first), same_length(least.substr(1), nines)})), ++first;
  if (most.substr(1) != nines)
    ways.push_back(sequence({digit(last, last), same_length(zeros, most.substr(1))})), --last;
  if (first <= last) ways.push_back(sequence({digit(first, last), digits(rest, rest)}));
  return choice(std::move(ways));
}

// Integers from `low` on; without `high`, of up to kMaxJsonDigits digits. Null: none.
ExprPtr magnitudes(std::string low, const std::optional<std::string>& high) {
  if (high && compare_whole(*high, low) < 0) return nullptr;
  std::vector<ExprPtr> ways;
  for (; !high || low.size() < high->size(); low = "1" + std::string(low.size(), '0')) {
    if (low.size() > kMaxJsonDigits) return ways.empty() ? nullptr : choice(std::move(ways));
    if (!high && low[0] == '1' && low.find_first_not_of('0', 1) == low.npos) {
      ways.push_back(sequence(
          {digit('1', '9'), digits(static_cast<int32_t>(low.size()) - 1, kMaxJsonDigits - 1)}));
      return choice(std::move(ways));
    }
    ways.push_back(same_length(low, std::string(low.size(), '9')));
  }
  ways.push_back(same_length(low, *high));
  return choice(std::move(ways));
}

// A bound on the digits behind the point, from some digit on.
struct Edge {
  std::optional<std::string_view> digits;  // unset: no bound any more
  bool strict = false;                     // excludes the bound itself
  bool few = false;  // only digits with which a double below 1e9 is no integer
};

bool may_stop(const Edge& low, const Edge& high) {
  const bool above = !low.digits || (low.digits->empty() && !low.strict);
  const bool below = !high.digits || !high.digits->empty() || !high.strict;
  return above && below;
}

// Digits of a fraction above zero: zeros, a digit that is none, any digits. The first digit that is
// no zero decides, so that an automaton of it has few states.
ExprPtr above_zero(bool few) {
  if (!few)
    return sequence({repeat(digit('0', '0'), 0, kMaxJsonDigits / 2), digit('1', '9'),
                     digits(0, kMaxJsonDigits)});
  constexpr int32_t kMostZeros = 2, kMostDigits = 6;
  std::vector<ExprPtr> ways;
  for (int32_t zeros = 0; zeros <= kMostZeros; ++zeros)
    ways.push_back(sequence({repeat(digit('0', '0'), zeros, zeros), digit('1', '9'),
                             digits(0, kMostDigits - 1 - zeros)}));
  return choice(std::move(ways));
}

ExprPtr fraction_digits(const Edge& low, const Edge& high, bool some);

// Adds the alternatives for one digit and the digits behind it.
void add_digits(const Edge& low, const Edge& high, std::vector<ExprPtr>& ways) {
  const auto head = [](const Edge& edge, char none) {
    return !edge.digits ? none : edge.digits->empty() ? '0' : (*edge.digits)[0];
  };
  const char first = head(low, '0'), last = head(high, '9');
  const auto rest = [](const Edge& edge, bool tight) {
    if (!edge.digits || !tight) return Edge{};
    return Edge{edge.digits->empty() ? *edge.digits : edge.digits->substr(1), edge.strict};
  };
  char begin = '0';
  for (char c = '0'; c <= '9'; ++c) {
    if (c < first || c > last) {
      begin = static_cast<char>(c + 1);
      continue;
    }
    const bool tight_low = low.digits && c == first, tight_high = high.digits && c == last;
    const bool next_alike =
        c < '9' && c + 1 <= last && !tight_low && !tight_high && !(high.digits && c + 1 == last);
    if (next_alike) continue;
    ExprPtr behind = fraction_digits(rest(low, tight_low), rest(high, tight_high), false);
    if (behind) ways.push_back(sequence({digit(begin, c), std::move(behind)}));
    begin = static_cast<char>(c + 1);
  }
}

// Digits from `low` to `high`; `some`: at least one. Null: none.
ExprPtr fraction_digits(const Edge& low, const Edge& high, bool some) {
  const int32_t least = some ? 1 : 0;
  const bool free_low = !low.digits || (low.digits->empty() && !low.strict);
  if (free_low && !high.digits) return digits(least, kMaxJsonDigits);
  if (!free_low && low.digits->empty() && !high.digits) return above_zero(low.few);
  if (high.digits && high.digits->empty()) {
    if (high.strict || !free_low) return nullptr;
    return repeat(digit('0', '0'), least, kMaxJsonDigits);
  }
  std::vector<ExprPtr> ways;
  add_digits(free_low ? Edge{} : low, high, ways);
  if (!some && may_stop(low, high)) ways.push_back(literal(""));
  return ways.empty() ? nullptr : choice(std::move(ways));
}

// The text behind the whole part: a point and digits, or nothing. Null: no text.
ExprPtr fraction(const Edge& low, const Edge& high) {
  std::vector<ExprPtr> ways;
  if (ExprPtr some = fraction_digits(low, high, true))
    ways.push_back(sequence({literal("."), std::move(some)}));
  if (may_stop(low, high)) ways.push_back(literal(""));
  return ways.empty() ? nullptr : choice(std::move(ways));
}

// Unsigned numbers within bounds; `least` is set and not negative. `broken`: only non-integers.
ExprPtr decimals(const JsonBounds& b, bool broken) {
  const Decimal& least = *b.least;
  if (b.most && (*b.most < least || (*b.most == least && (b.above_least || b.below_most))))
    return nullptr;
  const Edge any = broken ? Edge{std::string_view(), true, true} : Edge{};
  const Edge low{least.fraction, b.above_least || (broken && least.fraction.empty()), broken};
  const Edge high = b.most ? Edge{b.most->fraction, b.below_most} : Edge{};
  const auto with = [](const std::string& whole, ExprPtr rest) {
    return rest ? sequence({literal(whole), std::move(rest)}) : nullptr;
  };
  if (b.most && b.most->whole == least.whole) return with(least.whole, fraction(low, high));
  std::vector<ExprPtr> ways;
  if (ExprPtr way = with(least.whole, fraction(low, {}))) ways.push_back(std::move(way));
  const auto last = b.most ? std::optional(minus_one(b.most->whole)) : std::nullopt;
  if (ExprPtr whole = magnitudes(plus_one(least.whole), last))
    ways.push_back(sequence({std::move(whole), fraction(any, {})}));
  if (ExprPtr way = b.most ? with(b.most->whole, fraction(any, high)) : nullptr)
    ways.push_back(std::move(way));
  return ways.empty() ? nullptr : choice(std::move(ways));
}

JsonBounds mirrored(const JsonBounds& b) {
  JsonBounds m{.above_least = b.below_most, .below_most = b.above_least};
  if (b.most) m.least = b.most->negated();
  if (b.least) m.most = b.least->negated();
  return m;
}

// Calls add(sign, half) with the bounds of the nonnegative numbers and of the magnitudes of
// the negative ones.
template <class Add>
void for_halves(const JsonBounds& b, const Add& add) {
  JsonBounds positive = b, negative = mirrored(b);
  positive.tighten_least({}, false), negative.tighten_least({}, true);
  add("", positive), add("-", negative);
}

}  // namespace

Decimal Decimal::of(int64_t number) { return *of(json::value(number)); }

std::optional<int64_t> Decimal::integer() const {
  constexpr size_t kMostDigits = 18;
  if (!fraction.empty() || whole.size() > kMostDigits) return std::nullopt;
  int64_t number = 0;
  std::from_chars(whole.data(), whole.data() + whole.size(), number);
  return negative ? -number : number;
}

std::optional<Decimal> Decimal::of(const json::value& number) {
  Decimal d;
  if (!number.is_double()) {
    d.whole = number.is_int64() ? std::to_string(number.get_int64())
                                : std::to_string(number.get_uint64());
    d.negative = d.whole[0] == '-';
    if (d.negative) d.whole.erase(0, 1);
    return d;
  }
  std::array<char, 512> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number.get_double(),
                                 std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<size_t>(end.ptr - buffer.data()));
  d.negative = text.starts_with('-');
  if (d.negative) text.remove_prefix(1);
  const size_t e = text.find('e');
  if (e == text.npos) return std::nullopt;
  int exponent = 0;
  const std::string_view power = text.substr(e + 1 + (text[e + 1] == '+'));
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string all(text.substr(0, 1));
  if (e > 2) all += text.substr(2, e - 2);
  const int before = exponent + 1;  // digits before the point
  if (static_cast<size_t>(std::abs(before)) > kMaxDecimalDigits) return std::nullopt;
  if (before <= 0) all.insert(0, static_cast<size_t>(1 - before), '0');
  const auto point = static_cast<size_t>(std::max(before, 1));
  if (all.size() < point) all.append(point - all.size(), '0');
  d.whole = all.substr(0, point);
  d.fraction = all.substr(point);
  d.whole.erase(0, std::min(d.whole.find_first_not_of('0'), d.whole.size() - 1));
  d.fraction.erase(d.fraction.find_last_not_of('0') + 1);
  if (d.whole == "0" && d.fraction.empty()) d.negative = false;
  return d;
}

Decimal Decimal::negated() const {
  Decimal d = *this;
  d.negative = !negative && (whole != "0" || !fraction.empty());
  return d;
}

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (negative != other.negative) return other.negative <=> negative;
  const Decimal &a = negative ? other : *this, &b = negative ? *this : other;
  const auto order = compare_whole(a.whole, b.whole);
  return order != 0 ? order : a.fraction <=> b.fraction;
}

void JsonBounds::tighten_least(const Decimal& bound, bool above) {
  if (least && *least > bound) return;
  above_least = least && *least == bound ? above_least || above : above;
  least = bound;
}

void JsonBounds::tighten_most(const Decimal& bound, bool below) {
  if (most && *most < bound) return;
  below_most = most && *most == bound ? below_most || below : below;
  most = bound;
}

bool JsonBounds::allow(const Decimal& number) const {
  return !(least && (number < *least || (above_least && number == *least))) &&
         !(most && (number > *most || (below_most && number == *most)));
}

JsonBounds JsonBounds::whole() const {
  // The nearest integer above (`up`) or below a bound; the bound itself if it is
  // one and not strict.
  const auto rounded = [](const Decimal& bound, bool up, bool strict) {
    Decimal d{.negative = bound.negative, .whole = bound.whole};
    const bool away = up != bound.negative;  // away from zero
    if (away && (strict || !bound.fraction.empty())) d.whole = plus_one(d.whole);
    if (!away && strict && bound.fraction.empty()) {
      if (d.whole == "0") return Decimal{.negative = !up, .whole = "1"};
      d.whole = minus_one(d.whole);
    }
    if (d.whole == "0") d.negative = false;
    return d;
  };
  JsonBounds b;
  if (least) b.least = rounded(*least, true, above_least);
  if (most) b.most = rounded(*most, false, below_most);
  return b;
}

ExprPtr json_integer(const JsonBounds& bounds) {
  std::vector<ExprPtr> ways;
  for_halves(bounds, [&](const char* sign, const JsonBounds& half) {
    const JsonBounds b = half.whole();
    if (b.most && (b.most->negative || *b.most < *b.least)) return;
    const auto high = b.most ? std::optional(b.most->whole) : std::nullopt;
    if (ExprPtr some = magnitudes(b.least->whole, high))
      ways.push_back(sequence({literal(sign), std::move(some)}));
  });
  return ways.empty() ? nullptr : choice(std::move(ways));
}

ExprPtr json_number(const JsonBounds& bounds) {
  std::vector<ExprPtr> ways;
  if (!bounds.least && !bounds.most) {
    const ExprPtr whole = sequence({digit('1', '9'), digits(0, kMaxJsonDigits - 1)});
    CharSet signs('+', '+'), exponent('e', 'e');
    signs.add('-', '-'), exponent.add('E', 'E');
    return sequence(
        {optional(literal("-")), choice({literal("0"), whole}),
         optional(sequence({literal("."), digits(1, kMaxJsonDigits)})),
         optional(sequence({one_of(exponent), optional(one_of(signs)), digits(1, 2)}))});
  }
  for_halves(bounds, [&](const char* sign, const JsonBounds& half) {
    if (ExprPtr some = decimals(half, /*broken=*/false))
      ways.push_back(sequence({literal(sign), std::move(some)}));
  });
  return ways.empty() ? nullptr : choice(std::move(ways));
}

ExprPtr json_fraction(const JsonBounds& bounds) {
  std::vector<ExprPtr> ways;
  for_halves(bounds, [&](const char* sign, const JsonBounds& half) {
    if (ExprPtr some = decimals(half, /*broken=*/true))
      ways.push_back(sequence({literal(sign), std::move(some)}));
  });
  return ways.empty() ? nullptr : choice(std::move(ways));
}

}  // namespace nereid::text
