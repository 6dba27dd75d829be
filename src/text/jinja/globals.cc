// Global functions of every template.
#include <fmt/format.h>

#include <ctime>

#include "text/jinja/args.h"
#include "text/jinja/objects.h"

namespace nereid::text::jinja {

namespace {

constexpr int64_t kMaxRange = 100'000;  // as in the reference sandbox

class RangeObject : public Object {
 public:
  RangeObject(int64_t start, int64_t stop, int64_t step, const Value& list)
      : start_(start), stop_(stop), step_(step), items_(*list.as<ListPtr>()) {
    depth = list.depth() + 1;
  }
  std::string_view type_name() const override { return "range"; }
  Items kind_of_items() const override { return Items::kIndexed; }
  ListPtr take_items() override { return items_; }
  bool truthy() const override { return !items_->items.empty(); }
  bool append_repr(std::string& out, Budget&) const override {
    out += fmt::format("range({}, {}", start_, stop_);
    out += step_ == 1 ? ")" : fmt::format(", {})", step_);
    return true;
  }

 private:
  int64_t start_, stop_, step_;
  ListPtr items_;
};

Value range(Evaluator& evaluator, const Value&, Args& args) {
  const ArgReader reader(evaluator, args, "range", {"start", "stop", "step"}, 1);
  const int64_t start = reader.given(1) ? reader.integer(0, 0) : 0;
  const int64_t stop = reader.given(1) ? reader.integer(1, 0) : reader.integer(0, 0);
  const int64_t step = reader.integer(2, 1);
  if (step == 0) throw Error{"range() arg 3 must not be zero"};
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      throw Error{fmt::format("range is longer than {}", kMaxRange), 0, true};
    }
    evaluator.budget().memory(sizeof(Value));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value(std::make_shared<RangeObject>(start, stop, step, Value::list(std::move(items))));
}

// Adds the argument of dict(), a dict or pairs, to `out`.
void put_all(Evaluator& evaluator, const Value& value, DictBuilder& out) {
  if (value.is_dict()) {
    for (const auto& [key, item] : value.entries().items) out.put(key, item);
    return;
  }
  evaluator.require_defined(value);
  for (const ListPtr all = evaluator.iterate(value); const Value& item : all->items) {
    const ListPtr pair = evaluator.iterate(item);
    if (pair->items.size() != 2) throw Error{"dict() takes a dict or pairs"};
    out.put(pair->items[0], pair->items[1]);
  }
}

Value dict(Evaluator& evaluator, const Value&, Args& args) {
  if (args.positional.size() > 1) throw Error{"dict() takes one value and keyword arguments"};
  DictBuilder out(evaluator.budget());
  for (const Value& base : args.positional) put_all(evaluator, base, out);
  for (auto& [name, value] : args.named) out.put(Value(name), std::move(value));
  return out.take();
}

Value make_namespace(Evaluator& evaluator, const Value&, Args& args) {
  if (args.positional.size() > 1) throw Error{"namespace() takes one value and keyword arguments"};
  DictBuilder base(evaluator.budget());
  for (const Value& value : args.positional) put_all(evaluator, value, base);
  std::vector<std::pair<std::string, Value>> attributes;
  const Value entries = base.take();
  for (const auto& [key, value] : entries.entries().items) {
    attributes.emplace_back(evaluator.str(key), value);
  }
  for (auto& entry : args.named) attributes.push_back(std::move(entry));
  return evaluator.new_namespace(std::move(attributes));
}

Value raise_exception(Evaluator& evaluator, const Value&, Args& args) {
  const ArgReader reader(evaluator, args, "raise_exception", {"message"}, 1);
  throw Error{reader.text(0, "None")};
}

Value strftime_now(Evaluator& evaluator, const Value&, Args& args) {
  const ArgReader reader(evaluator, args, "strftime_now", {"format"}, 1);
  const std::string format = reader.text(0, "");
  if (format.size() > 256) throw Error{"strftime_now() format is longer than 256 bytes"};
  evaluator.budget().work(32 + 4 * format.size());
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[4096];
  const size_t size =
      format.empty() ? 0 : std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  return std::string(buffer, size);
}

class CyclerObject : public Object {
 public:
  explicit CyclerObject(ListPtr items) : items_(std::move(items)) { depth = items_->depth + 1; }
  std::string_view type_name() const override { return "Cycler"; }
  Value get(std::string_view name, Budget& budget) const override {
    if (name == "current") return items_->items[at_];
    if (name == "next" || name == "reset") {
      budget.memory(4 * kStringBytes);
      // The object outlives the method value: both hold the same pointer.
      return Value(std::make_shared<FunctionObject>(
          std::string(name), name == "next" ? &CyclerObject::next : &CyclerObject::reset,
          Value(std::const_pointer_cast<Object>(self_.lock()))));
    }
    return Object::get(name, budget);
  }
  std::weak_ptr<const Object> self_;

 private:
  static Value next(Evaluator&, const Value& self, Args&) {
    auto& cycler = static_cast<CyclerObject&>(self.object());
    const Value current = cycler.items_->items[cycler.at_];
    cycler.at_ = (cycler.at_ + 1) % cycler.items_->items.size();
    return current;
  }
  static Value reset(Evaluator&, const Value& self, Args&) {
    static_cast<CyclerObject&>(self.object()).at_ = 0;
    return None{};
  }
  ListPtr items_;
  size_t at_ = 0;
};

Value cycler(Evaluator&, const Value&, Args& args) {
  if (args.positional.empty()) throw Error{"at least one item has to be provided"};
  const Value items = Value::list(std::move(args.positional));
  auto object = std::make_shared<CyclerObject>(*items.as<ListPtr>());
  object->self_ = object;
  return Value(ObjectPtr(std::move(object)));
}

class JoinerObject : public Object {
 public:
  explicit JoinerObject(std::string separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Evaluator&, Args&) override {
    return std::exchange(used_, true) ? separator_ : std::string();
  }

 private:
  std::string separator_;
  bool used_ = false;
};

Value joiner(Evaluator& evaluator, const Value&, Args& args) {
  const ArgReader reader(evaluator, args, "joiner", {"sep"});
  return Value(std::make_shared<JoinerObject>(reader.text(0, ", ")));
}

}  // namespace

std::optional<Value> global(std::string_view name) {
  static constexpr std::pair<std::string_view, FunctionObject::Function> kGlobals[] = {
      {"range", range},
      {"dict", dict},
      {"namespace", make_namespace},
      {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
      {"cycler", cycler},
      {"joiner", joiner}};
  for (const auto& [own, function] : kGlobals) {
    if (own == name) return Value(std::make_shared<FunctionObject>(std::string(name), function));
  }
  return std::nullopt;
}

}  // namespace nereid::text::jinja
