// The one form that schemas, regular expressions and grammars become: context-free rules over
// bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/grammar/char_set.h"

namespace nereid::text {

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;

struct Expr {
  enum class Kind { kBytes, kChars, kSequence, kChoice, kRepeat, kRule };
  Kind kind = Kind::kBytes;
  std::string bytes = {};           // kBytes: this text, which may be empty
  CharSet chars = {};               // kChars: one of these characters
  std::vector<ExprPtr> parts = {};  // kSequence, kChoice: these; kRepeat: the first
  int32_t least = 0;                // kRepeat: how often
  int32_t most = 0;                 //   kUnbounded: no limit
  int32_t rule = 0;                 // kRule: of Rules
  bool plain = false;               // without calls of rules, and some text is of it
};
inline constexpr int32_t kUnbounded = -1;

// The first is what the whole text is.
using Rules = std::vector<ExprPtr>;

inline ExprPtr literal(std::string bytes) {
  return std::make_shared<Expr>(
      Expr{.kind = Expr::Kind::kBytes, .bytes = std::move(bytes), .plain = true});
}
inline ExprPtr one_of(CharSet chars) {
  const bool plain = !chars.empty();
  return std::make_shared<Expr>(
      Expr{.kind = Expr::Kind::kChars, .chars = std::move(chars), .plain = plain});
}
inline bool all_plain(const std::vector<ExprPtr>& parts) {
  return std::ranges::all_of(parts, [](const ExprPtr& part) { return part->plain; });
}
inline ExprPtr sequence(std::vector<ExprPtr> parts) {
  if (parts.size() == 1) return parts[0];
  const bool plain = all_plain(parts);
  return std::make_shared<Expr>(
      Expr{.kind = Expr::Kind::kSequence, .parts = std::move(parts), .plain = plain});
}
inline ExprPtr choice(std::vector<ExprPtr> parts) {
  if (parts.size() == 1) return parts[0];
  const bool plain = !parts.empty() && all_plain(parts);
  return std::make_shared<Expr>(
      Expr{.kind = Expr::Kind::kChoice, .parts = std::move(parts), .plain = plain});
}
inline ExprPtr repeat(ExprPtr part, int32_t least, int32_t most) {
  const bool plain = part->plain;
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kRepeat,
                                     .parts = {std::move(part)},
                                     .least = least,
                                     .most = most,
                                     .plain = plain});
}
inline ExprPtr optional(ExprPtr part) { return repeat(std::move(part), 0, 1); }
inline ExprPtr call(int32_t rule) {
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kRule, .rule = rule});
}

// Adds the rules of another grammar; the number of its first one.
int32_t append_rules(Rules& rules, const Rules& others);

// Drops what no text of a rule can have because it never ends; false when that is all of the first
// rule.
bool drop_endless(Rules& rules);

}  // namespace nereid::text
