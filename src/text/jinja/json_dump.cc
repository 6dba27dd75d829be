// Python's json.dumps for template values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/value.h"
#include "text/unicode/utf8.h"

namespace nereid::text::jinja {

namespace {

void append_escape(std::string& out, char32_t code) {
  if (code >= 0x10000) {
    const uint32_t offset = static_cast<uint32_t>(code) - 0x10000;
    out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
  } else {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(code));
  }
}

class Dumper {
 public:
  Dumper(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void dump(const Value& value, int level) {
    budget_.memory(style_.item_separator.size() + style_.key_separator.size());
    if (value.is_string()) {
      dump_string(value.string());
    } else if (value.is_list()) {
      dump_list(value.items(), level);
    } else if (value.is_dict()) {
      dump_dict(value.entries(), level);
    } else {
      if (value.is_long_number()) budget_.memory(value.long_number().text.size());
      out_ += scalar(value);
    }
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_bool()) return *value.as<bool>() ? "true" : "false";
    if (value.is_int()) return std::to_string(value.integer());
    if (value.is_long_number()) return value.long_number().text;
    if (value.is_float()) {
      const double number = value.number();
      if (std::isnan(number)) return "NaN";
      if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
      return float_repr(number);
    }
    throw Error{fmt::format("Object of type {} is not JSON serializable", value.type_name())};
  }

  void dump_string(const std::string& text) {
    budget_.memory(text.size() + 2);
    out_ += '"';
    for (std::string_view rest = text; !rest.empty();) {
      const Utf8Step step = utf8_step(rest);
      switch (const char c = rest[0]) {
        case '"':
        case '\\':
          out_ += '\\';
          out_ += c;
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\b':
          out_ += "\\b";
          break;
        case '\f':
          out_ += "\\f";
          break;
        default:
          if (static_cast<uint8_t>(c) < 0x20 || (style_.ensure_ascii && step.code >= 0x7F)) {
            budget_.memory(12);
            append_escape(out_, step.code);
          } else {
            out_ += rest.substr(0, step.length);
          }
      }
      rest.remove_prefix(step.length);
    }
    out_ += '"';
  }

  void new_line(int level) {
    if (style_.indent < 0) return;
    const size_t spaces = static_cast<size_t>(style_.indent) * static_cast<size_t>(level);
    budget_.memory(spaces + 1);
    out_ += '\n';
    out_.append(spaces, ' ');
  }

  void dump_list(const ListData& list, int level) {
    out_ += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      dump(list.items[i], level + 1);
    }
    if (!list.items.empty()) new_line(level);
    out_ += ']';
  }

  void dump_dict(const DictData& dict, int level) {
    std::vector<const std::pair<Value, Value>*> order;
    budget_.memory(dict.items.size() * sizeof(order[0]));
    for (const auto& entry : dict.items) order.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) {
        return less(a->first, b->first, budget_);
      });
    }
    out_ += '{';
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      new_line(level + 1);
      const Value& key = order[i]->first;
      if (key.is_list()) throw Error{"keys must be str, int, float, bool or None, not tuple"};
      dump_string(key.is_string() ? key.string() : scalar(key));
      out_ += style_.key_separator;
      dump(order[i]->second, level + 1);
    }
    if (!order.empty()) new_line(level);
    out_ += '}';
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string dump_json(const Value& value, const JsonStyle& style, Budget& budget) {
  Dumper dumper(style, budget);
  dumper.dump(value, 0);
  return dumper.take();
}

}  // namespace nereid::text::jinja
