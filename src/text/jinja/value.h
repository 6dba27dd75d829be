// Values of the template language: Python's data model, as far as chat templates use it.
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
#include "text/jinja/hash_index.h"

namespace nereid::text::jinja {

inline constexpr size_t kStringBytes = 56;  // overhead of a string or object

class Value;
class Evaluator;
struct Args;

struct Undefined {
  std::shared_ptr<const std::string> hint;  // "'x' is undefined"
};
struct None {};

// A number that neither an int64 nor a double holds exactly: a double in arithmetic, its
// text when printed.
struct LongNumber {
  std::string text;  // JSON
  double value = 0;
  bool is_whole = false;  // Python's int
};

// A list or tuple. Immutable, so values form no cycles through it.
struct ListData {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;  // nesting; bounded so that walking and freeing a value needs bounded stack
};

// A dict in insertion order, made by DictBuilder.
struct DictData {
  std::vector<std::pair<Value, Value>> items;
  HashIndex index;  // of all items, if more than HashIndex::kFew
  int depth = 1;
  const Value* find(const Value& key, Budget& budget) const;
  const Value* find(std::string_view key, Budget& budget) const;

 private:
  friend class DictBuilder;
  size_t position(const Value& key, Budget& budget) const;
  size_t position(std::string_view key, Budget& budget) const;
};

// Values that are no data: functions, macros, loop, namespaces.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  // The attribute; an undefined value when there is none.
  virtual Value get(std::string_view name, Budget& budget) const;
  virtual bool callable() const { return false; }
  virtual Value call(Evaluator& evaluator, Args& args);
  // Operations on the items: none; iterate once; iterate and count; also index.
  enum class Items { kNone, kOnce, kCounted, kIndexed };
  virtual Items kind_of_items() const { return Items::kNone; }
  // Null for kNone; empty for kOnce after the first call.
  virtual std::shared_ptr<const ListData> take_items() { return nullptr; }
  virtual bool truthy() const { return true; }
  // Python's repr(); false when it would be a type and an address.
  virtual bool append_repr(std::string& out, Budget& budget) const;
  int depth = 1;
};

using StringPtr = std::shared_ptr<const std::string>;
using LongNumberPtr = std::shared_ptr<const LongNumber>;
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
  Value(LongNumber n) : data_(std::make_shared<const LongNumber>(std::move(n))) {}
  Value(std::string s) : data_(std::make_shared<const std::string>(std::move(s))) {}
  Value(std::string_view s) : Value(std::string(s)) {}
  Value(const char* s) : Value(std::string(s)) {}
  Value(ObjectPtr object) : data_(std::move(object)) {}
  static Value undefined(std::string hint);
  // Throws Error when the value would be nested deeper than kMaxValueDepth.
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value tuple(std::vector<Value> items) { return list(std::move(items), true); }

  template <class T>
  const T* as() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return as<Undefined>() != nullptr; }
  bool is_none() const { return as<None>() != nullptr; }
  bool is_bool() const { return as<bool>() != nullptr; }
  bool is_int() const { return as<int64_t>() != nullptr; }
  bool is_float() const { return as<double>() != nullptr || is_long_number(); }
  bool is_long_number() const { return as<LongNumberPtr>() != nullptr; }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return as<StringPtr>() != nullptr; }
  bool is_list() const { return as<ListPtr>() != nullptr; }
  bool is_dict() const { return as<DictPtr>() != nullptr; }
  bool is_object() const { return as<ObjectPtr>() != nullptr; }

  // Precondition: the value has that type.
  const std::string& string() const { return **as<StringPtr>(); }
  const ListData& items() const { return **as<ListPtr>(); }
  const DictData& entries() const { return **as<DictPtr>(); }
  Object& object() const { return **as<ObjectPtr>(); }

  // bool and int as int64.
  bool is_integral() const { return is_bool() || is_int(); }
  int64_t integer() const { return is_bool() ? *as<bool>() : *as<int64_t>(); }
  double number() const {
    if (is_long_number()) return long_number().value;
    return is_float() ? *as<double>() : static_cast<double>(integer());
  }
  const LongNumber& long_number() const { return **as<LongNumberPtr>(); }

  // Whether the value is an int in Python.
  bool is_whole() const { return is_long_number() ? long_number().is_whole : is_int(); }

  bool truthy() const;
  int depth() const;
  // Python's name of the type: "str", "int", "list", ...
  std::string_view type_name() const;

 private:
  friend class DictBuilder;
  std::variant<Undefined, None, bool, int64_t, double, LongNumberPtr, StringPtr, ListPtr, DictPtr,
               ObjectPtr>
      data_;
};

inline constexpr int kMaxValueDepth = 160;

// Fills one dict. Throws Error beyond the budget.
class DictBuilder {
 public:
  explicit DictBuilder(Budget& budget) : budget_(budget), data_(std::make_shared<DictData>()) {}
  // Python's dict[key] = value. Throws Error for an unhashable key: a list or dict.
  void put(Value key, Value value);
  // put() for a new string key.
  void add(Value key, Value value);
  // Throws Error when the value would be nested deeper than kMaxValueDepth.
  Value take();

 private:
  Budget& budget_;
  std::shared_ptr<DictData> data_;
};

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

// Throws Error for an unhashable value: a list or dict.
void require_hashable(const Value& key);
// The first `max_bytes` of a name or text, for an error message.
std::string_view shown(std::string_view text, size_t max_bytes = 64);

bool equals(const Value& a, const Value& b, Budget& budget);
// a < b; throws Error for types without an order.
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
// Python's json.dumps. Throws Error for values that JSON does not have.
std::string dump_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace nereid::text::jinja
