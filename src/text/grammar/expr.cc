#include "text/grammar/expr.h"

#include <algorithm>
#include <string>
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

struct ExprNumbers::Tables {
  // Expressions with several owners. The table keeps them, so that no other one gets their address.
  absl::flat_hash_map<ExprPtr, int32_t> by_pointer;
  absl::flat_hash_map<std::string, int32_t> by_text;
  std::vector<int32_t> by_call;  // by called rule; kNoNumber: not numbered yet
  int32_t next = 0;
  int64_t num_seen = 0;
};

ExprNumbers::ExprNumbers() : tables_(std::make_unique<Tables>()) {}
ExprNumbers::~ExprNumbers() = default;
int64_t ExprNumbers::num_seen() const { return tables_->num_seen; }

int32_t ExprNumbers::of(const ExprPtr& expr) {
  constexpr int32_t kNoNumber = -1;
  Tables& t = *tables_;
  ++t.num_seen;
  if (expr->kind == Expr::Kind::kRule) {
    const auto rule = static_cast<size_t>(expr->rule);
    if (rule >= t.by_call.size()) t.by_call.resize(2 * rule + 1, kNoNumber);
    if (t.by_call[rule] == kNoNumber) t.by_call[rule] = t.next++;
    return t.by_call[rule];
  }
  const bool has_owners = expr.use_count() > 1;
  if (has_owners)
    if (const auto found = t.by_pointer.find(expr); found != t.by_pointer.end())
      return found->second;
  std::string text;
  const auto add = [&](int32_t value) {
    text.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  text.reserve(expr->bytes.size() + sizeof(int32_t) * (4 + expr->parts.size()));
  for (const int32_t value : {static_cast<int32_t>(expr->kind), expr->least, expr->most,
                              static_cast<int32_t>(expr->assertion)})
    add(value);
  for (const auto& [first, last] : expr->chars.ranges())
    add(static_cast<int32_t>(first)), add(static_cast<int32_t>(last));
  for (const ExprPtr& part : expr->parts) add(of(part));
  text += expr->bytes;
  const auto [found, is_new] = t.by_text.try_emplace(std::move(text), t.next);
  t.next += is_new;
  if (has_owners) t.by_pointer[expr] = found->second;
  return found->second;
}

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
