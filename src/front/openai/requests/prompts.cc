// Prompt fields: texts, token ids, or lists of either; see request_fields.h.
#include <limits>

#include "front/openai/requests/request_fields.h"

namespace nereid::front {
namespace {

// One tokenised prompt; a fault when an element is no token id.
std::vector<int32_t> read_ids(Fields& fields, std::string_view key, const json::array& list) {
  std::vector<int32_t> out;
  out.reserve(list.size());
  for (const json::value& item : list) {
    if (!item.is_int64() || item.get_int64() < 0 ||
        item.get_int64() > std::numeric_limits<int32_t>::max()) {
      fields.fail(key, "expected a string, token ids, or an array of either", "invalid_type");
      return {};
    }
    out.push_back(static_cast<int32_t>(item.get_int64()));
  }
  return out;
}

}  // namespace

std::vector<Prompt> read_prompts(Fields& fields, std::string_view key, size_t max_prompts) {
  std::vector<Prompt> out;
  const json::value* prompt = fields.get(key);
  if (prompt == nullptr || prompt->is_null()) {
    fields.fail(key, "required", "missing_required_parameter");
    return out;
  }
  if (prompt->is_string()) {
    out.emplace_back(std::string(std::string_view(prompt->get_string())));
  } else if (prompt->is_array() && !prompt->get_array().empty()) {
    const json::array& list = prompt->get_array();
    if (list[0].is_number()) {
      out.emplace_back(read_ids(fields, key, list));
    } else if (list.size() > max_prompts) {
      fields.fail(key, fmt::format("{} given, at most {} allowed", list.size(), max_prompts));
    } else {
      for (const json::value& item : list) {
        if (item.is_string()) {
          out.emplace_back(std::string(std::string_view(item.get_string())));
        } else if (item.is_array()) {
          out.emplace_back(read_ids(fields, key, item.get_array()));
        } else {
          fields.fail(key, "expected a string, token ids, or an array of either", "invalid_type");
        }
      }
    }
  } else {
    fields.fail(key, "expected a non-empty string, token ids, or an array of either",
                "invalid_type");
  }
  for (const Prompt& p : out) {
    const auto* const text = std::get_if<std::string>(&p);
    if (text ? text->empty() : std::get<std::vector<int32_t>>(p).empty())
      fields.fail(key, "must not be empty");
  }
  return out;
}

}  // namespace nereid::front
