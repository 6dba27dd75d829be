#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/hash/hash.h"
#include "base/json_exact.h"
#include "text/unicode/python.h"
#include "text/unicode/utf8.h"

namespace nereid::text::jinja {

namespace {

void check_depth(int depth) {
  if (depth > kMaxValueDepth) throw Error{"value is nested too deep", 0, true};
}

}  // namespace

Value Object::get(std::string_view name, Budget& budget) const {
  budget.memory(2 * kStringBytes);
  return Value::undefined(
      fmt::format("'{} object' has no attribute '{}'", type_name(), shown(name)));
}

bool Object::append_repr(std::string&, Budget&) const { return false; }

Value Object::call(Evaluator&, Args&) {
  throw Error{fmt::format("'{}' object is not callable", type_name())};
}

Value Value::undefined(std::string hint) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(hint))};
  return value;
}

Value Value::list(std::vector<Value> items, bool is_tuple) {
  auto data = std::make_shared<ListData>();
  for (const Value& item : items) data->depth = std::max(data->depth, item.depth() + 1);
  check_depth(data->depth);
  data->items = std::move(items);
  data->is_tuple = is_tuple;
  Value value;
  value.data_ = ListPtr(std::move(data));
  return value;
}

int Value::depth() const {
  if (is_list()) return items().depth;
  if (is_dict()) return entries().depth;
  if (is_object()) return object().depth;
  return 0;
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0.0;
  if (is_string()) return !string().empty();
  if (is_list()) return !items().items.empty();
  if (is_dict()) return !entries().items.empty();
  return object().truthy();
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_whole()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_list()) return items().is_tuple ? "tuple" : "list";
  if (is_dict()) return "dict";
  return object().type_name();
}

std::string_view shown(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

void require_hashable(const Value& key) {
  if (key.is_dict() || (key.is_list() && !key.items().is_tuple)) {
    throw Error{fmt::format("unhashable type: '{}'", key.type_name())};
  }
}

namespace {

// Equal values have equal hashes: 1, 1.0 and true are one key.
size_t hash_of(const Value& key, Budget& budget) {
  budget.work();
  if (key.is_string()) {
    budget.scan(key.string().size());
    return hash_of_text(key.string());
  }
  if (key.is_number()) return absl::HashOf(key.number() == 0.0 ? 0.0 : key.number());
  if (key.is_object()) return absl::HashOf(&key.object());
  size_t hash = absl::HashOf(key.is_none(), key.is_list(), key.is_dict());
  if (!key.is_list()) return hash;
  for (const Value& item : key.items().items) hash = absl::HashOf(hash, hash_of(item, budget));
  return hash;
}

}  // namespace

const Value* DictData::find(const Value& key, Budget& budget) const {
  const size_t at = position(key, budget);
  return at == HashIndex::kNone ? nullptr : &items[at].second;
}

const Value* DictData::find(std::string_view key, Budget& budget) const {
  const size_t at = position(key, budget);
  return at == HashIndex::kNone ? nullptr : &items[at].second;
}

size_t DictData::position(const Value& key, Budget& budget) const {
  if (key.is_string()) return position(std::string_view(key.string()), budget);
  const auto is_key = [&](size_t i) { return equals(items[i].first, key, budget); };
  if (items.size() > HashIndex::kFew) return index.find(hash_of(key, budget), is_key);
  for (size_t i = 0; i < items.size(); ++i) {
    if (is_key(i)) return i;
  }
  return HashIndex::kNone;
}

size_t DictData::position(std::string_view key, Budget& budget) const {
  budget.scan(key.size());
  const auto is_key = [&](size_t i) {
    return items[i].first.is_string() && items[i].first.string() == key;
  };
  if (items.size() > HashIndex::kFew) return index.find(hash_of_text(key), is_key);
  for (size_t i = 0; i < items.size(); ++i) {
    if (is_key(i)) return i;
  }
  return HashIndex::kNone;
}

void DictBuilder::put(Value key, Value value) {
  require_hashable(key);
  const size_t at = data_->position(key, budget_);
  if (at == HashIndex::kNone) return add(std::move(key), std::move(value));
  data_->depth = std::max(data_->depth, value.depth() + 1);
  data_->items[at].second = std::move(value);
}

void DictBuilder::add(Value key, Value value) {
  budget_.memory(2 * sizeof(Value) + HashIndex::kEntryBytes);
  data_->depth = std::max({data_->depth, key.depth() + 1, value.depth() + 1});
  auto& items = data_->items;
  items.emplace_back(std::move(key), std::move(value));
  if (items.size() <= HashIndex::kFew) return;
  for (size_t i = items.size() == HashIndex::kFew + 1 ? 0 : items.size() - 1; i < items.size();
       ++i) {
    data_->index.add(hash_of(items[i].first, budget_), i);
  }
}

Value DictBuilder::take() {
  check_depth(data_->depth);
  Value value;
  value.data_ = DictPtr(std::exchange(data_, std::make_shared<DictData>()));
  return value;
}

bool equals(const Value& a, const Value& b, Budget& budget) {
  budget.work();
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.is_string() && b.is_string()) {
    budget.scan(std::min(a.string().size(), b.string().size()));
    return a.string() == b.string();
  }
  if (a.is_list() && b.is_list()) {
    const ListData& x = a.items();
    const ListData& y = b.items();
    if (x.is_tuple != y.is_tuple || x.items.size() != y.items.size()) return false;
    for (size_t i = 0; i < x.items.size(); ++i) {
      if (!equals(x.items[i], y.items[i], budget)) return false;
    }
    return true;
  }
  if (a.is_dict() && b.is_dict()) {
    if (a.entries().items.size() != b.entries().items.size()) return false;
    for (const auto& [key, value] : a.entries().items) {
      const Value* other = b.entries().find(key, budget);
      if (other == nullptr || !equals(value, *other, budget)) return false;
    }
    return true;
  }
  if (a.is_object() && b.is_object()) return &a.object() == &b.object();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.work();
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  if (a.is_number() && b.is_number()) return a.number() < b.number();
  if (a.is_string() && b.is_string()) {
    budget.scan(std::min(a.string().size(), b.string().size()));
    return a.string() < b.string();
  }
  if (a.is_list() && b.is_list() && a.items().is_tuple == b.items().is_tuple) {
    const auto& x = a.items().items;
    const auto& y = b.items().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equals(x[i], y[i], budget)) return less(x[i], y[i], budget);
    }
    return x.size() < y.size();
  }
  for (const Value* v : {&a, &b}) {
    if (const auto* undefined = v->as<Undefined>()) {
      throw Error{undefined->hint ? *undefined->hint : "value is undefined"};
    }
  }
  throw Error{fmt::format("'<' not supported between instances of '{}' and '{}'", a.type_name(),
                          b.type_name())};
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string scientific(buffer, end);
  const size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed_end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  if (fixed.find('.') == fixed.npos) fixed += ".0";
  return fixed;
}

namespace {

void append_string_repr(std::string& out, const std::string& text) {
  const bool has_single = text.find('\'') != text.npos;
  const char quote = has_single && text.find('"') == text.npos ? '"' : '\'';
  out += quote;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    const char c = rest[0];
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (step.length == 1 && (static_cast<uint8_t>(c) < 0x20 || c == 0x7F)) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
    } else if (step.kind == Utf8Step::kValid && step.code >= 0x80 &&
               !python::is_printable(step.code)) {
      const uint32_t code = static_cast<uint32_t>(step.code);
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
    } else {
      out += rest.substr(0, step.length);
    }
    rest.remove_prefix(step.length);
  }
  out += quote;
}

void append_list_repr(std::string& out, const ListData& list, Budget& budget) {
  out += list.is_tuple ? '(' : '[';
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, list.items[i], budget);
  }
  if (list.is_tuple && list.items.size() == 1) out += ',';
  out += list.is_tuple ? ')' : ']';
}

}  // namespace

void append_repr(std::string& out, const Value& value, Budget& budget) {
  budget.work();
  if (value.is_string()) {
    budget.memory(value.string().size() * 4);  // an escape is longer
    append_string_repr(out, value.string());
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_none()) {
    out += "None";
  } else if (value.is_bool()) {
    out += *value.as<bool>() ? "True" : "False";
  } else if (value.is_int()) {
    out += std::to_string(value.integer());
  } else if (value.is_long_number()) {
    budget.memory(value.long_number().text.size());
    out += value.long_number().text;
  } else if (value.is_float()) {
    out += float_repr(value.number());
  } else if (value.is_list()) {
    budget.memory(4 * value.items().items.size());
    append_list_repr(out, value.items(), budget);
  } else if (value.is_dict()) {
    budget.memory(8 * value.entries().items.size());
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.entries().items) {
      if (!std::exchange(first, false)) out += ", ";
      append_repr(out, key, budget);
      out += ": ";
      append_repr(out, item, budget);
    }
    out += '}';
  } else if (!value.object().append_repr(out, budget)) {
    out += fmt::format("<{}>", value.type_name());
  }
}

void append_str(std::string& out, const Value& value, Budget& budget) {
  if (value.is_string()) {
    budget.memory(value.string().size());
    out += value.string();
  } else if (!value.is_undefined()) {
    append_repr(out, value, budget);
  }
}

std::string to_str(const Value& value, Budget& budget) {
  std::string out;
  append_str(out, value, budget);
  return out;
}

namespace {

Value long_number_value(std::string_view text, Budget& budget) {
  budget.memory(text.size() + kStringBytes);
  const StatusOr<json::value> number = parse_json(text);
  return LongNumber{.text = std::string(text),
                    .value = number.ok() && number->is_number() ? number->to_number<double>() : 0,
                    .is_whole = text.find_first_of(".eE") == text.npos};
}

}  // namespace

Value from_json(const json::value& value, Budget& budget, int depth) {
  check_depth(depth);
  budget.work();
  if (const std::string_view number = long_number(value); !number.empty())
    return long_number_value(number, budget);
  switch (value.kind()) {
    case json::kind::null:
      return None{};
    case json::kind::bool_:
      return value.get_bool();
    case json::kind::int64:
      return int64_t{value.get_int64()};
    case json::kind::uint64:  // above the range of int64
      return static_cast<double>(value.get_uint64());
    case json::kind::double_:
      return value.get_double();
    case json::kind::string:
      budget.memory(value.get_string().size() + kStringBytes);
      return std::string(value.get_string().data(), value.get_string().size());
    case json::kind::array: {
      std::vector<Value> items;
      budget.memory(value.get_array().size() * sizeof(Value));
      for (const json::value& item : value.get_array()) {
        items.push_back(from_json(item, budget, depth + 1));
      }
      return Value::list(std::move(items));
    }
    case json::kind::object: {
      DictBuilder out(budget);
      for (const auto& entry : value.get_object()) {
        budget.memory(entry.key().size() + kStringBytes);
        out.add(std::string(entry.key().data(), entry.key().size()),
                from_json(entry.value(), budget, depth + 1));
      }
      return out.take();
    }
  }
  return None{};
}

}  // namespace nereid::text::jinja
