#include "text/grammar/expr.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace nereid::text {
namespace {

// Whether the expression has a finite text, given that the rules in `ends` have one.
// `num_seen` counts expressions.
bool can_end(const Expr& expr, const std::vector<bool>& ends, int64_t& num_seen) {
  ++num_seen;
  if (expr.plain || expr.ends) return true;
  const auto part = [&](const ExprPtr& p) { return can_end(*p, ends, num_seen); };
  switch (expr.kind) {
    case Expr::Kind::kBytes:
      return true;
    case Expr::Kind::kChars:
      return !expr.chars.empty();
    case Expr::Kind::kSequence:
      return std::ranges::all_of(expr.parts, part);
    case Expr::Kind::kChoice:
      return std::ranges::any_of(expr.parts, part);
    case Expr::Kind::kRepeat:
      return expr.least == 0 || part(expr.parts[0]);
    case Expr::Kind::kAssertion:
      return false;
    case Expr::Kind::kRule:
      break;
  }
  return ends[static_cast<size_t>(expr.rule)];
}

void add_calls(const Expr& expr, std::vector<int32_t>& calls, int64_t& num_seen) {
  ++num_seen;
  if (expr.plain || expr.ends) return;
  if (expr.kind == Expr::Kind::kRule) calls.push_back(expr.rule);
  for (const ExprPtr& part : expr.parts) add_calls(*part, calls, num_seen);
}

// The expression without alternatives that have no finite text; it has one itself.
ExprPtr without_endless(const ExprPtr& expr, const std::vector<bool>& ends, int64_t& num_seen) {
  if (expr->plain || expr->ends || expr->parts.empty()) return expr;
  if (expr->kind == Expr::Kind::kRepeat && !can_end(*expr->parts[0], ends, num_seen))
    return literal("");
  std::vector<ExprPtr> parts;
  for (const ExprPtr& part : expr->parts)
    if (can_end(*part, ends, num_seen)) parts.push_back(without_endless(part, ends, num_seen));
  if (parts == expr->parts) return expr;
  Expr copy = *expr;
  copy.parts = std::move(parts);
  return std::make_shared<Expr>(std::move(copy));
}

// Expressions with raised rule numbers; shared nodes stay shared.
class Raised {
 public:
  explicit Raised(int32_t by) : by_(by) {}

  ExprPtr of(const ExprPtr& expr) {
    if (expr->plain || (expr->parts.empty() && expr->kind != Expr::Kind::kRule)) return expr;
    if (expr->kind == Expr::Kind::kRule)
      return expr->ends ? call_of_some(expr->rule + by_) : call(expr->rule + by_);
    const auto found = made_.find(expr.get());
    if (found != made_.end()) return found->second;
    Expr copy = *expr;
    for (ExprPtr& part : copy.parts) part = of(part);
    return made_[expr.get()] = std::make_shared<Expr>(std::move(copy));
  }

 private:
  const int32_t by_;
  absl::flat_hash_map<const Expr*, ExprPtr> made_;
};

}  // namespace

int32_t append_rules(Rules& rules, const Rules& others) {
  const auto first = static_cast<int32_t>(rules.size());
  Raised raised(first);
  for (const ExprPtr& rule : others) rules.push_back(raised.of(rule));
  return first;
}

StatusOr<bool> drop_endless(Rules& rules, WorkLimit& work) {
  int64_t num_seen = 0;
  std::vector<bool> ends(rules.size());
  std::vector<std::vector<int32_t>> callers(rules.size());
  std::vector<int32_t> open;
  for (size_t i = 0; i < rules.size(); ++i) {
    std::vector<int32_t> calls;
    add_calls(*rules[i], calls, num_seen);
    RETURN_IF_ERROR(work.spend(std::exchange(num_seen, 0)));
    for (const int32_t rule : calls)
      callers[static_cast<size_t>(rule)].push_back(static_cast<int32_t>(i));
    open.push_back(static_cast<int32_t>(i));
  }
  while (!open.empty()) {
    const auto i = static_cast<size_t>(open.back());
    open.pop_back();
    RETURN_IF_ERROR(work.spend(std::exchange(num_seen, 0)));
    if (ends[i] || !can_end(*rules[i], ends, num_seen)) continue;
    ends[i] = true;
    open.insert(open.end(), callers[i].begin(), callers[i].end());
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    RETURN_IF_ERROR(work.spend(std::exchange(num_seen, 0)));
    // No remaining rule refers to a dropped one.
    rules[i] = ends[i] ? without_endless(rules[i], ends, num_seen) : literal("");
  }
  return ends[0];
}

}  // namespace nereid::text
