// JSON text helpers; see json_text.h.
#include "front/http/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>
#include <span>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "base/json_exact.h"

namespace nereid::front {

void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  const auto is_plain = [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
  };
  while (!text.empty()) {
    const auto end = std::find_if_not(text.begin(), text.end(), is_plain);
    out.append(text.begin(), end);
    text.remove_prefix(static_cast<size_t>(end - text.begin()));
    if (text.empty()) break;
    const char c = text.front();
    text.remove_prefix(1);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    }
  }
  out.push_back('"');
}

size_t json_string_size(std::string_view text) {
  size_t size = 2 + text.size();
  for (const char c : text) {
    const bool is_short =
        c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t' || c == '\b' || c == '\f';
    if (is_short) {
      size += 1;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      size += 5;
    }
  }
  return size;
}

void append_json_double(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
    return;
  }
  if (std::isinf(value)) {
    out += value > 0 ? "Infinity" : "-Infinity";
    return;
  }
  std::string text = fmt::format("{}", value);
  const size_t exponent = text.find('e');
  if (exponent == std::string::npos) {
    if (text.find('.') == std::string::npos) text += ".0";
  } else if (exponent + 1 < text.size() && text[exponent + 1] == '+') {
    text.erase(exponent + 1, 1);
  }
  out += text;
}

void append_json(std::string& out, const json::object& object) {
  char before = '{';
  for (const auto& member : object) {
    out.push_back(std::exchange(before, ','));
    append_json_string(out, std::string_view(member.key()));
    out.push_back(':');
    append_json(out, member.value());
  }
  out += object.empty() ? "{}" : "}";
}

std::string json_text(const json::value& value) {
  std::string out;
  append_json(out, value);
  return out;
}

std::string json_text(const json::object& object) {
  std::string out;
  append_json(out, object);
  return out;
}

void append_json(std::string& out, const json::value& value) {
  if (const std::string_view number = long_number(value); !number.empty()) {
    out += number;
  } else if (const json::object* object = value.if_object()) {
    append_json(out, *object);
  } else if (const json::array* array = value.if_array()) {
    char before = '[';
    for (const json::value& item : *array) {
      out.push_back(std::exchange(before, ','));
      append_json(out, item);
    }
    out += array->empty() ? "[]" : "]";
  } else if (const double* number = value.if_double()) {
    if (std::isfinite(*number))
      append_json_double(out, *number);
    else  // of a literal with an exponent beyond double
      out += std::isnan(*number) ? "null" : *number > 0 ? "1e999" : "-1e999";
  } else if (const int64_t* integer = value.if_int64()) {
    fmt::format_to(std::back_inserter(out), "{}", *integer);
  } else if (const json::string* text = value.if_string()) {
    append_json_string(out, std::string_view(*text));
  } else if (value.is_null()) {
    out += "null";
  } else {
    out += json::serialize(value);
  }
}

namespace {

// A duplicate key, or null; reorders `keys`.
const std::string_view* find_twice(std::span<std::string_view> keys) {
  constexpr size_t kFew = 12;
  if (keys.size() <= kFew) {
    for (size_t i = 1; i < keys.size(); ++i) {
      if (std::find(keys.begin(), keys.begin() + i, keys[i]) != keys.begin() + i) return &keys[i];
    }
    return nullptr;
  }
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  return twice == keys.end() ? nullptr : &*twice;
}

}  // namespace

std::optional<std::string> duplicate_key(std::string_view text) {
  absl::InlinedVector<std::string_view, 32> keys;  // of all open objects
  absl::InlinedVector<size_t, 16> first_keys;      // of each open object
  std::list<std::string> without_escapes;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{') {
      first_keys.push_back(keys.size());
    } else if (c == '}' && !first_keys.empty()) {
      const size_t first = first_keys.back();
      if (const auto* twice = find_twice(std::span(keys).subspan(first))) {
        return std::string(*twice);
      }
      keys.resize(first);
      first_keys.pop_back();
    } else if (c == '"') {
      const size_t begin = i;
      bool has_escape = false;
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] != '\\') continue;
        has_escape = true;
        ++i;
      }
      const size_t next = text.find_first_not_of(" \t\r\n", i + 1);
      if (first_keys.empty() || next == text.npos || text[next] != ':') continue;
      std::string_view key = text.substr(begin + 1, i - begin - 1);
      if (has_escape) {
        const auto parsed = parse_json(text.substr(begin, i + 1 - begin));
        if (parsed.ok() && parsed->is_string()) {
          key = without_escapes.emplace_back(std::string_view(parsed->get_string()));
        }
      }
      keys.push_back(key);
    }
  }
  return std::nullopt;
}

std::optional<std::string> mark_non_finite(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kMarks[] = {
      {"NaN", R"({"\u0000":0})"},
      {"-Infinity", R"({"\u0000":-1})"},
      {"Infinity", R"({"\u0000":1})"}};
  std::string out;
  size_t copied = 0;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
      ++i;
      continue;
    }
    size_t step = 1;
    for (const auto& [token, mark] : kMarks) {
      if (!text.substr(i).starts_with(token)) continue;
      out.append(text.substr(copied, i - copied)).append(mark);
      step = token.size();
      copied = i + step;
      break;
    }
    i += step;
  }
  if (copied == 0) return std::nullopt;
  out.append(text.substr(copied));
  return out;
}

std::optional<double> non_finite(const json::value& value) {
  const json::object* object = value.if_object();
  const json::value* mark =
      object == nullptr ? nullptr : object->if_contains(std::string_view("\0", 1));
  if (mark == nullptr || object->size() != 1 || !mark->is_int64()) return std::nullopt;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (mark->get_int64() == 0) return std::numeric_limits<double>::quiet_NaN();
  return mark->get_int64() > 0 ? kInfinity : -kInfinity;
}

std::string_view json_kind_name(const json::value& value) {
  if (non_finite(value)) return "NaN or Infinity";
  if (!long_number(value).empty()) return "a number";
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
      return "an integer";
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    default:
      return "an object";
  }
}

std::string kserve_error_body(std::string_view message) {
  std::string out = "{\"error\":";
  append_json_string(out, message);
  out += "}";
  return out;
}

}  // namespace nereid::front
