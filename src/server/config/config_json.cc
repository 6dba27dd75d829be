// 64-bit integers of a ModelConfig as JSON numbers.
#include "server/config/config_json.h"

#include <charconv>
#include <string>
#include <system_error>

#include "base/json.h"

namespace nereid::server {
namespace {

bool is_number_key(std::string_view key) {
  return key == "dims" || key == "shape" || key == "versions" || key == "priority_levels" ||
         key == "default_priority_level" || key == "model_version" ||
         key.ends_with("_microseconds");
}

// Whether all of `text` is a number of T's range.
template <typename T>
bool read_all(const std::string& text, T& number) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, number);
  return at == end && error == std::errc();
}

void to_number(json::value& value) {
  if (value.is_array()) {
    for (auto& item : value.as_array()) to_number(item);
    return;
  }
  if (!value.is_string()) return;
  const std::string text(value.as_string());
  if (int64_t i = 0; read_all(text, i)) {
    value = i;
  } else if (uint64_t u = 0; read_all(text, u)) {
    value = u;
  }
}

// `free_keys`: the object is a map with the user's keys.
void walk(json::value& value, bool free_keys = false) {
  if (value.is_array()) {
    for (auto& item : value.as_array()) walk(item);
  } else if (value.is_object()) {
    for (auto& [key, member] : value.as_object()) {
      const bool is_map = key == "parameters" || key == "metric_tags" || key == "input_map" ||
                          key == "output_map" || key == "cc_model_filenames" || key == "inputs";
      if (!free_keys && is_number_key({key.data(), key.size()}) && !member.is_object()) {
        to_number(member);
      } else {
        walk(member, !free_keys && is_map);
      }
    }
  }
}

}  // namespace

StatusOr<std::string> numbers_in_config_json(std::string_view printed) {
  ASSIGN_OR_RETURN(json::value value, parse_json(printed));
  walk(value);
  return json::serialize(value);
}

}  // namespace nereid::server
