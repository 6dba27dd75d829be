// An automaton over decimal digits with a rule for each state: the remainder so far, and the
// comparison of the digits so far with the bounds' digits.
#include "text/grammar/schema/json_multiples.h"

#include <algorithm>
#include <compare>
#include <map>
#include <string>

#include "text/grammar/text_set.h"

namespace nereid::text {
namespace {

constexpr size_t kMaxMultipleRules = 20'000;
constexpr size_t kMaxDigits = 15;  // digits of a bound

struct DigitState {
  size_t num_digits = 0;
  int low = 0, high = 0;  // comparison with the first digits of a bound: -1 below, 0 equal, 1 above
  int64_t remainder = 0;
  auto operator<=>(const DigitState&) const = default;
};

// Positive integers within bounds.
class MultiplesMaker {
 public:
  MultiplesMaker(int64_t least, std::optional<int64_t> most, int64_t divisor,
                 const std::function<bool(int64_t)>& good, Rules& rules)
      : least_(std::to_string(least)),
        most_(most ? std::to_string(*most) : ""),
        divisor_(divisor),
        good_(good),
        rules_(rules) {}

  // Null: none.
  StatusOr<ExprPtr> make() { return rule(State{}); }

 private:
  using State = DigitState;

  StatusOr<ExprPtr> rule(const State& state);
  StatusOr<ExprPtr> free_rule(int64_t remainder);
  bool ends(const State& state) const;
  State after(const State& state, char digit) const;

  const std::string least_, most_;  // digits of the bounds; most_ is empty without an upper bound
  const int64_t divisor_;
  const std::function<bool(int64_t)>& good_;
  Rules& rules_;
  std::map<State, ExprPtr> made_;
  int32_t free_ = -1;  // first of `divisor` rules: any digits, until the remainder is good
};

bool MultiplesMaker::ends(const State& s) const {
  const bool above = s.num_digits > least_.size() || (s.num_digits == least_.size() && s.low >= 0);
  const bool below =
      most_.empty() || s.num_digits < most_.size() || (s.num_digits == most_.size() && s.high <= 0);
  return s.num_digits > 0 && above && below && good_(s.remainder);
}

MultiplesMaker::State MultiplesMaker::after(const State& s, char digit) const {
  const auto compare = [&](int former, const std::string& bound) {
    if (former != 0 || s.num_digits >= bound.size()) return former;
    return digit < bound[s.num_digits] ? -1 : digit > bound[s.num_digits] ? 1 : 0;
  };
  return {.num_digits = s.num_digits + 1,
          .low = compare(s.low, least_),
          .high = compare(s.high, most_),
          .remainder = (s.remainder * 10 + (digit - '0')) % divisor_};
}

// The rules of all remainders: each digit leads from one to another.
StatusOr<ExprPtr> MultiplesMaker::free_rule(int64_t remainder) {
  if (free_ < 0) {
    free_ = static_cast<int32_t>(rules_.size());
    for (int64_t from = 0; from < divisor_; ++from) {
      std::map<int64_t, CharSet> digits_to;
      for (char32_t digit = '0'; digit <= '9'; ++digit)
        digits_to[(from * 10 + static_cast<int64_t>(digit - '0')) % divisor_].add(digit, digit);
      std::vector<ExprPtr> ways;
      for (const auto& [to, digits] : digits_to)
        ways.push_back(sequence({one_of(digits), call(free_ + static_cast<int32_t>(to))}));
      if (good_(from)) ways.push_back(literal(""));
      rules_.push_back(choice(std::move(ways)));
    }
  }
  return call(free_ + static_cast<int32_t>(remainder));
}

// Null: no digits lead to an end. The number of digits is bounded, and so is the depth.
StatusOr<ExprPtr> MultiplesMaker::rule(const State& state) {
  if (most_.empty() && state.num_digits > least_.size()) return free_rule(state.remainder);
  if (const auto found = made_.find(state); found != made_.end()) return found->second;
  std::vector<ExprPtr> ways;
  const bool more = most_.empty() || state.num_digits < most_.size();
  for (char digit = state.num_digits == 0 ? '1' : '0'; more && digit <= '9'; ++digit) {
    ASSIGN_OR_RETURN(ExprPtr next, rule(after(state, digit)));
    const auto c = static_cast<char32_t>(digit);
    if (next) ways.push_back(sequence({one_of({c, c}), std::move(next)}));
  }
  if (ends(state)) ways.push_back(literal(""));
  ExprPtr& made = made_[state];
  if (made_.size() > kMaxMultipleRules)
    return invalid_argument("multiples within these bounds need more than {} rules",
                            kMaxMultipleRules);
  if (ways.empty()) return made;
  rules_.push_back(choice(std::move(ways)));
  return made = call(static_cast<int32_t>(rules_.size()) - 1);
}

}  // namespace

StatusOr<ExprPtr> json_multiples(const JsonBounds& bounds, int64_t divisor,
                                 const std::function<bool(int64_t)>& good, Rules& rules) {
  const JsonBounds whole = bounds.whole();
  std::optional<int64_t> least, most;
  for (const bool low : {true, false}) {
    const std::optional<Decimal>& bound = low ? whole.least : whole.most;
    if (!bound) continue;
    if (bound->whole.size() > kMaxDigits)
      return invalid_argument("bounds of more than {} digits are not supported", kMaxDigits);
    (low ? least : most) = std::stoll((bound->negative ? "-" : "") + bound->whole);
  }
  std::vector<ExprPtr> ways;
  if (good(0) && least.value_or(0) <= 0 && most.value_or(0) >= 0) ways.push_back(literal("0"));
  const auto add = [&](const char* sign, std::optional<int64_t> low,
                       std::optional<int64_t> high) -> Status {
    const int64_t from = std::max<int64_t>(1, low.value_or(1));
    if (high && *high < from) return ok();
    ASSIGN_OR_RETURN(ExprPtr some, MultiplesMaker(from, high, divisor, good, rules).make());
    if (some) ways.push_back(sequence({literal(sign), std::move(some)}));
    return ok();
  };
  const auto negated = [](std::optional<int64_t> bound) {
    return bound ? std::optional(-*bound) : std::nullopt;
  };
  RETURN_IF_ERROR(add("", least, most));
  RETURN_IF_ERROR(add("-", negated(most), negated(least)));
  if (ways.empty()) return ExprPtr();
  return choice(std::move(ways));
}

// States: the remainder after the whole part and after 0, 1, ... digits behind the point; before
// them the start, after a sign, and after a zero.
StatusOr<ExprPtr> json_decimal_multiples(const JsonBounds& bounds, int64_t units, size_t places,
                                         Rules& rules, WorkLimit& work) {
  enum { kStart, kSign, kZero, kPoint };  // kPoint: with 0 digits behind the point one must follow
  const auto whole = [](int64_t r) { return static_cast<int32_t>(kPoint + r); };
  const auto broken = [&](size_t digits, int64_t r) {
    return static_cast<int32_t>(kPoint + units * (static_cast<int64_t>(digits) + 1) + r);
  };
  const size_t count = kPoint + static_cast<size_t>(units) * (places + 2);
  std::vector<std::map<char32_t, int32_t>> next(count);
  std::vector<bool> ends(count);
  const auto add = [&](int32_t from, char32_t c, int32_t to) {
    next[static_cast<size_t>(from)][c] = to;
  };
  add(kStart, '-', kSign), add(kStart, '0', kZero), add(kSign, '0', kZero);
  add(kZero, '.', broken(0, 0));
  ends[kZero] = true;
  for (int64_t d = 1; d <= 9; ++d)
    for (const int32_t from : {kStart, kSign})
      add(from, static_cast<char32_t>('0' + d), whole(d % units));
  for (int64_t r = 0; r < units; ++r) {
    int64_t rest = r;  // with the missing digits as zeros
    add(whole(r), '.', broken(0, r));
    for (size_t digits = places + 1; digits-- > 0; rest = rest * 10 % units)
      ends[static_cast<size_t>(digits == 0 ? whole(r) : broken(digits, r))] = rest == 0;
    for (int64_t d = 0; d <= 9; ++d) {
      const auto c = static_cast<char32_t>('0' + d);
      const int64_t to = (r * 10 + d) % units;
      add(whole(r), c, whole(to));
      for (size_t digits = 0; digits < places; ++digits)
        add(broken(digits, r), c, broken(digits + 1, to));
    }
  }
  add(broken(places, 0), '0', broken(places, 0));
  TextSet all = TextSet::of_steps(next, ends);
  if (bounds.least || bounds.most) {
    const ExprPtr within = json_number(bounds);
    if (!within) return ExprPtr();
    ASSIGN_OR_RETURN(const TextSet limits, TextSet::of(*within, work));
    ASSIGN_OR_RETURN(all, all.both(limits, work));
  }
  return all.empty() ? ExprPtr() : all.in_json(rules);
}

}  // namespace nereid::text
