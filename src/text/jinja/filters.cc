#include "text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/args.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/unicode/python.h"
#include "text/unicode/utf8.h"

namespace nereid::text::jinja {

namespace {

// The subject as a string, charged for a result of about its size.
std::string text_of(Evaluator& evaluator, const Value& subject) {
  std::string text = evaluator.str(subject);
  evaluator.budget().memory(text.size() * 3);
  return text;
}

Value f_trim(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "trim", {"chars"});
  const std::string text = text_of(e, v);
  if (!reader.given(0) || reader.get(0)->is_none()) return strip(text, std::nullopt, true, true);
  const std::string chars = reader.text(0, "");
  e.budget().work(text.size() / 8 * (1 + chars.size() / 8));
  return strip(text, chars, true, true);
}

// text_of(), charged for a look-up of each character.
std::string characters_of(Evaluator& evaluator, const Value& subject) {
  std::string text = text_of(evaluator, subject);
  evaluator.budget().classify(text.size());
  return text;
}

Value f_upper(Evaluator& e, const Value& v, const Args&) {
  return python::upper(characters_of(e, v));
}
Value f_lower(Evaluator& e, const Value& v, const Args&) {
  return python::lower(characters_of(e, v));
}
Value f_capitalize(Evaluator& e, const Value& v, const Args&) {
  return python::capitalize(characters_of(e, v));
}
Value f_string(Evaluator& e, const Value& v, const Args&) {
  return v.is_string() ? v : Value(e.str(v));
}
Value f_safe(Evaluator& e, const Value& v, const Args& args) { return f_string(e, v, args); }
Value f_escape(Evaluator& e, const Value& v, const Args&) {
  const std::string text = text_of(e, v);
  e.budget().memory(text.size() * 5);
  return escape_html(text);
}

// As in Jinja, not str.title(): words begin after blanks, hyphens and opening brackets.
Value f_title(Evaluator& e, const Value& v, const Args&) {
  const std::string text = characters_of(e, v);
  const auto ends_word = [](char32_t c) {
    return python::is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t first = utf8_step(rest).length;
    size_t end = first;
    if (!ends_word(utf8_step(rest).code)) {
      while (end < rest.size() && !ends_word(utf8_step(rest.substr(end)).code)) {
        end += utf8_step(rest.substr(end)).length;
      }
    }
    out += python::upper(rest.substr(0, first));
    out += python::lower(rest.substr(first, end - first));
    rest.remove_prefix(end);
  }
  return out;
}

Value f_replace(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "replace", {"old", "new", "count"}, 2);
  Args method{{e.str(*reader.get(0)), e.str(*reader.get(1))}, {}};
  if (reader.given(2) && !reader.get(2)->is_none()) method.positional.push_back(*reader.get(2));
  return call_method(e, Value(e.str(v)), "replace", method);
}

Value f_format(Evaluator& e, const Value& v, const Args& args) {
  if (args.named.empty()) {
    return format_percent(e, e.str(v), Value::tuple(args.positional));
  }
  if (!args.positional.empty()) {
    throw Error{"can't handle positional and keyword arguments at the same time"};
  }
  DictBuilder entries(e.budget());
  for (const auto& [name, value] : args.named) entries.put(Value(name), value);
  return format_percent(e, e.str(v), entries.take());
}

Value f_indent(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "indent", {"width", "first", "blank"});
  e.require_defined(v);
  if (!v.is_string()) {
    throw Error{fmt::format("indent() needs a str, not '{}'", v.type_name())};
  }
  std::string indent;
  if (reader.given(0) && reader.get(0)->is_string()) {
    indent = reader.get(0)->string();
  } else {
    const int64_t width = std::max<int64_t>(reader.integer(0, 4), 0);
    e.budget().memory(static_cast<size_t>(width));
    indent.assign(static_cast<size_t>(width), ' ');
  }
  const bool blank = reader.flag(2, false);
  // A final newline counts as one more, empty line.
  const std::string text = text_of(e, v) + "\n";
  std::string out;
  if (reader.flag(1, false)) out += indent;
  const std::vector<std::string_view> lines = split_lines(text, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    e.budget().memory(indent.size() + 1);
    if (i > 0) out += '\n';
    if (i > 0 && (blank || !lines[i].empty())) out += indent;
    out += lines[i];
  }
  return out;
}

// Words are runs of letters, digits and underscores.
Value f_wordcount(Evaluator& e, const Value& v, const Args&) {
  const std::string text = characters_of(e, v);
  int64_t count = 0;
  bool in_word = false;
  for (std::string_view rest = text; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    rest.remove_prefix(step.length);
    const bool was_in_word =
        std::exchange(in_word, step.code == '_' || python::is_alnum(step.code));
    count += in_word && !was_in_word;
  }
  return count;
}

Value f_center(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "center", {"width"});
  return call_method(e, Value(e.str(v)), "center", {{reader.integer(0, 80)}, {}});
}

Value f_urlencode(Evaluator& e, const Value& v, const Args&) {
  const std::string text = text_of(e, v);
  e.budget().memory(text.size() * 3);
  std::string out;
  for (const char c : text) {
    const char32_t code = static_cast<uint8_t>(c);
    if ((code < 0x80 && python::is_alnum(code)) ||
        std::string_view("_.-~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      out += {'%', kDigits[code >> 4], kDigits[code & 15]};
    }
  }
  return out;
}

Value f_tojson(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = reader.flag(0, false);
  style.sort_keys = reader.flag(3, false);
  if (reader.given(1) && !reader.get(1)->is_none()) {
    style.indent = static_cast<int>(std::clamp<int64_t>(reader.integer(1, 0), 0, 64));
    style.item_separator = ",";
  }
  if (reader.given(2) && !reader.get(2)->is_none()) {
    const ListPtr pair = e.iterate(*reader.get(2));
    if (pair->items.size() != 2) throw Error{"tojson() separators must be a pair"};
    style.item_separator = e.str(pair->items[0]);
    style.key_separator = e.str(pair->items[1]);
    if (style.item_separator.size() + style.key_separator.size() > 64) {
      throw Error{"tojson() separators are too long"};
    }
  }
  return dump_json(v, style, e.budget());
}

Value f_default(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "default", {"default_value", "boolean"});
  const bool absent = v.is_undefined() || (reader.flag(1, false) && !v.truthy());
  return absent ? reader.value(0, Value("")) : v;
}

Value f_abs(Evaluator& e, const Value& v, const Args&) {
  e.require_defined(v);
  if (v.is_float()) return std::abs(v.number());
  if (v.is_integral()) return v.integer() < 0 ? negate(v) : Value(v.integer());
  throw Error{fmt::format("bad operand type for abs(): '{}'", v.type_name())};
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text, std::nullopt, true, true);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_int(std::string_view text, int base) {
  text = strip(text, std::nullopt, true, true);
  if (text.starts_with('+')) text.remove_prefix(1);
  if (base == 16 && (text.starts_with("0x") || text.starts_with("0X"))) text.remove_prefix(2);
  if (base == 8 && (text.starts_with("0o") || text.starts_with("0O"))) text.remove_prefix(2);
  if (base == 2 && (text.starts_with("0b") || text.starts_with("0B"))) text.remove_prefix(2);
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

Value f_int(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "int", {"default", "base"});
  const Value fallback = reader.value(0, int64_t{0});
  e.require_defined(v);
  if (v.is_string()) e.budget().scan(v.string().size() * 8);
  std::optional<double> number;
  if (v.is_integral()) return v.integer();
  if (v.is_float()) number = v.number();
  if (v.is_string()) {
    const int64_t base = reader.integer(1, 10);
    if (base < 2 || base > 36) throw Error{"int() base must be in [2, 36]"};
    if (const auto value = parse_int(v.string(), static_cast<int>(base))) return *value;
    number = parse_float(v.string());
  }
  if (!number || !(std::abs(*number) < 9.2e18)) return fallback;
  return static_cast<int64_t>(*number);
}

Value f_float(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "float", {"default"});
  e.require_defined(v);
  if (v.is_string()) e.budget().scan(v.string().size() * 8);
  if (v.is_number()) return v.number();
  if (v.is_string()) {
    if (const auto value = parse_float(v.string())) return *value;
  }
  return reader.value(0, 0.0);
}

Value f_round(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "round", {"precision", "method"});
  const int64_t precision = std::clamp<int64_t>(reader.integer(0, 0), -300, 300);
  const std::string method = reader.text(1, "common");
  e.require_defined(v);
  if (!v.is_number()) throw Error{"round() needs a number"};
  if (method == "common") {
    if (v.is_integral() && precision >= 0) return v.integer();
    if (precision >= 0) {
      e.budget().work(static_cast<size_t>(precision));
      return parse_float(fmt::format("{:.{}f}", v.number(), precision)).value_or(v.number());
    }
    const double scale = std::pow(10.0, static_cast<double>(-precision));
    const double rounded = std::nearbyint(v.number() / scale) * scale;
    if (v.is_float()) return rounded;
    return static_cast<int64_t>(std::abs(rounded) < 9.2e18 ? rounded : 0);
  }
  if (method != "ceil" && method != "floor") {
    throw Error{"round() method must be common, ceil or floor"};
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = v.number() * scale;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value f_attr(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "attr", {"name"}, 1);
  if (v.is_dict()) return Value::undefined("'dict object' has no such attribute");
  return e.get_attribute(v, reader.text(0, ""));
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {{"trim", f_trim},
                                                            {"upper", f_upper},
                                                            {"lower", f_lower},
                                                            {"capitalize", f_capitalize},
                                                            {"title", f_title},
                                                            {"string", f_string},
                                                            {"safe", f_safe},
                                                            {"escape", f_escape},
                                                            {"e", f_escape},
                                                            {"replace", f_replace},
                                                            {"format", f_format},
                                                            {"indent", f_indent},
                                                            {"wordcount", f_wordcount},
                                                            {"center", f_center},
                                                            {"urlencode", f_urlencode},
                                                            {"tojson", f_tojson},
                                                            {"default", f_default},
                                                            {"d", f_default},
                                                            {"abs", f_abs},
                                                            {"int", f_int},
                                                            {"float", f_float},
                                                            {"round", f_round},
                                                            {"attr", f_attr}};

}  // namespace

Filter find_text_filter(std::string_view name) {
  for (const auto& [own, filter] : kFilters) {
    if (own == name) return filter;
  }
  return nullptr;
}

bool has_filter(std::string_view name) {
  return find_text_filter(name) != nullptr || find_sequence_filter(name) != nullptr;
}

Value Evaluator::apply_filter(std::string_view name, const Value& subject, const Args& args) {
  budget_.work();
  Filter filter = find_text_filter(name);
  if (filter == nullptr) filter = find_sequence_filter(name);
  if (filter == nullptr) throw Error{fmt::format("no filter named '{}'", name)};
  return filter(*this, subject, args);
}

}  // namespace nereid::text::jinja
