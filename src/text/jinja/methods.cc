// Methods of str, list and dict.
#include <fmt/format.h>

#include <algorithm>

#include "base/find_text.h"
#include "text/jinja/args.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/unicode/python.h"
#include "text/unicode/utf8.h"

namespace nereid::text::jinja {

namespace {

using Method = Value (*)(Evaluator&, const Value& self, std::string_view name, const Args&);

Value parts_value(Evaluator& evaluator, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  evaluator.budget().memory(parts.size() * 80);
  for (const std::string_view part : parts) items.emplace_back(part);
  return Value::list(std::move(items));
}

const std::string& string_arg(const ArgReader& reader, size_t i, std::string_view name) {
  const Value* value = reader.get(i);
  if (value == nullptr || !value->is_string()) {
    throw Error{fmt::format("{}() needs a str argument", name)};
  }
  return value->string();
}

Value str_strip(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {"chars"});
  std::optional<std::string_view> chars;
  if (reader.given(0) && !reader.get(0)->is_none()) chars = string_arg(reader, 0, name);
  evaluator.budget().memory(self.string().size());
  if (chars) evaluator.budget().work(self.string().size() / 8 * (1 + chars->size() / 8));
  return strip(self.string(), chars, name != "rstrip", name != "lstrip");
}

Value str_split(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {"sep", "maxsplit"});
  const int64_t limit = reader.integer(1, -1);
  const bool right = name == "rsplit";
  evaluator.budget().memory(self.string().size() * 2);
  if (!reader.given(0) || reader.get(0)->is_none()) {
    return parts_value(evaluator, split_space(self.string(), limit, right));
  }
  const std::string& separator = string_arg(reader, 0, name);
  if (separator.empty()) throw Error{"empty separator"};
  evaluator.budget().search(self.string().size(), separator.size());
  return parts_value(evaluator, split(self.string(), separator, limit, right));
}

Value str_partition(Evaluator& evaluator, const Value& self, std::string_view name,
                    const Args& args) {
  const ArgReader reader(evaluator, args, name, {"sep"}, 1);
  const std::string& separator = string_arg(reader, 0, name);
  if (separator.empty()) throw Error{"empty separator"};
  const std::string& text = self.string();
  evaluator.budget().memory(text.size() + 3 * (sizeof(Value) + kStringBytes));
  evaluator.budget().search(text.size(), separator.size());
  const size_t at = name == "partition" ? find_text(text, separator) : rfind_text(text, separator);
  if (at == text.npos) {
    return name == "partition" ? Value::tuple({self, "", ""}) : Value::tuple({"", "", self});
  }
  return Value::tuple({text.substr(0, at), separator, text.substr(at + separator.size())});
}

Value str_splitlines(Evaluator& evaluator, const Value& self, std::string_view name,
                     const Args& args) {
  const ArgReader reader(evaluator, args, name, {"keepends"});
  evaluator.budget().memory(self.string().size());
  return parts_value(evaluator, split_lines(self.string(), reader.flag(0, false)));
}

Value str_affix(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {"prefix"}, 1);
  const bool front = name == "startswith";
  const auto matches = [&](const Value& value) {
    if (!value.is_string()) throw Error{fmt::format("{}() needs str or a tuple of str", name)};
    evaluator.budget().scan(value.string().size());
    return front ? self.string().starts_with(value.string())
                 : self.string().ends_with(value.string());
  };
  if (!reader.get(0)->is_list()) return matches(*reader.get(0));
  const auto& options = reader.get(0)->items().items;
  return std::any_of(options.begin(), options.end(), matches);
}

Value str_remove_affix(Evaluator& evaluator, const Value& self, std::string_view name,
                       const Args& args) {
  const ArgReader reader(evaluator, args, name, {"affix"}, 1);
  const std::string& affix = string_arg(reader, 0, name);
  std::string_view text = self.string();
  evaluator.budget().memory(text.size());
  if (name == "removeprefix" && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (name == "removesuffix" && text.ends_with(affix)) text.remove_suffix(affix.size());
  return text;
}

Value str_case(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {});
  evaluator.budget().memory(self.string().size() * 3);
  evaluator.budget().classify(self.string().size());
  if (name == "upper") return python::upper(self.string());
  if (name == "title") return python::title(self.string());
  if (name == "capitalize") return python::capitalize(self.string());
  return python::lower(self.string());  // lower and casefold
}

Value str_replace(Evaluator& evaluator, const Value& self, std::string_view name,
                  const Args& args) {
  const ArgReader reader(evaluator, args, name, {"old", "new", "count"}, 2);
  const std::string& from = string_arg(reader, 0, name);
  const std::string& to = string_arg(reader, 1, name);
  const std::string& text = self.string();
  const int64_t limit = reader.integer(2, -1);
  evaluator.budget().search(text.size(), from.size());
  const size_t matches = from.empty() ? text.size() + 1 : count(text, from, limit);
  evaluator.budget().work(matches);
  evaluator.budget().memory(text.size() + matches * to.size());
  return replace(text, from, to, limit);
}

Value str_find(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {"sub"}, 1);
  const std::string& sub = string_arg(reader, 0, name);
  const std::string& text = self.string();
  evaluator.budget().search(text.size() * 2, sub.size());
  if (name == "count") {
    if (sub.empty()) return static_cast<int64_t>(utf8_length(text) + 1);
    evaluator.budget().work(text.size() / sub.size() / 8);
    return static_cast<int64_t>(count(text, sub, -1));
  }
  const size_t at = name == "rfind" ? rfind_text(text, sub) : find_text(text, sub);
  if (at != text.npos) {
    return static_cast<int64_t>(utf8_length(std::string_view(text).substr(0, at)));
  }
  if (name == "index") throw Error{"substring not found"};
  return int64_t{-1};
}

Value str_join(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {"iterable"}, 1);
  std::string out;
  bool first = true;
  for (const ListPtr all = evaluator.iterate(*reader.get(0)); const Value& item : all->items) {
    if (!item.is_string()) {
      throw Error{fmt::format("join() needs strings, found '{}'", item.type_name())};
    }
    evaluator.budget().memory(item.string().size() + self.string().size());
    if (!std::exchange(first, false)) out += self.string();
    out += item.string();
  }
  return out;
}

Value str_format(Evaluator& evaluator, const Value& self, std::string_view, const Args& args) {
  return format_braces(evaluator, self.string(), args);
}

Value str_is(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {});
  evaluator.budget().classify(self.string().size());
  bool cased = false;
  if (self.string().empty()) return name == "isascii";
  for (std::string_view rest = self.string(); !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    rest.remove_prefix(step.length);
    const char32_t c = step.code;
    bool holds = true;
    if (name == "isdigit") {
      holds = python::is_digit(c);
    } else if (name == "isdecimal") {
      holds = python::is_decimal(c);
    } else if (name == "isnumeric") {
      holds = python::is_numeric(c);
    } else if (name == "isalpha") {
      holds = python::is_alpha(c);
    } else if (name == "isalnum") {
      holds = python::is_alnum(c);
    } else if (name == "isspace") {
      holds = python::is_space(c);
    } else if (name == "isascii") {
      holds = c < 0x80;
    } else if (name == "isupper") {
      holds = !python::is_lower(c) && !python::is_title(c);
      cased = cased || python::is_upper(c);
    } else {
      holds = !python::is_upper(c) && !python::is_title(c);
      cased = cased || python::is_lower(c);
    }
    if (!holds) return false;
  }
  return cased || (name != "isupper" && name != "islower");
}

Value str_pad(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {"width", "fillchar"}, 1);
  const std::string fill = name == "zfill" ? "0" : reader.text(1, " ");
  evaluator.budget().scan(self.string().size());
  const int64_t missing = reader.integer(0, 0) - static_cast<int64_t>(utf8_length(self.string()));
  if (missing <= 0) return self;
  const size_t count = static_cast<size_t>(missing);
  evaluator.budget().memory(self.string().size());
  evaluator.budget().memory(std::min(count, SIZE_MAX / 8) * std::min<size_t>(fill.size(), 4));
  if (utf8_length(fill) != 1) throw Error{"the fill character must be exactly one character long"};
  const auto fills = [&fill](size_t n) { return replace(std::string(n, ' '), " ", fill, -1); };
  if (name == "ljust") return self.string() + fills(count);
  if (name == "center") {
    const size_t left = count / 2 + (count & static_cast<size_t>(reader.integer(0, 0)) & 1);
    return fills(left) + self.string() + fills(count - left);
  }
  std::string text = self.string();
  const bool sign = name == "zfill" && !text.empty() && (text[0] == '-' || text[0] == '+');
  return text.insert(sign, fills(count));
}

Value list_find(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {"value"}, 1);
  int64_t count = 0;
  const auto& items = self.items().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!equals(items[i], *reader.get(0), evaluator.budget())) continue;
    if (name == "index") return static_cast<int64_t>(i);
    ++count;
  }
  if (name == "index") throw Error{"value is not in list"};
  return count;
}

Value dict_view(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {});
  std::vector<Value> out;
  evaluator.budget().memory(self.entries().items.size() * 4 * sizeof(Value));
  for (const auto& [key, value] : self.entries().items) {
    out.push_back(name == "keys" ? key : name == "values" ? value : Value::tuple({key, value}));
  }
  const std::string_view type = name == "keys"     ? "dict_keys"
                                : name == "values" ? "dict_values"
                                                   : "dict_items";
  return Value(std::make_shared<ViewObject>(type, Value::list(std::move(out))));
}

Value dict_get(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {"key", "default"}, 1);
  require_hashable(*reader.get(0));
  const Value* found = self.entries().find(*reader.get(0), evaluator.budget());
  return found != nullptr ? *found : reader.value(1);
}

Value copy(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args) {
  const ArgReader reader(evaluator, args, name, {});
  return self;  // values are immutable
}

using NamedMethod = std::pair<std::string_view, Method>;

constexpr NamedMethod kStringMethods[] = {{"strip", str_strip},
                                          {"lstrip", str_strip},
                                          {"rstrip", str_strip},
                                          {"split", str_split},
                                          {"rsplit", str_split},
                                          {"partition", str_partition},
                                          {"rpartition", str_partition},
                                          {"splitlines", str_splitlines},
                                          {"startswith", str_affix},
                                          {"endswith", str_affix},
                                          {"upper", str_case},
                                          {"lower", str_case},
                                          {"casefold", str_case},
                                          {"title", str_case},
                                          {"capitalize", str_case},
                                          {"replace", str_replace},
                                          {"find", str_find},
                                          {"rfind", str_find},
                                          {"index", str_find},
                                          {"count", str_find},
                                          {"join", str_join},
                                          {"format", str_format},
                                          {"isdigit", str_is},
                                          {"isdecimal", str_is},
                                          {"isnumeric", str_is},
                                          {"isalpha", str_is},
                                          {"isalnum", str_is},
                                          {"isspace", str_is},
                                          {"isascii", str_is},
                                          {"isupper", str_is},
                                          {"islower", str_is},
                                          {"zfill", str_pad},
                                          {"ljust", str_pad},
                                          {"rjust", str_pad},
                                          {"center", str_pad},
                                          {"removeprefix", str_remove_affix},
                                          {"removesuffix", str_remove_affix}};
constexpr NamedMethod kListMethods[] = {{"index", list_find}, {"count", list_find}, {"copy", copy}};
constexpr NamedMethod kDictMethods[] = {{"items", dict_view},
                                        {"keys", dict_view},
                                        {"values", dict_view},
                                        {"get", dict_get},
                                        {"copy", copy}};

Method find_method(const Value& self, std::string_view name) {
  const auto search = [name](const auto& table) -> Method {
    for (const NamedMethod& entry : table) {
      if (entry.first == name) return entry.second;
    }
    return nullptr;
  };
  if (self.is_string()) return search(kStringMethods);
  if (self.is_list()) return search(kListMethods);
  if (self.is_dict()) return search(kDictMethods);
  return nullptr;
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  return find_method(self, name) != nullptr;
}

bool is_mutator(const Value& self, std::string_view name) {
  static constexpr std::string_view kList[] = {"append", "clear",   "extend", "insert",
                                               "pop",    "reverse", "remove", "sort"};
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (self.is_dict()) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return self.is_list() && !self.items().is_tuple &&
         std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
}

Value call_method(Evaluator& evaluator, const Value& self, std::string_view name,
                  const Args& args) {
  const Method method = find_method(self, name);
  if (method == nullptr) {
    throw Error{fmt::format("'{}' object has no attribute '{}'", self.type_name(), name)};
  }
  return method(evaluator, self, name, args);
}

}  // namespace nereid::text::jinja
