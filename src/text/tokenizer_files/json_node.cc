#include "text/tokenizer_files/json_node.h"

#include "text/unicode/utf8.h"

namespace nereid::text {

namespace {

constexpr size_t kBriefBytes = 80;

const json::value& null_value() {
  static const json::value null;
  return null;
}

}  // namespace

std::string brief(const json::value& value) {
  if (value.is_object()) return "{...}";
  if (value.is_array()) return "[...]";
  if (value.is_string() && value.get_string().size() > kBriefBytes) {
    return fmt::format("\"{}...\"",
                       repair_utf8(view_of(value.get_string()).substr(0, kBriefBytes)));
  }
  return json::serialize(value);
}

JsonNode JsonNode::operator[](std::string_view field) const {
  const json::object* object = value_->if_object();
  const json::value* found =
      object == nullptr ? nullptr : object->if_contains({field.data(), field.size()});
  return {found == nullptr ? null_value() : *found,
          path_.empty() ? std::string(field) : fmt::format("{}.{}", path_, field)};
}

JsonNode JsonNode::operator[](size_t index) const {
  const json::array* array = value_->if_array();
  const bool there = array != nullptr && index < array->size();
  return {there ? (*array)[index] : null_value(), fmt::format("{}[{}]", path_, index)};
}

Status JsonNode::wrong(std::string_view allowed) const {
  return invalid_argument("{} = {}: must be {}", path_.empty() ? "document" : path_, brief(*value_),
                          allowed);
}

StatusOr<const json::object*> JsonNode::object() const {
  if (const json::object* object = value_->if_object()) return object;
  return wrong("an object");
}

StatusOr<const json::array*> JsonNode::array() const {
  if (const json::array* array = value_->if_array()) return array;
  return wrong("an array");
}

StatusOr<std::string_view> JsonNode::string() const {
  if (const json::string* string = value_->if_string()) return view_of(*string);
  return wrong("a string");
}

StatusOr<std::string_view> JsonNode::string(std::string_view fallback) const {
  if (is_null()) return fallback;
  return string();
}

StatusOr<std::string_view> JsonNode::bounded_string(size_t max_bytes) const {
  ASSIGN_OR_RETURN(const std::string_view text, string());
  if (text.size() > max_bytes) return wrong(fmt::format("a string of at most {} bytes", max_bytes));
  return text;
}

StatusOr<bool> JsonNode::boolean(bool fallback) const {
  if (is_null()) return fallback;
  if (const bool* flag = value_->if_bool()) return *flag;
  return wrong("true or false");
}

StatusOr<int64_t> JsonNode::integer(int64_t fallback, int64_t low, int64_t high) const {
  if (is_null()) return fallback;
  boost::system::error_code error;
  const int64_t number = value_->is_number() ? value_->to_number<int64_t>(error) : high;
  if (!value_->is_number() || error || number < low || number > high) {
    return wrong(fmt::format("an integer in [{}, {}]", low, high));
  }
  return number;
}

StatusOr<int32_t> JsonNode::token_id() const {
  const int64_t* id = value_->if_int64();
  if (id == nullptr || *id < 0 || *id > kMaxTokenId) {
    return wrong(fmt::format("a token id, an integer in [0, {}]", kMaxTokenId));
  }
  return static_cast<int32_t>(*id);
}

StatusOr<char32_t> JsonNode::character() const {
  ASSIGN_OR_RETURN(const std::string_view text, string());
  if (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind == Utf8Step::kValid && step.length == text.size()) return step.code;
  }
  return wrong("a string of one character");
}

}  // namespace nereid::text
