// The evaluator: walks the syntax tree of one template for one rendering.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/budget.h"
#include "text/jinja/names.h"
#include "text/jinja/value.h"

namespace nereid::text::jinja {

// Variables of a block; lookups continue in the parent.
struct Scope {
  Names variables;
  std::shared_ptr<Scope> parent;
};
using ScopePtr = std::shared_ptr<Scope>;

class NamespaceObject;

// Statements are in eval_stmt.cc, expressions in eval_expr.cc. Every member may throw Error.
class Evaluator {
 public:
  explicit Evaluator(const Limits& limits);
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  std::string run(const Body& body, const json::object& context);

  Budget& budget() { return budget_; }
  std::string str(const Value& value) { return to_str(value, budget_); }

  // The elements of an iterable: list and tuple items, dict keys, characters of a string.
  ListPtr iterate(const Value& value);
  size_t length(const Value& value);
  bool contains(const Value& container, const Value& item);
  Value get_attribute(const Value& value, std::string_view name);
  Value get_item(const Value& value, const Value& key);
  Value call(const Value& callee, Args& args);
  Value apply_filter(std::string_view name, const Value& subject, const Args& args);
  bool apply_test(std::string_view name, const Value& subject, const Args& args);
  // An undefined value, charged. `hint` holds names as from shown().
  Value undefined(std::string hint);
  // Throws the undefined value's own message if it is undefined.
  void require_defined(const Value& value);

  // Runs a macro or call block in a new scope below `scope`.
  Value call_macro(const Stmt& macro, std::string_view name, ScopePtr scope, Args& args);
  // Runs loop `stmt` over other items: loop(...) of a recursive loop.
  Value call_loop(const Stmt& stmt, const Value& items, ScopePtr scope, int depth);
  // A new namespace. Namespaces can form cycles; they are emptied when the rendering ends.
  Value new_namespace(std::vector<std::pair<std::string, Value>> attributes);

 private:
  enum class Flow { kNormal, kBreak, kContinue };
  class Depth;
  class ScopeSwitch;

  Value eval(const Expr& expr);
  Value eval_inner(const Expr& expr);
  Value eval_sign(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_list(const Expr& expr);
  Value eval_dict(const Expr& expr);
  Value eval_compare(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_slice(const Expr& expr);
  Value eval_call(const Expr& expr, const Value* caller);
  Value eval_filter(const Expr& expr, const Value* block_text);
  Value eval_test(const Expr& expr);
  Args eval_args(const CallArgs& args);

  Flow exec(const Body& body, std::string& out);
  Flow exec(const Stmt& stmt, std::string& out);
  Flow exec_if(const Stmt& stmt, std::string& out);
  Flow exec_loop(const Stmt& stmt, const Value& items, int depth, std::string& out);
  ListPtr filter_items(const Stmt& stmt, ListPtr items);
  void exec_set_block(const Stmt& stmt);
  void exec_with(const Stmt& stmt, std::string& out);
  void exec_call(const Stmt& stmt, std::string& out);
  std::string render_scoped(const Body& body);
  void assign(const Expr& target, const Value& value);
  void set_variable(std::string_view name, Value value);
  void bind_macro_args(const Stmt& macro, std::string_view name, Args& args);
  void print(const Value& value, std::string& out);
  void write(std::string_view text, std::string& out);

  const Limits limits_;
  Budget budget_;
  ScopePtr root_;
  ScopePtr scope_;
  int depth_ = 0;
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
};

// The element of a list, tuple or string at `index` (negative from the end); undefined outside.
Value item_at(Evaluator& evaluator, const Value& value, int64_t index);

}  // namespace nereid::text::jinja
