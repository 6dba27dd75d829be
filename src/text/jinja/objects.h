// Objects as values: macros, loop, namespaces, bound methods and global functions.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/evaluator.h"

namespace nereid::text::jinja {

class NamespaceObject : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  Value get(std::string_view name, Budget& budget) const override;
  void set(std::string_view name, Value value, Budget& budget);
  void clear() { attributes_.clear(); }

 private:
  Names attributes_;
};

// A macro, or the caller() of a call block. Scopes are held weakly, so that values form no cycles.
class MacroObject : public Object {
 public:
  MacroObject(const Stmt& stmt, std::string name, const ScopePtr& scope)
      : stmt_(stmt), name_(std::move(name)), scope_(scope) {}
  std::string_view type_name() const override { return "Macro"; }
  Value get(std::string_view name, Budget& budget) const override;
  bool callable() const override { return true; }
  Value call(Evaluator& evaluator, Args& args) override;

 private:
  const Stmt& stmt_;
  std::string name_;
  std::weak_ptr<Scope> scope_;
};

// The variable `loop`.
class LoopObject : public Object, public std::enable_shared_from_this<LoopObject> {
 public:
  LoopObject(const Stmt& stmt, ListPtr items, const ScopePtr& scope, int loop_depth);
  std::string_view type_name() const override { return "LoopContext"; }
  Value get(std::string_view name, Budget& budget) const override;
  bool callable() const override { return stmt_.recursive; }
  Value call(Evaluator& evaluator, Args& args) override;
  Value cycle(const Args& args) const;
  Value changed(Evaluator& evaluator, Args& args);
  size_t index0 = 0;

 private:
  const Stmt& stmt_;
  ListPtr items_;
  std::weak_ptr<Scope> scope_;
  int loop_depth_;
  std::optional<std::string> last_changed_;  // as text: a value could contain the loop itself
};

// A method or function as a value.
class FunctionObject : public Object {
 public:
  using Function = Value (*)(Evaluator&, const Value& self, Args&);
  FunctionObject(std::string name, Function function, Value self = {})
      : name_(std::move(name)), function_(function), self_(std::move(self)) {
    depth = self_.depth() + 1;
  }
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value call(Evaluator& evaluator, Args& args) override {
    return function_(evaluator, self_, args);
  }

 private:
  std::string name_;
  Function function_;
  Value self_;
};

// A method of a string, list or dict, not yet called.
class BoundMethod : public Object {
 public:
  BoundMethod(Value self, std::string name) : self_(std::move(self)), name_(std::move(name)) {
    depth = self_.depth() + 1;
  }
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Evaluator& evaluator, Args& args) override;

 private:
  Value self_;
  std::string name_;
};

// A group of the groupby filter: a pair with the names "grouper" and "list".
class GroupObject : public Object {
 public:
  GroupObject(const Value& grouper, const Value& list);
  std::string_view type_name() const override { return "_GroupTuple"; }
  Value get(std::string_view name, Budget& budget) const override;
  Items kind_of_items() const override { return Items::kIndexed; }
  ListPtr take_items() override { return pair_; }
  bool append_repr(std::string& out, Budget& budget) const override;

 private:
  ListPtr pair_;
};

// The result of a dict's items(), keys() and values(): iterable, without index.
class ViewObject : public Object {
 public:
  // `type`: "dict_items", "dict_keys" or "dict_values".
  ViewObject(std::string_view type, const Value& list);
  std::string_view type_name() const override { return type_; }
  Items kind_of_items() const override { return Items::kCounted; }
  ListPtr take_items() override { return items_; }
  bool truthy() const override { return !items_->items.empty(); }
  bool append_repr(std::string& out, Budget& budget) const override;

 private:
  std::string_view type_;
  ListPtr items_;
};

// The result of filters such as map and select: iterable once, and true even when empty.
class GeneratorObject : public Object {
 public:
  explicit GeneratorObject(const Value& list);
  std::string_view type_name() const override { return "generator"; }
  Items kind_of_items() const override { return Items::kOnce; }
  ListPtr take_items() override;

 private:
  ListPtr items_;  // null once taken
};

// A generator over `items`.
Value generator(std::vector<Value> items);

// range, dict, namespace, raise_exception, strftime_now, cycler, joiner; nullopt for other names.
std::optional<Value> global(std::string_view name);

// Whether str, list or dict has a method of that name that templates may call.
bool has_method(const Value& self, std::string_view name);
// Methods that would change a list or dict, which the sandbox refuses.
bool is_mutator(const Value& self, std::string_view name);
Value call_method(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args);

}  // namespace nereid::text::jinja
