// printf-style and brace-style formatting of strings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/operators.h"
#include "text/unicode/chars.h"
#include "text/unicode/utf8.h"

namespace nereid::text::jinja {

namespace {

constexpr size_t kMaxWidth = 1 << 16;

// The options of both styles.
struct Spec {
  char align = '\0';  // < > ^ =
  std::string fill = " ";
  char sign = '-';
  bool zero = false, alternate = false;
  char grouping = '\0';
  size_t width = 0;
  int precision = -1;
  char type = 's';
};

std::string pad(const std::string& text, const Spec& spec, char default_align) {
  const size_t length = utf8_length(text);
  if (length >= spec.width) return text;
  const size_t missing = spec.width - length;
  const char align = spec.align != '\0' ? spec.align : default_align;
  const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  for (size_t i = 0; i < left; ++i) out += spec.fill;
  out += text;
  for (size_t i = left; i < missing; ++i) out += spec.fill;
  return out;
}

void group_digits(std::string& digits, char separator) {
  size_t end = digits.find_first_not_of("0123456789");
  if (end == digits.npos) end = digits.size();
  for (size_t i = end; i > 3; i -= 3) digits.insert(i - 3, 1, separator);
}

std::string format_number(const Value& value, const Spec& spec) {
  std::string digits;
  const double number = value.number();
  const bool negative = std::signbit(number) && number == number;
  if (std::string_view("dixXo").find(spec.type) != std::string_view::npos) {
    const int64_t whole = value.is_float() ? 0 : value.integer();
    if (value.is_float() && !(std::abs(number) < 9e18)) throw Error{"number too large for %d"};
    const int64_t integer = value.is_float() ? static_cast<int64_t>(number) : whole;
    const uint64_t size = integer < 0 ? 0 - static_cast<uint64_t>(integer) : integer;
    digits = spec.type == 'x'   ? fmt::format("{:x}", size)
             : spec.type == 'X' ? fmt::format("{:X}", size)
             : spec.type == 'o' ? fmt::format("{:o}", size)
                                : fmt::format("{}", size);
  } else {
    const double size = std::abs(spec.type == '%' ? number * 100 : number);
    const int precision = spec.precision < 0 ? 6 : spec.precision;
    switch (spec.type) {
      case 'e':
        digits = fmt::format("{:.{}e}", size, precision);
        break;
      case 'g':
        digits = fmt::format("{:.{}g}", size, precision);
        break;
      case '%':
        digits = fmt::format("{:.{}f}%", size, precision);
        break;
      default:
        digits = fmt::format("{:.{}f}", size, precision);
    }
  }
  if (spec.grouping != '\0') group_digits(digits, spec.grouping);
  std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  if (spec.zero && spec.align == '\0' && sign.size() + digits.size() < spec.width) {
    digits.insert(0, spec.width - sign.size() - digits.size(), '0');
  }
  return pad(sign + digits, spec, '>');
}

std::string format_value(Evaluator& evaluator, const Value& value, const Spec& spec) {
  evaluator.budget().memory(spec.width * spec.fill.size() + 32 +
                            static_cast<size_t>(std::max(spec.precision, 0)));
  if (spec.precision > 0) {  // digits of a large or small number are found one by one
    evaluator.budget().work(static_cast<size_t>(std::min(spec.precision, 1000)));
  }
  if (spec.type != 's' && spec.type != 'r') {
    if (!value.is_number()) {
      throw Error{
          fmt::format("%{} format: a number is required, not {}", spec.type, value.type_name())};
    }
    return format_number(value, spec);
  }
  std::string text;
  if (spec.type == 'r') {
    append_repr(text, value, evaluator.budget());
  } else {
    text = evaluator.str(value);
  }
  if (spec.precision >= 0) {
    size_t end = 0;
    for (int n = 0; n < spec.precision && end < text.size(); ++n) {
      end += utf8_step(std::string_view(text).substr(end)).length;
    }
    text.resize(end);
  }
  return pad(text, spec, value.is_number() ? '>' : '<');
}

size_t read_number(std::string_view text, size_t& at) {
  size_t number = 0;
  while (at < text.size() && is_digit(static_cast<uint8_t>(text[at]))) {
    number = number * 10 + static_cast<size_t>(text[at++] - '0');
    if (number > kMaxWidth) throw Error{"format width or precision is too large"};
  }
  return number;
}

}  // namespace

std::string format_percent(Evaluator& evaluator, const std::string& format, const Value& values) {
  evaluator.budget().memory(format.size());
  std::string out;
  size_t next = 0;
  const auto take = [&]() -> Value {
    if (!values.is_list() || !values.items().is_tuple) {
      if (next++ > 0) throw Error{"not enough arguments for format string"};
      return values;
    }
    if (next >= values.items().items.size()) {
      throw Error{"not enough arguments for format string"};
    }
    return values.items().items[next++];
  };
  for (size_t at = 0; at < format.size();) {
    if (format[at] != '%') {
      out += format[at++];
      continue;
    }
    ++at;
    Spec spec;
    Value value;
    bool named = false;
    if (at < format.size() && format[at] == '(') {
      const size_t close = format.find(')', at);
      if (close == format.npos) throw Error{"incomplete format key"};
      value = evaluator.get_item(values, Value(format.substr(at + 1, close - at - 1)));
      evaluator.require_defined(value);
      named = true;
      at = close + 1;
    }
    for (; at < format.size() && std::string_view("-+ 0#").find(format[at]) != std::string::npos;
         ++at) {
      if (format[at] == '-') spec.align = '<';
      if (format[at] == '+' || format[at] == ' ') spec.sign = format[at];
      if (format[at] == '0') spec.zero = true;
    }
    spec.width = read_number(format, at);
    if (spec.align == '\0' && !spec.zero) spec.align = '>';
    if (at < format.size() && format[at] == '.') {
      spec.precision = static_cast<int>(read_number(format, ++at));
    }
    if (at >= format.size()) throw Error{"incomplete format"};
    spec.type = format[at++];
    if (spec.type == '%') {
      out += '%';
      continue;
    }
    if (std::string_view("srdifFeEgGxXo").find(spec.type) == std::string_view::npos) {
      throw Error{fmt::format("unsupported format character '{}'", spec.type)};
    }
    out += format_value(evaluator, named ? value : take(), spec);
  }
  // Dicts and lists may be unused: they could have been looked up by name.
  const bool is_tuple = values.is_list() && values.items().is_tuple;
  const bool all_used = is_tuple ? next >= values.items().items.size()
                                 : next > 0 || values.is_dict() || values.is_list();
  if (!all_used) throw Error{"not all arguments converted during string formatting"};
  return out;
}

namespace {

// [[fill]align][sign][#][0][width][grouping][.precision][type]
Spec parse_brace_spec(std::string_view text, const Value& value) {
  Spec spec;
  spec.type = '\0';
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  if (!text.empty()) {
    const size_t fill = utf8_step(text).length;
    if (fill < text.size() && is_align(text[fill])) {
      spec.fill = text.substr(0, fill);
      spec.align = text[fill];
      at = fill + 1;
    } else if (is_align(text[0])) {
      spec.align = text[at++];
    }
  }
  const auto accept = [&](std::string_view any) {
    return at < text.size() && any.find(text[at]) != any.npos ? text[at++] : '\0';
  };
  if (const char sign = accept("+- ")) spec.sign = sign;
  accept("#");
  if (accept("0") != '\0') spec.zero = true;
  spec.width = read_number(text, at);
  spec.grouping = accept(",_");
  if (accept(".") != '\0') spec.precision = static_cast<int>(read_number(text, at));
  spec.type = accept("sdifFeEgGxXo%");
  if (at != text.size()) throw Error{fmt::format("invalid format specifier '{}'", text)};
  if (spec.type == '\0') {
    const bool fixed = value.is_float() && spec.precision >= 0;
    const bool whole = value.is_int() && (spec.grouping != '\0' || spec.zero || spec.sign != '-');
    spec.type = fixed ? 'g' : whole ? 'd' : value.is_float() && spec.grouping ? 'f' : 's';
  }
  return spec;
}

}  // namespace

std::string format_braces(Evaluator& evaluator, const std::string& format, const Args& args) {
  evaluator.budget().memory(format.size());
  std::string out;
  size_t next = 0;
  for (size_t at = 0; at < format.size(); ++at) {
    const char c = format[at];
    if (c != '{' && c != '}') {
      out += c;
      continue;
    }
    if (at + 1 < format.size() && format[at + 1] == c) {
      out += c;
      ++at;
      continue;
    }
    const size_t close = format.find('}', at);
    if (c == '}' || close == format.npos) throw Error{"single brace in format string"};
    const std::string_view field = std::string_view(format).substr(at + 1, close - at - 1);
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view name = field.substr(0, colon);
    Value value;
    if (name.empty() || is_digit(static_cast<uint8_t>(name[0]))) {
      size_t end = 0;
      const size_t index = name.empty() ? next++ : read_number(name, end);
      if (end != name.size()) throw Error{fmt::format("format field '{}' is not supported", name)};
      if (index >= args.positional.size()) throw Error{"format index out of range"};
      value = args.positional[index];
    } else {
      evaluator.budget().work(1 + args.named.size() / 4);
      const auto found = std::find_if(args.named.begin(), args.named.end(),
                                      [&](const auto& entry) { return entry.first == name; });
      if (found == args.named.end())
        throw Error{fmt::format("format has no key '{}'", shown(name))};
      value = found->second;
    }
    const std::string_view text = colon < field.size() ? field.substr(colon + 1) : "";
    out += format_value(evaluator, value, parse_brace_spec(text, value));
    at = close;
  }
  return out;
}

}  // namespace nereid::text::jinja
