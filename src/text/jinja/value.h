// Values of the template language: Python's data model as far as chat templates see it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "text/jinja/budget.h"

namespace nereid::text::jinja {

class Value;
class Evaluator;
struct Args;

struct Undefined {
  std::shared_ptr<const std::string> hint;  // "'x' is undefined"
};
struct None {};

// A list or tuple. Never changes after it was made, so values form no cycles through it.
struct ListData {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;  // nesting; bounded so that walking and freeing a value needs bounded stack
};

// A dict in insertion order; lookup is linear, which is what small JSON objects like best.
struct DictData {
  std::vector<std::pair<Value, Value>> items;
  int depth = 1;
  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key, Budget& budget) const;
};

// Everything that is not data: functions, macros, loop, namespaces.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  // The attribute; an undefined value when there is none.
  virtual Value get(std::string_view name) const;
  virtual bool callable() const { return false; }
  virtual Value call(Evaluator& evaluator, Args& args);
  // What can be done with its items: nothing, walk them once, walk them and count, index too.
  enum class Items { kNone, kOnce, kCounted, kIndexed };
  virtual Items kind_of_items() const { return Items::kNone; }
  // Null for kNone; empty for kOnce after the first time.
  virtual std::shared_ptr<const ListData> take_items() { return nullptr; }
  virtual bool truthy() const { return true; }
  // Python's repr(); false when it would be a type and an address.
  virtual bool append_repr(std::string& out, Budget& budget) const;
  int depth = 1;
};

using StringPtr = std::shared_ptr<const std::string>;
using ListPtr = std::shared_ptr<const ListData>;
using DictPtr = std::shared_ptr<const DictData>;
using ObjectPtr = std::shared_ptr<Object>;

class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(None) : data_(None{}) {}
  Value(bool b) : data_(b) {}
  Value(int64_t i) : data_(i) {}
  Value(double d) : data_(d) {}
  Value(std::string s) : data_(std::make_shared<const std::string>(std::move(s))) {}
  Value(std::string_view s) : Value(std::string(s)) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(ObjectPtr object) : data_(std::move(object)) {}
  static Value undefined(std::string hint);
  // Both throw Error when the value would be nested deeper than kMaxValueDepth.
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value tuple(std::vector<Value> items) { return list(std::move(items), true); }
  static Value dict(std::vector<std::pair<Value, Value>> items);

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<None>() != nullptr; }
  bool is_bool() const { return as<bool>() != nullptr; }
  bool is_int() const { return as<int64_t>() != nullptr; }
  bool is_float() const { return as<double>() != nullptr; }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return as<StringPtr>() != nullptr; }
  bool is_list() const { return as<ListPtr>() != nullptr; }
  bool is_dict() const { return as<DictPtr>() != nullptr; }
  bool is_object() const { return as<ObjectPtr>() != nullptr; }

  // Only for values of that type.
  const std::string& string() const { return **as<StringPtr>(); }
  const ListData& items() const { return **as<ListPtr>(); }
  const DictData& entries() const { return **as<DictPtr>(); }
  Object& object() const { return **as<ObjectPtr>(); }

  // bool and int as int64.
  bool is_integral() const { return is_bool() || is_int(); }
  int64_t integer() const { return is_bool() ? *as<bool>() : *as<int64_t>(); }
  double number() const { return is_float() ? *as<double>() : static_cast<double>(integer()); }

  bool truthy() const;
  int depth() const;
  // Python's name of the type: "str", "int", "list", ...
  std::string_view type_name() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, StringPtr, ListPtr, DictPtr, ObjectPtr>
      data_;
};

inline constexpr int kMaxValueDepth = 160;

// Positional and keyword arguments of a call.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Python's str() and repr(). They throw Error beyond the budget.
std::string to_str(const Value& value, Budget& budget);
void append_str(std::string& out, const Value& value, Budget& budget);
void append_repr(std::string& out, const Value& value, Budget& budget);
// Shortest text that reads back as the same double, in Python's form ("1.0", "1e+20", "nan").
std::string float_repr(double value);

// Throws Error for a value that no dict can have as a key: a list or dict.
void require_hashable(const Value& key);

bool equals(const Value& a, const Value& b, Budget& budget);
// a < b; throws Error for types that have no order.
bool less(const Value& a, const Value& b, Budget& budget);

// JSON data as a value. Throws Error when nested too deep.
Value from_json(const json::value& value, Budget& budget, int depth = 0);

struct JsonStyle {
  int indent = -1;  // spaces per level; -1 = one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool ensure_ascii = false;
  bool sort_keys = false;
};
// Python's json.dumps. Throws Error for values that JSON cannot hold.
std::string dump_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace nereid::text::jinja
