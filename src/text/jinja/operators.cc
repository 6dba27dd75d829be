#include "text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/unicode/utf8.h"

namespace nereid::text::jinja {

namespace {

[[noreturn]] void overflow() { throw Error{"integer result does not fit in 64 bits"}; }
[[noreturn]] void zero_division() { throw Error{"division by zero"}; }

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return result;
}

int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) zero_division();
  if (b == -1) {
    if (__builtin_sub_overflow(int64_t{0}, a, &a)) overflow();
    return a;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Value int_op(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &out)) overflow();
  } else if (op == "-") {
    if (__builtin_sub_overflow(a, b, &out)) overflow();
  } else if (op == "*") {
    if (__builtin_mul_overflow(a, b, &out)) overflow();
  } else if (op == "/") {
    if (b == 0) zero_division();
    return static_cast<double>(a) / static_cast<double>(b);
  } else if (op == "//") {
    out = floor_div(a, b);
  } else if (op == "%") {
    if (b == 0) zero_division();
    out = b == -1 ? 0 : a % b;
    if (out != 0 && (out < 0) != (b < 0)) out += b;
  } else {
    if (b < 0 && a == 0) zero_division();
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    if (a == 1 || a == 0 || a == -1) return int64_t{b == 0 ? 1 : (b % 2 != 0 ? a : a * a)};
    out = power(a, b);
  }
  return out;
}

Value float_op(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") {
    if (a == 0 && b < 0) zero_division();
    return std::pow(a, b);
  }
  if (b == 0) zero_division();
  if (op == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == "%") return rest;
  return std::round((a - rest) / b);
}

Value repeat(Evaluator& evaluator, const Value& value, int64_t count) {
  const size_t times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const size_t size =
      value.is_string() ? value.string().size() : value.items().items.size() * sizeof(Value);
  size_t total = 0;
  if (__builtin_mul_overflow(size, times, &total)) total = SIZE_MAX;
  evaluator.budget().memory(total);
  if (size == 0) return value;
  if (value.is_string()) {
    std::string out;
    out.reserve(total);
    for (size_t i = 0; i < times; ++i) out += value.string();
    return out;
  }
  std::vector<Value> out;
  for (size_t i = 0; i < times; ++i) {
    out.insert(out.end(), value.items().items.begin(), value.items().items.end());
  }
  return Value::list(std::move(out), value.items().is_tuple);
}

Value add_sequences(Evaluator& evaluator, const Value& a, const Value& b) {
  if (a.is_string()) {
    evaluator.budget().memory(a.string().size() + b.string().size());
    return a.string() + b.string();
  }
  std::vector<Value> out = a.items().items;
  evaluator.budget().memory((out.size() + b.items().items.size()) * sizeof(Value));
  out.insert(out.end(), b.items().items.begin(), b.items().items.end());
  return Value::list(std::move(out), a.items().is_tuple);
}

bool is_sequence(const Value& value) { return value.is_string() || value.is_list(); }

}  // namespace

Value binary(Evaluator& evaluator, std::string_view op, const Value& a, const Value& b) {
  evaluator.require_defined(a);
  evaluator.require_defined(b);
  if (a.is_integral() && b.is_integral()) return int_op(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return float_op(op, a.number(), b.number());
  if (op == "+") {
    const bool lists = a.is_list() && b.is_list() && a.items().is_tuple == b.items().is_tuple;
    if (lists || (a.is_string() && b.is_string())) return add_sequences(evaluator, a, b);
  }
  if (op == "*" && is_sequence(a) && b.is_integral()) return repeat(evaluator, a, b.integer());
  if (op == "*" && is_sequence(b) && a.is_integral()) return repeat(evaluator, b, a.integer());
  if (op == "%" && a.is_string()) return format_percent(evaluator, a.string(), b);
  throw Error{fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, a.type_name(),
                          b.type_name())};
}

Value negate(const Value& value) {
  if (value.is_float()) return -value.number();
  if (!value.is_integral()) {
    throw Error{fmt::format("bad operand type for unary -: '{}'", value.type_name())};
  }
  int64_t out = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.integer(), &out)) overflow();
  return out;
}

namespace {

// Bounds of a Python slice over `size` elements: positions start, start + step, ... before stop.
struct SliceRange {
  int64_t start, stop, step;
};

int64_t bound(const Value* value, int64_t fallback, int64_t size, int64_t low, int64_t high) {
  if (value == nullptr || value->is_none()) return fallback;
  if (!value->is_integral()) throw Error{"slice indices must be integers or None"};
  int64_t at = value->integer();
  if (at < 0) at += size;
  return std::clamp(at, low, high);
}

SliceRange slice_range(const Value* start, const Value* stop, const Value* step, int64_t size) {
  int64_t by = 1;
  if (step != nullptr && !step->is_none()) {
    if (!step->is_integral()) throw Error{"slice indices must be integers or None"};
    by = std::clamp(step->integer(), -INT64_MAX / 4, INT64_MAX / 4);
  }
  if (by == 0) throw Error{"slice step cannot be zero"};
  if (by > 0) return {bound(start, 0, size, 0, size), bound(stop, size, size, 0, size), by};
  return {bound(start, size - 1, size, -1, size - 1), bound(stop, -1, size, -1, size - 1), by};
}

template <class Take>
void for_range(const SliceRange& range, Take take) {
  if (range.step > 0) {
    for (int64_t i = range.start; i < range.stop; i += range.step) take(i);
  } else {
    for (int64_t i = range.start; i > range.stop; i += range.step) take(i);
  }
}

Value slice_string(Evaluator& evaluator, const std::string& text, const Value* start,
                   const Value* stop, const Value* step) {
  evaluator.budget().memory(text.size());
  std::string out;
  const size_t length = utf8_length(text);
  const SliceRange range = slice_range(start, stop, step, static_cast<int64_t>(length));
  if (length == text.size()) {
    for_range(range, [&](int64_t i) { out += text[static_cast<size_t>(i)]; });
    return out;
  }
  evaluator.budget().memory(length * sizeof(size_t));
  std::vector<size_t> begins;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xC0) != 0x80) begins.push_back(i);
  }
  begins.push_back(text.size());
  for_range(range, [&](int64_t i) {
    const size_t at = static_cast<size_t>(i);
    out.append(text, begins[at], begins[at + 1] - begins[at]);
  });
  return out;
}

}  // namespace

Value slice(Evaluator& evaluator, const Value& value, const Value* start, const Value* stop,
            const Value* step) {
  evaluator.require_defined(value);
  if (value.is_string()) return slice_string(evaluator, value.string(), start, stop, step);
  const bool indexed =
      value.is_object() && value.object().kind_of_items() == Object::Items::kIndexed;
  if (!value.is_list() && !indexed) {
    throw Error{fmt::format("'{}' object cannot be sliced", value.type_name())};
  }
  const ListPtr list = evaluator.iterate(value);
  const std::vector<Value>& items = list->items;
  evaluator.budget().memory(items.size() * sizeof(Value));
  std::vector<Value> out;
  for_range(slice_range(start, stop, step, static_cast<int64_t>(items.size())),
            [&](int64_t i) { out.push_back(items[static_cast<size_t>(i)]); });
  return Value::list(std::move(out), list->is_tuple);
}

}  // namespace nereid::text::jinja
