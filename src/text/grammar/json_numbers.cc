#include "text/grammar/json_numbers.h"

#include <algorithm>
#include <string>

namespace nereid::text {
namespace {

ExprPtr digit(char first, char last) {
  return one_of({static_cast<char32_t>(first), static_cast<char32_t>(last)});
}
ExprPtr digits(int32_t least, int32_t most) { return repeat(digit('0', '9'), least, most); }

// Numbers of as many digits as `least` and `most` have, from one to the other.
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

// Integers from `least` >= 0; without `most`, of up to kMaxJsonDigits digits.
ExprPtr magnitudes(int64_t least, std::optional<int64_t> most) {
  std::vector<ExprPtr> ways;
  std::string low = std::to_string(least);
  const std::string high = most ? std::to_string(*most) : "";
  for (; !most || low.size() < high.size(); low = "1" + std::string(low.size(), '0')) {
    if (!most && low[0] == '1' && low.find_first_not_of('0', 1) == low.npos) {
      ways.push_back(sequence(
          {digit('1', '9'), digits(static_cast<int32_t>(low.size()) - 1, kMaxJsonDigits - 1)}));
      return choice(std::move(ways));
    }
    ways.push_back(same_length(low, std::string(low.size(), '9')));
  }
  ways.push_back(same_length(low, high));
  return choice(std::move(ways));
}

// Decimals without sign in [least, most], least >= 0.
ExprPtr decimals(const JsonBounds& b) {
  const int64_t least = *b.least;
  if (b.most && (*b.most < least || (*b.most == least && (b.above_least || b.below_most))))
    return nullptr;
  std::vector<ExprPtr> ways;
  const ExprPtr fraction = sequence({literal("."), digits(1, kMaxJsonDigits)});
  const ExprPtr positive = sequence({literal("."), digits(0, kMaxJsonDigits / 2), digit('1', '9'),
                                     digits(0, kMaxJsonDigits / 2 - 1)});
  const ExprPtr zero = sequence({literal("."), repeat(digit('0', '0'), 1, kMaxJsonDigits)});
  int64_t first = least;
  if (b.above_least) {
    ways.push_back(sequence({literal(std::to_string(least)), positive}));
    ++first;
  }
  if (!b.most || first < *b.most)
    ways.push_back(sequence({magnitudes(first, b.most ? std::optional(*b.most - 1) : std::nullopt),
                             optional(fraction)}));
  if (b.most && !b.below_most)
    ways.push_back(sequence({literal(std::to_string(*b.most)), optional(zero)}));
  return choice(std::move(ways));
}

// The part of the bounds at or above zero; `b` for the negative side is mirrored first.
std::optional<JsonBounds> upper_half(JsonBounds b, bool with_zero) {
  if (!b.least || *b.least < 0) {
    b.least = 0;
    b.above_least = !with_zero;
  } else if (*b.least == 0) {
    b.above_least |= !with_zero;
  }
  if (b.most && *b.most < *b.least) return std::nullopt;
  return b;
}

JsonBounds mirrored(const JsonBounds& b) {
  JsonBounds m{.above_least = b.below_most, .below_most = b.above_least};
  if (b.most) m.least = -*b.most;
  if (b.least) m.most = -*b.least;
  return m;
}

}  // namespace

ExprPtr json_integer(JsonBounds b) {
  if (b.least && b.above_least) ++*b.least;
  if (b.most && b.below_most) --*b.most;
  b.above_least = b.below_most = false;
  std::vector<ExprPtr> ways;
  if (const auto half = upper_half(b, true)) ways.push_back(magnitudes(*half->least, half->most));
  const JsonBounds negative = mirrored(b);
  const int64_t least = std::max<int64_t>(1, negative.least.value_or(1));
  if (!negative.most || *negative.most >= least)
    ways.push_back(sequence({literal("-"), magnitudes(least, negative.most)}));
  if (ways.empty() || (b.least && b.most && *b.least > *b.most)) return nullptr;
  return choice(std::move(ways));
}

ExprPtr json_number(const JsonBounds& b) {
  if (!b.least && !b.most) {
    const ExprPtr whole = sequence({digit('1', '9'), digits(0, kMaxJsonDigits - 1)});
    CharSet signs('+', '+'), exponent('e', 'e');
    signs.add('-', '-'), exponent.add('E', 'E');
    return sequence(
        {optional(literal("-")), choice({literal("0"), whole}),
         optional(sequence({literal("."), digits(1, kMaxJsonDigits)})),
         optional(sequence({one_of(exponent), optional(one_of(signs)), digits(1, 2)}))});
  }
  if (b.least && b.most && *b.least > *b.most) return nullptr;
  std::vector<ExprPtr> ways;
  if (const auto half = upper_half(b, true))
    if (ExprPtr way = decimals(*half)) ways.push_back(std::move(way));
  if (const auto half = upper_half(mirrored(b), false))
    if (ExprPtr way = decimals(*half)) ways.push_back(sequence({literal("-"), std::move(way)}));
  return ways.empty() ? nullptr : choice(std::move(ways));
}

}  // namespace nereid::text
