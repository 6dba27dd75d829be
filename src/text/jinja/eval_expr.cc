// Evaluation of expressions.
#include <fmt/format.h>

#include <algorithm>

#include "base/find_text.h"
#include "text/jinja/eval_depth.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"
#include "text/unicode/utf8.h"

namespace nereid::text::jinja {

void Evaluator::require_defined(const Value& value) {
  if (const auto* undefined = value.as<Undefined>()) {
    throw Error{undefined->hint ? *undefined->hint : "value is undefined"};
  }
}

Value Evaluator::undefined(std::string hint) {
  budget_.memory(hint.size() + kStringBytes);
  return Value::undefined(std::move(hint));
}

Value Evaluator::eval(const Expr& expr) {
  const Depth depth(*this);
  budget_.work();
  try {
    return eval_inner(expr);
  } catch (Error& error) {
    if (error.line == 0) error.line = expr.line;
    throw;
  }
}

Value Evaluator::eval_inner(const Expr& expr) {
  switch (expr.kind) {
    case Expr::kConst:
      return expr.value;
    case Expr::kName:
      return eval_name(expr);
    case Expr::kList:
    case Expr::kTuple:
      return eval_list(expr);
    case Expr::kDict:
      return eval_dict(expr);
    case Expr::kNot:
      return !eval(*expr.parts[0]).truthy();
    case Expr::kNegate:
    case Expr::kPlus:
      return eval_sign(expr);
    case Expr::kBinary: {
      const Value left = eval(*expr.parts[0]);
      return binary(*this, expr.text, left, eval(*expr.parts[1]));
    }
    case Expr::kAnd: {
      Value left = eval(*expr.parts[0]);
      return left.truthy() ? eval(*expr.parts[1]) : left;
    }
    case Expr::kOr: {
      Value left = eval(*expr.parts[0]);
      return left.truthy() ? left : eval(*expr.parts[1]);
    }
    case Expr::kCompare:
      return eval_compare(expr);
    case Expr::kConcat:
      return eval_concat(expr);
    case Expr::kCondition:
      if (eval(*expr.parts[0]).truthy()) return eval(*expr.parts[1]);
      if (expr.parts[2]) return eval(*expr.parts[2]);
      return undefined(
          "the inline if-expression evaluated to false and no else section was defined");
    case Expr::kAttribute:
      return get_attribute(eval(*expr.parts[0]), expr.text);
    case Expr::kItem: {
      const Value container = eval(*expr.parts[0]);
      return get_item(container, eval(*expr.parts[1]));
    }
    case Expr::kSlice:
      return eval_slice(expr);
    case Expr::kCall:
      return eval_call(expr, nullptr);
    case Expr::kFilter:
      return eval_filter(expr, nullptr);
    case Expr::kTest:
      return eval_test(expr);
  }
  return {};
}

Value Evaluator::eval_sign(const Expr& expr) {
  const Value value = eval(*expr.parts[0]);
  require_defined(value);
  if (expr.kind == Expr::kNegate) return negate(value);
  if (!value.is_number()) throw Error{"bad operand type for unary +"};
  return value.is_bool() ? Value(value.integer()) : value;
}

Value Evaluator::eval_name(const Expr& expr) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    if (const Value* value = scope->variables.find(expr.text, budget_)) return *value;
  }
  if (auto found = global(expr.text)) return *std::move(found);
  return undefined(fmt::format("'{}' is undefined", shown(expr.text)));
}

Value Evaluator::eval_list(const Expr& expr) {
  std::vector<Value> items;
  budget_.memory(expr.parts.size() * sizeof(Value));
  for (const ExprPtr& part : expr.parts) items.push_back(eval(*part));
  return Value::list(std::move(items), expr.kind == Expr::kTuple);
}

Value Evaluator::eval_dict(const Expr& expr) {
  DictBuilder out(budget_);
  for (size_t i = 0; i < expr.parts.size(); i += 2) {
    Value key = eval(*expr.parts[i]);
    require_hashable(key);
    out.put(std::move(key), eval(*expr.parts[i + 1]));
  }
  return out.take();
}

Value Evaluator::eval_compare(const Expr& expr) {
  Value left = eval(*expr.parts[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.parts[i + 1]);
    const std::string& op = expr.ops[i];
    bool holds = false;
    if (op == "==") {
      holds = equals(left, right, budget_);
    } else if (op == "!=") {
      holds = !equals(left, right, budget_);
    } else if (op == "in") {
      holds = contains(right, left);
    } else if (op == "not in") {
      holds = !contains(right, left);
    } else if (op == "<") {
      holds = less(left, right, budget_);
    } else if (op == ">") {
      holds = less(right, left, budget_);
    } else if (op == "<=") {
      holds = less(left, right, budget_) || equals(left, right, budget_);
    } else {
      holds = less(right, left, budget_) || equals(left, right, budget_);
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::eval_concat(const Expr& expr) {
  std::string out;
  for (const ExprPtr& part : expr.parts) append_str(out, eval(*part), budget_);
  return out;
}

Value Evaluator::eval_slice(const Expr& expr) {
  const Value value = eval(*expr.parts[0]);
  Value bounds[3];
  const Value* given[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (!expr.parts[i + 1]) continue;
    bounds[i] = eval(*expr.parts[i + 1]);
    given[i] = &bounds[i];
  }
  return slice(*this, value, given[0], given[1], given[2]);
}

Args Evaluator::eval_args(const CallArgs& args) {
  Args out;
  for (const ExprPtr& arg : args.positional) out.positional.push_back(eval(*arg));
  if (args.star) {
    const ListPtr more = iterate(eval(*args.star));
    budget_.memory(more->items.size() * sizeof(Value));
    out.positional.insert(out.positional.end(), more->items.begin(), more->items.end());
  }
  for (const auto& [name, arg] : args.named) out.named.emplace_back(name, eval(*arg));
  if (args.star_star) {
    const Value more = eval(*args.star_star);
    if (!more.is_dict()) throw Error{"argument after ** must be a mapping"};
    for (const auto& [key, value] : more.entries().items) {
      if (!key.is_string()) throw Error{"keywords must be strings"};
      budget_.memory(key.string().size() + kStringBytes + sizeof(Value));
      out.named.emplace_back(key.string(), value);
    }
  }
  return out;
}

// `caller` is passed to a macro as the keyword argument of that name.
Value Evaluator::eval_call(const Expr& expr, const Value* caller) {
  const Expr& callee = *expr.parts[0];
  if (callee.kind == Expr::kAttribute && caller == nullptr) {
    const Value self = eval(*callee.parts[0]);
    if (has_method(self, callee.text)) {
      return call_method(*this, self, callee.text, eval_args(expr.args));
    }
    const Value function = get_attribute(self, callee.text);
    Args args = eval_args(expr.args);
    return call(function, args);
  }
  const Value function = eval(callee);
  Args args = eval_args(expr.args);
  if (caller != nullptr) args.named.emplace_back("caller", *caller);
  return call(function, args);
}

Value Evaluator::call(const Value& callee, Args& args) {
  require_defined(callee);
  if (!callee.is_object()) {
    throw Error{fmt::format("'{}' object is not callable", callee.type_name())};
  }
  const ObjectPtr keep = *callee.as<ObjectPtr>();
  return keep->call(*this, args);
}

Value Evaluator::eval_filter(const Expr& expr, const Value* block_text) {
  Value subject;
  if (!expr.parts[0]) {
    if (block_text != nullptr) subject = *block_text;
  } else if (block_text != nullptr && expr.parts[0]->kind == Expr::kFilter) {
    subject = eval_filter(*expr.parts[0], block_text);
  } else {
    subject = eval(*expr.parts[0]);
  }
  return apply_filter(expr.text, subject, eval_args(expr.args));
}

Value Evaluator::eval_test(const Expr& expr) {
  const Value subject = eval(*expr.parts[0]);
  return apply_test(expr.text, subject, eval_args(expr.args)) != expr.negated;
}

ListPtr Evaluator::iterate(const Value& value) {
  if (value.is_list()) {
    budget_.work();
    return *value.as<ListPtr>();
  }
  if (value.is_object()) {
    if (ListPtr items = value.object().take_items()) return items;
  }
  auto out = std::make_shared<ListData>();
  if (value.is_string()) {
    budget_.memory(value.string().size() * 80);  // each character becomes a string object
    for (std::string_view rest = value.string(); !rest.empty();) {
      const size_t size = utf8_step(rest).length;
      out->items.emplace_back(rest.substr(0, size));
      rest.remove_prefix(size);
    }
  } else if (value.is_dict()) {
    budget_.memory(value.entries().items.size() * sizeof(Value));
    for (const auto& [key, item] : value.entries().items) out->items.push_back(key);
  } else if (!value.is_undefined()) {
    throw Error{fmt::format("'{}' object is not iterable", value.type_name())};
  }
  for (const Value& item : out->items) out->depth = std::max(out->depth, item.depth() + 1);
  return out;
}

size_t Evaluator::length(const Value& value) {
  if (value.is_string()) {
    budget_.scan(value.string().size());
    return utf8_length(value.string());
  }
  if (value.is_dict()) return value.entries().items.size();
  const bool counted =
      value.is_object() && value.object().kind_of_items() >= Object::Items::kCounted;
  if (value.is_list() || counted || value.is_undefined()) return iterate(value)->items.size();
  throw Error{fmt::format("object of type '{}' has no len()", value.type_name())};
}

bool Evaluator::contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      throw Error{
          fmt::format("'in <string>' requires string as left operand, not {}", item.type_name())};
    }
    budget_.search(container.string().size(), item.string().size());
    return find_text(container.string(), item.string()) != std::string::npos;
  }
  if (container.is_dict()) {
    require_hashable(item);
    return container.entries().find(item, budget_) != nullptr;
  }
  const ListPtr items = iterate(container);
  return std::any_of(items->items.begin(), items->items.end(),
                     [&](const Value& other) { return equals(other, item, budget_); });
}

Value Evaluator::get_attribute(const Value& value, std::string_view name) {
  require_defined(value);
  if (value.is_object()) return value.object().get(name, budget_);
  if (has_method(value, name)) {
    budget_.memory(2 * kStringBytes);
    return Value(std::make_shared<BoundMethod>(value, std::string(name)));
  }
  if (is_mutator(value, name)) {
    return undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, value.type_name()));
  }
  if (value.is_dict()) {
    if (const Value* found = value.entries().find(name, budget_)) return *found;
  }
  return undefined(
      fmt::format("'{} object' has no attribute '{}'", value.type_name(), shown(name)));
}

Value item_at(Evaluator& evaluator, const Value& value, int64_t index) {
  const int64_t size = static_cast<int64_t>(evaluator.length(value));
  if (index < 0) index += size;
  if (index < 0 || index >= size) {
    return evaluator.undefined(
        fmt::format("{} object has no element {}", value.type_name(), index));
  }
  if (!value.is_string()) return evaluator.iterate(value)->items[static_cast<size_t>(index)];
  std::string_view rest = value.string();
  evaluator.budget().scan(rest.size());
  if (static_cast<size_t>(size) == rest.size()) {
    return rest.substr(static_cast<size_t>(index), 1);
  }
  for (; index > 0; --index) rest.remove_prefix(utf8_step(rest).length);
  return rest.substr(0, utf8_step(rest).length);
}

Value Evaluator::get_item(const Value& value, const Value& key) {
  require_defined(value);
  if (value.is_dict()) {
    if (const Value* found = value.entries().find(key, budget_)) return *found;
    if (key.is_string()) return get_attribute(value, key.string());
    std::string text;
    append_repr(text, key, budget_);
    return undefined(fmt::format("'dict object' has no attribute {}", shown(text)));
  }
  if (key.is_string()) return get_attribute(value, key.string());
  const bool indexable =
      value.is_string() || value.is_list() ||
      (value.is_object() && value.object().kind_of_items() == Object::Items::kIndexed);
  if (indexable && key.is_integral()) return item_at(*this, value, key.integer());
  return undefined(fmt::format("'{} object' has no such element", value.type_name()));
}

}  // namespace nereid::text::jinja
