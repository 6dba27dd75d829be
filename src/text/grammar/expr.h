// The one form that schemas, regular expressions and grammars become: context-free rules over
// bytes.
#pragma once

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
};
inline constexpr int32_t kUnbounded = -1;

// The first is what the whole text is.
using Rules = std::vector<ExprPtr>;

inline ExprPtr literal(std::string bytes) {
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kBytes, .bytes = std::move(bytes)});
}
inline ExprPtr one_of(CharSet chars) {
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kChars, .chars = std::move(chars)});
}
inline ExprPtr sequence(std::vector<ExprPtr> parts) {
  if (parts.size() == 1) return parts[0];
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kSequence, .parts = std::move(parts)});
}
inline ExprPtr choice(std::vector<ExprPtr> parts) {
  if (parts.size() == 1) return parts[0];
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kChoice, .parts = std::move(parts)});
}
inline ExprPtr repeat(ExprPtr part, int32_t least, int32_t most) {
  return std::make_shared<Expr>(
      Expr{.kind = Expr::Kind::kRepeat, .parts = {std::move(part)}, .least = least, .most = most});
}
inline ExprPtr optional(ExprPtr part) { return repeat(std::move(part), 0, 1); }
inline ExprPtr call(int32_t rule) {
  return std::make_shared<Expr>(Expr{.kind = Expr::Kind::kRule, .rule = rule});
}

}  // namespace nereid::text
