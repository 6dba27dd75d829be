// See option.h.
#include "config/option.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <initializer_list>
#include <mutex>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace nereid::config {
namespace {

template <class T>
inline constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

bool is_allowed(const Range& range, double value) {
  return (range.is_open_below ? value > range.low : value >= range.low) &&
         (range.is_open_above ? value < range.high : value <= range.high);
}

// A bound as the type writes it: 67108864, 0.5.
template <class Number>
std::string bound(double value) {
  return std::is_integral_v<Number> ? fmt::format("{:.0f}", value) : fmt::format("{}", value);
}

template <class Number>
Status parse_number(const Option& option, std::string_view text, Number& to) {
  Number value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && stop == text.data() + text.size();
  if (is_whole && value == 0 && option.zero_is_default) return ok();
  if (is_whole && is_allowed(option.range, static_cast<double>(value))) {
    to = value;
    return ok();
  }
  return invalid_argument("expected {} from {} to {}",
                          std::is_integral_v<Number> ? "an integer" : "a number",
                          bound<Number>(option.range.low), bound<Number>(option.range.high));
}

Status parse_word(const Option& option, std::string_view text, size_t& index) {
  const std::vector<std::string> words = words_of(option);
  index = static_cast<size_t>(std::find(words.begin(), words.end(), text) - words.begin());
  if (index < words.size()) return ok();
  return invalid_argument("expected one of {}", fmt::join(words, ", "));
}

template <class T>
Status parse_as(const Option& option, std::string_view text, T* to) {
  if constexpr (std::is_same_v<T, bool>) {
    const std::optional<bool> value = parse_bool(text);
    if (!value) return invalid_argument("expected true or false");
    *to = *value;
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    *to = split(text, ',');
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, std::filesystem::path>) {
    size_t index = 0;
    if (*option.words && !text.empty()) RETURN_IF_ERROR(parse_word(option, text, index));
    *to = text;
  } else if constexpr (kIsNumber<T>) {
    T value = *to;
    RETURN_IF_ERROR(parse_number(option, text, value));
    size_t index = 0;
    if (*option.words) RETURN_IF_ERROR(parse_word(option, text, index));
    *to = value;
  } else {
    typename T::value_type value{};
    RETURN_IF_ERROR(parse_number(option, text, value));
    if (value != 0 || !option.zero_is_default) *to = value;
  }
  return ok();
}

template <class T>
std::string text_as(const Option& option, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (kIsNumber<T>) {
    return option.zero_is_default && value == 0 ? "" : fmt::format("{}", value);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return fmt::format("{}", fmt::join(value, ","));
  } else if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return value.string();
  } else {
    return value ? fmt::format("{}", *value) : "";
  }
}

Status check_word(const Option& option, std::string_view value, std::string_view shown) {
  const std::vector<std::string> words = words_of(option);
  if (std::find(words.begin(), words.end(), value) != words.end()) return ok();
  return invalid_argument("{}: {} is not one of {}", option.name, shown, fmt::join(words, ", "));
}

template <class T>
Status check_as(const Option& option, const T& value) {
  if constexpr (kIsNumber<T>) {
    if (*option.words)
      return check_word(option, fmt::format("{}", value), fmt::format("{}", value));
    const Range& range = option.range;
    if (is_allowed(range, static_cast<double>(value))) return ok();
    return invalid_argument("{}: {} is not in {}{}, {}{}", option.name, value,
                            range.is_open_below ? '(' : '[', bound<T>(range.low),
                            bound<T>(range.high), range.is_open_above ? ')' : ']');
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!*option.words || value.empty()) return ok();
    return check_word(option, value, fmt::format("'{}'", value));
  } else if constexpr (std::is_same_v<T, std::optional<int64_t>> ||
                       std::is_same_v<T, std::optional<double>>) {
    return value ? check_as(option, *value) : ok();
  } else {
    return ok();
  }
}

json::value json_as(const std::filesystem::path& value) { return json::value(value.string()); }
json::value json_as(const std::vector<std::string>& value) { return json::value_from(value); }
template <class T>
json::value json_as(const std::optional<T>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}
template <class T>
json::value json_as(const T& value) {
  return json::value(value);
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void add_group(Options& options, const char* group, std::initializer_list<Option> list) {
  for (const Option& declared : list) {
    Option& option = options.emplace_back(declared);
    option.group = group;
    if (!option.flag) {
      option.flag = "";
    } else if (!*option.flag) {
      std::string flag = fmt::format("--{}", option.name);
      std::replace(flag.begin(), flag.end(), '_', '-');
      option.flag = keep(flag);
    }
  }
}

const char* keep(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> texts;
  const std::lock_guard lock(mutex);
  return texts.insert(text).first->c_str();
}

const Option* find(const Options& options, std::string_view name) {
  const auto it = std::find_if(options.begin(), options.end(),
                               [&](const Option& option) { return option.name == name; });
  return it == options.end() ? nullptr : &*it;
}

std::vector<std::string> words_of(const Option& option) { return split(option.words, '|'); }

std::optional<bool> parse_bool(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* word : {"true", "1", "t", "y", "yes", "on"})
    if (lower == word) return true;
  for (const char* word : {"false", "0", "f", "n", "no", "off"})
    if (lower == word) return false;
  return std::nullopt;
}

Status parse(const Option& option, std::string_view text) {
  if (const auto* word = std::get_if<WordField>(&option.field)) {
    size_t index = 0;
    RETURN_IF_ERROR(parse_word(option, text, index));
    word->set(word->value, index);
    return ok();
  }
  if (const auto* action = std::get_if<Action>(&option.field))
    return (*action)(option, std::string(text));
  return std::visit(
      [&](auto to) -> Status {
        if constexpr (std::is_pointer_v<decltype(to)>) return parse_as(option, text, to);
        return ok();
      },
      option.field);
}

std::string text_of(const Option& option) {
  return std::visit(
      [&](const auto& from) -> std::string {
        using T = std::decay_t<decltype(from)>;
        if constexpr (std::is_pointer_v<T>) {
          return text_as(option, *from);
        } else if constexpr (std::is_same_v<T, Action>) {
          return "";
        } else {
          const std::vector<std::string> words = words_of(option);
          const size_t index = from.get(from.value);
          return index < words.size() ? words[index] : std::to_string(index);
        }
      },
      option.field);
}

Status check(const Option& option) {
  return std::visit(
      [&](const auto& from) -> Status {
        using T = std::decay_t<decltype(from)>;
        if constexpr (std::is_pointer_v<T>) {
          return check_as(option, *from);
        } else if constexpr (std::is_same_v<T, Action>) {
          return ok();
        } else {
          const std::string text = text_of(option);
          return check_word(option, text, text);
        }
      },
      option.field);
}

Status check(const Options& options) {
  for (const Option& option : options) RETURN_IF_ERROR(check(option));
  return ok();
}

json::object to_json(const Options& options) {
  json::object out;
  for (const Option& option : options) {
    if (option.is_secret || std::holds_alternative<Action>(option.field)) continue;
    json::value value = std::visit(
        [&](auto from) {
          if constexpr (std::is_pointer_v<decltype(from)>) return json_as(*from);
          return json::value(text_of(option));
        },
        option.field);
    const std::string_view name = option.name;
    const size_t dot = name.find('.');
    if (dot == name.npos) {
      out[name] = std::move(value);
    } else {
      json::value& inner = out[name.substr(0, dot)];
      if (!inner.is_object()) inner.emplace_object();
      inner.get_object()[name.substr(dot + 1)] = std::move(value);
    }
  }
  return out;
}

std::string_view first_flag(const Option& option) {
  const std::string_view flags = option.flag;
  return flags.substr(0, flags.find(','));
}

std::string environment_of(const Option& option) {
  if (!option.has_environment || !*option.flag) return "";
  std::string out = "NEREID_";
  for (const char c : first_flag(option).substr(2))
    out += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::string refer(std::string_view text, const Options& all, const char* Option::*place) {
  std::string out;
  while (true) {
    const size_t begin = text.find('`'), end = text.find('`', begin + 1);
    if (begin == text.npos || end == text.npos) return out.append(text);
    const std::string_view name = text.substr(begin + 1, end - begin - 1);
    const Option* other = find(all, name);
    const std::string_view there = other ? other->*place : "";
    out.append(text.substr(0, begin));
    out.append(there.empty() ? name : there.substr(0, there.find(',')));
    text.remove_prefix(end + 1);
  }
}

std::string default_of(const Option& option, const Options& all, const char* Option::*place) {
  if (*option.default_text) return refer(option.default_text, all, place);
  const std::string text = text_of(option);
  const bool is_zero = text.empty() && option.zero_is_default;
  return is_zero ? "0" : text;
}

}  // namespace nereid::config
