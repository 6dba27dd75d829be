// Execution of statements.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/eval_depth.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/objects.h"

namespace nereid::text::jinja {

namespace {

ScopePtr new_scope(const ScopePtr& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

}  // namespace

Evaluator::Evaluator(const Limits& limits)
    : limits_(limits), budget_(limits), root_(std::make_shared<Scope>()), scope_(root_) {}

Evaluator::~Evaluator() {
  for (const auto& object : namespaces_) object->clear();
}

std::string Evaluator::run(const Body& body, const json::object& context) {
  for (const auto& entry : context) {
    set_variable(std::string_view(entry.key().data(), entry.key().size()),
                 from_json(entry.value(), budget_));
  }
  std::string out;
  exec(body, out);
  return out;
}

Value Evaluator::new_namespace(std::vector<std::pair<std::string, Value>> attributes) {
  budget_.memory(256);
  auto object = std::make_shared<NamespaceObject>();
  for (auto& [name, value] : attributes) object->set(name, std::move(value), budget_);
  namespaces_.push_back(object);
  return Value(ObjectPtr(std::move(object)));
}

void Evaluator::write(std::string_view text, std::string& out) {
  if (out.size() + text.size() > limits_.max_output) {
    throw Error{fmt::format("output is longer than {} bytes", limits_.max_output), 0, true};
  }
  budget_.memory(text.size());
  out += text;
}

void Evaluator::print(const Value& value, std::string& out) {
  if (value.is_string()) return write(value.string(), out);
  write(str(value), out);
}

Evaluator::Flow Evaluator::exec(const Body& body, std::string& out) {
  for (const auto& stmt : body) {
    const Flow flow = exec(*stmt, out);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::exec(const Stmt& stmt, std::string& out) {
  const Depth depth(*this);
  budget_.work();
  try {
    switch (stmt.kind) {
      case Stmt::kText:
        write(stmt.text, out);
        break;
      case Stmt::kPrint:
        print(eval(*stmt.expr), out);
        break;
      case Stmt::kIf:
        return exec_if(stmt, out);
      case Stmt::kFor:
        return exec_loop(stmt, eval(*stmt.expr), 1, out);
      case Stmt::kSet:
        assign(*stmt.target, eval(*stmt.expr));
        break;
      case Stmt::kSetBlock:
        exec_set_block(stmt);
        break;
      case Stmt::kMacro:
        budget_.memory(4 * kStringBytes);
        set_variable(stmt.text, Value(std::make_shared<MacroObject>(stmt, stmt.text, scope_)));
        break;
      case Stmt::kCall:
        exec_call(stmt, out);
        break;
      case Stmt::kFilter: {
        const Value text(render_scoped(stmt.body));
        print(eval_filter(*stmt.expr, &text), out);
        break;
      }
      case Stmt::kWith:
        exec_with(stmt, out);
        break;
      case Stmt::kScope: {
        const ScopeSwitch inner(*this, new_scope(scope_));
        return exec(stmt.body, out);
      }
      case Stmt::kBreak:
        return Flow::kBreak;
      case Stmt::kContinue:
        return Flow::kContinue;
    }
  } catch (Error& error) {
    if (error.line == 0) error.line = stmt.line;
    throw;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::exec_if(const Stmt& stmt, std::string& out) {
  for (const auto& [test, body] : stmt.branches) {
    if (eval(*test).truthy()) return exec(body, out);
  }
  return exec(stmt.orelse, out);
}

// The items for which the loop's condition holds; the condition can use the targets but not `loop`.
ListPtr Evaluator::filter_items(const Stmt& stmt, ListPtr items) {
  if (!stmt.filter) return items;
  auto kept = std::make_shared<ListData>();
  kept->depth = items->depth;
  for (const Value& item : items->items) {
    const ScopeSwitch inner(*this, new_scope(scope_));
    assign(*stmt.target, item);
    if (!eval(*stmt.filter).truthy()) continue;
    budget_.memory(sizeof(Value));
    kept->items.push_back(item);
  }
  return kept;
}

Evaluator::Flow Evaluator::exec_loop(const Stmt& stmt, const Value& iterable, int depth,
                                     std::string& out) {
  const ListPtr items = filter_items(stmt, iterate(iterable));
  if (items->items.empty()) {
    const ScopeSwitch inner(*this, new_scope(scope_));
    return exec(stmt.orelse, out);
  }
  const auto loop = std::make_shared<LoopObject>(stmt, items, scope_, depth);
  const ScopePtr outer = scope_;
  for (size_t i = 0; i < items->items.size(); ++i) {
    budget_.work();
    loop->index0 = i;
    const ScopeSwitch inner(*this, new_scope(outer));
    set_variable("loop", Value(ObjectPtr(loop)));
    assign(*stmt.target, items->items[i]);
    if (exec(stmt.body, out) == Flow::kBreak) break;
  }
  return Flow::kNormal;
}

Value Evaluator::call_loop(const Stmt& stmt, const Value& items, ScopePtr scope, int depth) {
  const Depth guard(*this);
  const ScopeSwitch inner(*this, scope ? std::move(scope) : root_);
  std::string out;
  exec_loop(stmt, items, depth, out);
  return out;
}

std::string Evaluator::render_scoped(const Body& body) {
  const ScopeSwitch inner(*this, new_scope(scope_));
  std::string out;
  exec(body, out);
  return out;
}

void Evaluator::exec_set_block(const Stmt& stmt) {
  Value value(render_scoped(stmt.body));
  if (stmt.expr) value = eval_filter(*stmt.expr, &value);
  assign(*stmt.target, value);
}

void Evaluator::exec_with(const Stmt& stmt, std::string& out) {
  std::vector<Value> values;
  for (const auto& [target, expr] : stmt.assignments) values.push_back(eval(*expr));
  const ScopeSwitch inner(*this, new_scope(scope_));
  for (size_t i = 0; i < values.size(); ++i) assign(*stmt.assignments[i].first, values[i]);
  exec(stmt.body, out);
}

void Evaluator::exec_call(const Stmt& stmt, std::string& out) {
  const Value caller(std::make_shared<MacroObject>(stmt, "caller", scope_));
  print(eval_call(*stmt.expr, &caller), out);
}

void Evaluator::set_variable(std::string_view name, Value value) {
  scope_->variables.set(name, std::move(value), budget_);
}

void Evaluator::assign(const Expr& target, const Value& value) {
  budget_.work();
  if (target.kind == Expr::kName) {
    set_variable(target.text, value);
  } else if (target.kind == Expr::kAttribute) {
    const Value object = eval(*target.parts[0]);
    auto* space = object.is_object() ? dynamic_cast<NamespaceObject*>(&object.object()) : nullptr;
    if (space == nullptr) throw Error{"cannot assign attribute on non-namespace object"};
    space->set(target.text, value, budget_);
  } else {
    const ListPtr items = iterate(value);
    if (items->items.size() != target.parts.size()) {
      throw Error{fmt::format("cannot unpack {} values into {} targets", items->items.size(),
                              target.parts.size())};
    }
    for (size_t i = 0; i < target.parts.size(); ++i) assign(*target.parts[i], items->items[i]);
  }
}

// Sets the arguments in the current scope.
void Evaluator::bind_macro_args(const Stmt& macro, std::string_view name, Args& args) {
  const Signature& signature = macro.signature;
  const size_t count = signature.names.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& parameter = signature.names[i];
    budget_.work(1 + args.named.size() / 4);
    const auto named = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const auto& entry) { return entry.first == parameter; });
    const size_t first_default = count - signature.defaults.size();
    if (i < args.positional.size()) {
      if (named != args.named.end()) {
        throw Error{fmt::format("macro '{}' got multiple values for '{}'", name, parameter)};
      }
      set_variable(parameter, args.positional[i]);
    } else if (named != args.named.end()) {
      set_variable(parameter, named->second);
      args.named.erase(named);
    } else if (i >= first_default) {
      set_variable(parameter, eval(*signature.defaults[i - first_default]));
    } else {
      set_variable(parameter, Value::undefined(fmt::format("parameter '{}' was not provided",
                                                           shown(parameter))));
    }
  }
  DictBuilder extra(budget_);
  for (auto& [key, value] : args.named) {
    if (key == "caller" && signature.uses_caller) {
      set_variable(key, value);
    } else if (signature.uses_kwargs) {
      extra.put(Value(key), value);
    } else {
      throw Error{fmt::format("macro '{}' takes no keyword argument '{}'", name, key)};
    }
  }
  if (args.positional.size() > count && !signature.uses_varargs) {
    throw Error{fmt::format("macro '{}' takes not more than {} argument(s)", name, count)};
  }
  if (signature.uses_varargs) {
    const size_t used = std::min(count, args.positional.size());
    budget_.memory((args.positional.size() - used) * sizeof(Value));
    set_variable("varargs", Value::tuple({args.positional.begin() + static_cast<ptrdiff_t>(used),
                                          args.positional.end()}));
  }
  if (signature.uses_kwargs) set_variable("kwargs", extra.take());
}

Value Evaluator::call_macro(const Stmt& macro, std::string_view name, ScopePtr scope, Args& args) {
  const Depth guard(*this);
  const ScopeSwitch inner(*this, new_scope(scope ? scope : root_));
  bind_macro_args(macro, name, args);
  std::string out;
  exec(macro.body, out);
  return out;
}

}  // namespace nereid::text::jinja
