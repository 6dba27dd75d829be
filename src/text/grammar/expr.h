// The one form that schemas, regular expressions and grammars become: context-free rules over
// bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/grammar/char_set.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

// What a place in a text must be: its start or end, or where a character of \w stands beside
// another one or an end; or not that.
enum class Assertion { kStart, kEnd, kWordEdge, kNoWordEdge };

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;

struct Expr {
  enum class Kind { kBytes, kChars, kSequence, kChoice, kRepeat, kRule, kAssertion };
  Kind kind = Kind::kBytes;
  std::string bytes = {};           // kBytes: this text, which may be empty
  CharSet chars = {};               // kChars: one of these characters
  std::vector<ExprPtr> parts = {};  // kSequence, kChoice: these; kRepeat: the first
  int32_t least = 0;                // kRepeat: how often
  int32_t most = 0;                 //   kUnbounded: no limit
  int32_t rule = 0;                 // kRule: of Rules
  Assertion assertion = {};         // kAssertion; stands in a TextSet's expression alone
  bool plain = false;               // without calls of rules, and some text is of it
  // Some text is of it and of each of its parts, whatever texts other rules have.
  bool ends = false;
  // Worth a rule of its own where a network has it often; without calls of rules.
  bool may_share = false;
};
inline constexpr int32_t kUnbounded = -1;

// The first is what the whole text is.
using Rules = std::vector<ExprPtr>;

inline ExprPtr literal(std::string bytes) {
  return std::make_shared<Expr>(
      Expr{.kind = Expr::Kind::kBytes, .bytes = std::move(bytes), .plain = true, .ends = true});
}
inline ExprPtr one_of(CharSet chars) {
  const bool plain = !chars.empty();
  return std::make_shared<Expr>(
      Expr{.kind = Expr::Kind::kChars, .chars = std::move(chars), .plain = plain, .ends = plain});
}
inline bool all_plain(const std::vector<ExprPtr>& parts) {
  return std::ranges::all_of(parts, [](const ExprPtr& part) { return part->plain; });
}
inline bool all_end(const std::vector<ExprPtr>& parts) {
  return std::ranges::all_of(parts, [](const ExprPtr& part) { return part->ends; });
}
inline ExprPtr sequence(std::vector<ExprPtr> parts) {
  if (parts.size() == 1) return parts[0];
  const bool plain = all_plain(parts), ends = all_end(parts);
  return std::make_shared<Expr>(
      Expr{.kind = Expr::Kind::kSequence, .parts = std::move(parts), .plain = plain, .ends = ends});
}
inline ExprPtr choice(std::vector<ExprPtr> parts) {
  if (parts.size() == 1) return parts[0];
  const bool plain = !parts.empty() && all_plain(parts), ends = !parts.empty() && all_end(parts);
  return std::make_shared<Expr>(
      Expr{.kind = Expr::Kind::kChoice, .parts = std::move(parts), .plain = plain, .ends = ends});
}
inline ExprPtr repeat(ExprPtr part, int32_t least, int32_t most) {
  const bool plain = part->plain, ends = part->ends;
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kRepeat,
                                     .parts = {std::move(part)},
                                     .least = least,
                                     .most = most,
                                     .plain = plain,
                                     .ends = ends});
}
inline ExprPtr optional(ExprPtr part) { return repeat(std::move(part), 0, 1); }
inline ExprPtr call(int32_t rule) {
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kRule, .rule = rule});
}
// Of a rule of which some text is for certain.
inline ExprPtr call_of_some(int32_t rule) {
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kRule, .rule = rule, .ends = true});
}
// The same expression, which is plain, as one that may share a rule.
inline ExprPtr shareable(const ExprPtr& expr) {
  Expr copy = *expr;
  copy.may_share = copy.plain;
  return std::make_shared<Expr>(std::move(copy));
}

inline ExprPtr asserted(Assertion assertion) {
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kAssertion, .assertion = assertion});
}

// Adds the rules of another grammar; the number of its first one.
int32_t append_rules(Rules& rules, const Rules& others);

// Drops what no text of a rule can have because it never ends; false when that is all of the first
// rule. InvalidArgument: there is no work left.
StatusOr<bool> drop_endless(Rules& rules, WorkLimit& work);

}  // namespace nereid::text
