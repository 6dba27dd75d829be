#include "text/jinja/objects.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/args.h"

namespace nereid::text::jinja {

Value NamespaceObject::get(std::string_view name, Budget& budget) const {
  const Value* value = attributes_.find(name, budget);
  return value != nullptr ? *value : Object::get(name, budget);
}

void NamespaceObject::set(std::string_view name, Value value, Budget& budget) {
  if (name.starts_with('_')) {
    throw Error{
        fmt::format("a namespace takes no name that begins with '_', such as '{}'", shown(name))};
  }
  attributes_.set(name, std::move(value), budget);
}

Value MacroObject::get(std::string_view name, Budget& budget) const {
  if (name == "name") return name_;
  if (name == "arguments") {
    for (const std::string& own : stmt_.signature.names)
      budget.memory(own.size() + 2 * kStringBytes);
    std::vector<Value> names(stmt_.signature.names.begin(), stmt_.signature.names.end());
    return Value::tuple(std::move(names));
  }
  return Object::get(name, budget);
}

Value MacroObject::call(Evaluator& evaluator, Args& args) {
  return evaluator.call_macro(stmt_, name_, scope_.lock(), args);
}

Value BoundMethod::call(Evaluator& evaluator, Args& args) {
  return call_method(evaluator, self_, name_, args);
}

GroupObject::GroupObject(const Value& grouper, const Value& list) {
  const Value pair = Value::tuple({grouper, list});
  pair_ = *pair.as<ListPtr>();
  depth = pair.depth() + 1;
}

Value GroupObject::get(std::string_view name, Budget& budget) const {
  if (name == "grouper") return pair_->items[0];
  if (name == "list") return pair_->items[1];
  return Object::get(name, budget);
}

bool GroupObject::append_repr(std::string& out, Budget& budget) const {
  jinja::append_repr(out, Value::tuple(pair_->items), budget);
  return true;
}

ViewObject::ViewObject(std::string_view type, const Value& list)
    : type_(type), items_(*list.as<ListPtr>()) {
  depth = list.depth() + 1;
}

bool ViewObject::append_repr(std::string& out, Budget& budget) const {
  out += type_;
  out += '(';
  jinja::append_repr(out, Value::list(items_->items), budget);
  out += ')';
  return true;
}

GeneratorObject::GeneratorObject(const Value& list) : items_(*list.as<ListPtr>()) {
  depth = list.depth() + 1;
}

ListPtr GeneratorObject::take_items() {
  ListPtr items = std::exchange(items_, nullptr);
  return items ? items : std::make_shared<const ListData>();
}

Value generator(std::vector<Value> items) {
  return Value(std::make_shared<GeneratorObject>(Value::list(std::move(items))));
}

LoopObject::LoopObject(const Stmt& stmt, ListPtr items, const ScopePtr& scope, int loop_depth)
    : stmt_(stmt), items_(std::move(items)), scope_(scope), loop_depth_(loop_depth) {
  depth = items_->depth + 1;
}

Value LoopObject::get(std::string_view name, Budget& budget) const {
  const int64_t index = static_cast<int64_t>(index0);
  const int64_t size = static_cast<int64_t>(items_->items.size());
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return size - index;
  if (name == "revindex0") return size - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == size;
  if (name == "length") return size;
  if (name == "depth") return int64_t{loop_depth_};
  if (name == "depth0") return int64_t{loop_depth_ - 1};
  if (name == "previtem") {
    return index > 0 ? items_->items[index0 - 1] : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index + 1 < size ? items_->items[index0 + 1] : Value::undefined("there is no next item");
  }
  budget.memory(4 * kStringBytes);
  const auto self = std::const_pointer_cast<LoopObject>(shared_from_this());
  if (name == "cycle") {
    return Value(std::make_shared<FunctionObject>(
        "cycle",
        [](Evaluator&, const Value& loop, Args& args) {
          return static_cast<LoopObject&>(loop.object()).cycle(args);
        },
        Value(ObjectPtr(self))));
  }
  if (name == "changed") {
    return Value(std::make_shared<FunctionObject>(
        "changed",
        [](Evaluator& evaluator, const Value& loop, Args& args) {
          return static_cast<LoopObject&>(loop.object()).changed(evaluator, args);
        },
        Value(ObjectPtr(self))));
  }
  return Object::get(name, budget);
}

Value LoopObject::cycle(const Args& args) const {
  if (args.positional.empty()) throw Error{"no items for cycling given"};
  return args.positional[index0 % args.positional.size()];
}

Value LoopObject::changed(Evaluator& evaluator, Args& args) {
  std::string now;
  jinja::append_repr(now, Value::tuple(std::move(args.positional)), evaluator.budget());
  if (last_changed_ == now) return false;
  last_changed_ = std::move(now);
  return true;
}

Value LoopObject::call(Evaluator& evaluator, Args& args) {
  if (!stmt_.recursive) {
    throw Error{"the loop must have the 'recursive' marker to be called recursively"};
  }
  const ArgReader reader(evaluator, args, "loop", {"iterable"}, 1);
  return evaluator.call_loop(stmt_, reader.value(0), scope_.lock(), loop_depth_ + 1);
}

}  // namespace nereid::text::jinja
