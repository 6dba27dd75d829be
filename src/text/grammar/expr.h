// The common form of schemas, regular expressions and grammars: context-free rules over bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/grammar/char_set.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

// A condition on a position in a text: its start or end, a word boundary, or no word boundary.
enum class Assertion { kStart, kEnd, kWordEdge, kNoWordEdge };

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;

struct Expr {
  enum class Kind { kBytes, kChars, kSequence, kChoice, kRepeat, kRule, kAssertion };
  Kind kind = Kind::kBytes;
  std::string bytes = {};  // kBytes: the text, which may be empty
  CharSet chars = {};      // kChars: the set
  // KSequence, kChoice: the parts; kRepeat: the repeated part first.
  std::vector<ExprPtr> parts = {};
  int32_t least = 0;         // kRepeat: least count
  int32_t most = 0;          // kUnbounded: no limit
  int32_t rule = 0;          // kRule: index in Rules
  Assertion assertion = {};  // kAssertion; only in expressions for a TextSet
  bool plain = false;        // contains no calls, and has a finite text
  // It and all its parts have a finite text, whatever the other rules.
  bool ends = false;
  // Without calls, and worth a rule of its own if a network contains it often.
  bool may_share = false;
};
inline constexpr int32_t kUnbounded = -1;

// Rule 0 is the whole text.
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
// A call of a rule that has a finite text.
inline ExprPtr call_of_some(int32_t rule) {
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kRule, .rule = rule, .ends = true});
}
// A copy of a plain expression that may become a shared rule.
inline ExprPtr shareable(const ExprPtr& expr) {
  Expr copy = *expr;
  copy.may_share = copy.plain;
  return std::make_shared<Expr>(std::move(copy));
}

inline ExprPtr asserted(Assertion assertion) {
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kAssertion, .assertion = assertion});
}

// Numbers of expressions; equal expressions have the same number. Calls of one rule are equal.
class ExprNumbers {
 public:
  ExprNumbers();
  ~ExprNumbers();
  int32_t of(const ExprPtr& expr);
  int64_t num_seen() const;  // expressions that were compared, so the work done

 private:
  struct Tables;
  const std::unique_ptr<Tables> tables_;
};

// Appends the rules of another grammar; returns the number of its first one.
int32_t append_rules(Rules& rules, const Rules& others);

// Removes alternatives without a finite text; false when rule 0 has no other. InvalidArgument: the
// work limit is reached.
StatusOr<bool> drop_endless(Rules& rules, WorkLimit& work);

}  // namespace nereid::text
