#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/file.h"
#include "base/python_json.h"

namespace nereid::models {
namespace {

// A value as JSON text, shortened.
std::string text_of(const json::value& value) {
  std::string text = json::serialize(value);
  if (text.size() > 60) text.replace(57, std::string::npos, "...");
  return text;
}

bool is_same(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

}  // namespace

StatusOr<json::object> read_object(const std::filesystem::path& path) {
  constexpr size_t kMaxConfigBytes = size_t{16} << 20;
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kMaxConfigBytes));
  StatusOr<json::value> value = parse_python_json(text);
  if (!value.ok()) return annotate(value.status(), path.string());
  if (!value->is_object()) return invalid_argument("{}: is not a JSON object", path.string());
  return std::move(value->get_object());
}

std::string_view Config::name_of(std::string_view key) const {
  for (const auto& [asked, stored] : names_)
    if (asked == key) return stored;
  return key;
}

const json::value* Config::find(std::string_view key) const {
  read_.emplace(key);
  const json::value* value = object_.if_contains(name_of(key));
  return value && !value->is_null() ? value : nullptr;
}

void Config::fail(std::string_view key, std::string_view problem) {
  add(invalid_argument("{}: field '{}': {}", where_, name_of(key), problem));
}

std::optional<int64_t> Config::to_integer(std::string_view key, const json::value& value,
                                          int64_t min, int64_t max) {
  std::optional<int64_t> number;
  if (value.is_int64()) number = value.get_int64();
  if (value.is_uint64() && std::in_range<int64_t>(value.get_uint64()))
    number = static_cast<int64_t>(value.get_uint64());
  if (number && *number >= min && *number <= max) return number;
  fail(key, fmt::format("{} is not an integer in [{}, {}]", text_of(value), min, max));
  return std::nullopt;
}

int32_t Config::integer(std::string_view key, int64_t min, int64_t max,
                        std::optional<int64_t> fallback) {
  const json::value* value = find(key);
  if (!value && !fallback) fail(key, "is missing");
  if (!value) return static_cast<int32_t>(fallback.value_or(min));
  return static_cast<int32_t>(to_integer(key, *value, min, max).value_or(min));
}

double Config::number(std::string_view key, double min, double max,
                      std::optional<double> fallback) {
  const json::value* value = find(key);
  if (!value && !fallback) fail(key, "is missing");
  if (!value) return fallback.value_or(min);
  const double number = value->is_number() ? value->to_number<double>() : std::nan("");
  if (number >= min && number <= max) return number;
  fail(key, fmt::format("{} is not a number in [{}, {}]", text_of(*value), min, max));
  return min;
}

bool Config::boolean(std::string_view key, bool fallback) {
  const json::value* value = find(key);
  if (!value) return fallback;
  if (value->is_bool()) return value->get_bool();
  fail(key, fmt::format("{} is not true or false", text_of(*value)));
  return fallback;
}

std::string Config::string(std::string_view key, std::optional<std::string> fallback) {
  const json::value* value = find(key);
  if (!value && !fallback) fail(key, "is missing");
  if (!value) return fallback.value_or("");
  if (value->is_string()) return std::string(value->get_string());
  fail(key, fmt::format("{} is not a string", text_of(*value)));
  return "";
}

std::vector<int32_t> Config::integers(std::string_view key, int64_t min, int64_t max) {
  std::vector<int32_t> found;
  const json::value* value = find(key);
  if (!value) return found;
  const auto add_one = [&](const json::value& item) {
    if (const std::optional<int64_t> n = to_integer(key, item, min, max))
      found.push_back(static_cast<int32_t>(*n));
  };
  if (!value->is_array()) {
    add_one(*value);
  } else if (value->get_array().size() > 1024) {
    fail(key, fmt::format("{} items, at most 1024 are allowed", value->get_array().size()));
  } else {
    for (const json::value& item : value->get_array()) add_one(item);
  }
  return found;
}

std::vector<std::array<int32_t, 2>> Config::pairs(std::string_view key, int64_t min, int64_t max) {
  std::vector<std::array<int32_t, 2>> found;
  const json::value* value = find(key);
  if (!value) return found;
  const json::array* const list = value->if_array();
  const auto is_pair = [](const json::value& item) {
    return item.is_array() && item.get_array().size() == 2;
  };
  if (!list || list->size() > 1024 || !std::ranges::all_of(*list, is_pair)) {
    fail(key, "is not an array of at most 1024 pairs of integers");
    return found;
  }
  for (const json::value& item : *list) {
    const auto first = to_integer(key, item.get_array()[0], min, max);
    const auto second = to_integer(key, item.get_array()[1], min, max);
    if (first && second)
      found.push_back({static_cast<int32_t>(*first), static_cast<int32_t>(*second)});
  }
  return found;
}

std::vector<double> Config::numbers(std::string_view key, double min, double max) {
  std::vector<double> found;
  const json::value* value = find(key);
  if (!value) return found;
  if (!value->is_array() || value->get_array().size() > 1024) {
    fail(key, "is not an array of at most 1024 numbers");
    return found;
  }
  for (const json::value& item : value->get_array()) {
    found.push_back(item.is_number() ? item.to_number<double>() : std::nan(""));
    if (!(found.back() >= min && found.back() <= max))
      fail(key, fmt::format("{} is not a number in [{}, {}]", text_of(item), min, max));
  }
  return found;
}

std::vector<std::string> Config::strings(std::string_view key) {
  std::vector<std::string> found;
  const json::value* value = find(key);
  if (!value) return found;
  if (!value->is_array() || value->get_array().size() > 1024) {
    fail(key, "is not an array of at most 1024 strings");
    return found;
  }
  for (const json::value& item : value->get_array()) {
    if (item.is_string())
      found.emplace_back(item.get_string());
    else
      fail(key, fmt::format("{} is not a string", text_of(item)));
  }
  return found;
}

const json::object* Config::object(std::string_view key) {
  const json::value* value = find(key);
  if (!value) return nullptr;
  if (value->is_object()) return &value->get_object();
  fail(key, fmt::format("{} is not an object", text_of(*value)));
  return nullptr;
}

bool Config::inside(std::string_view key, const std::function<void(Config&)>& read) {
  const json::object* found = object(key);
  if (!found) return false;
  Config inner(*found, fmt::format("{}: {}", where_, name_of(key)));
  read(inner);
  add(inner.status());
  return true;
}

void Config::require(std::string_view key, const json::value& only) {
  const json::value* value = find(key);
  if (value && !is_same(*value, only))
    fail(key, fmt::format("{} is not supported, only {} is", text_of(*value), text_of(only)));
}

}  // namespace nereid::models
