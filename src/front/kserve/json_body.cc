#include "front/kserve/json_body.h"

#include "front/http/json_text.h"
#include "front/http/workers.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxDepth = 100;

StatusOr<json::value> parse_document(std::string_view body, const json::storage_ptr& memory) {
  std::string marked;
  StatusOr<json::value> root = parse_json_numbers(body, marked, kMaxDepth, memory);
  if (root.status().code() == absl::StatusCode::kUnavailable) return root;
  if (!root.ok()) {
    return invalid_argument("failed to parse the request JSON buffer: {}",
                            body.empty() ? "The document is empty." : message(root.status()));
  }
  if (const auto key = duplicate_key(body)) {
    return invalid_argument("failed to parse the request JSON buffer: '{}' is given twice", *key);
  }
  return root;
}

}  // namespace

StatusOr<json::value> parse_json_numbers(std::string_view& body, std::string& marked,
                                         size_t max_depth, const json::storage_ptr& memory) {
  StatusOr<json::value> root = parse_json_once(body, max_depth, memory);
  if (root.ok() || root.status().code() == absl::StatusCode::kUnavailable) return root;
  std::optional<std::string> text = mark_non_finite(body);
  if (!text) return root;
  marked = *std::move(text);
  body = marked;
  return parse_json_once(body, max_depth, memory);
}

bool is_json_object(const json::value& value) { return value.is_object() && !non_finite(value); }

Status check_is_object(const json::value& root) {
  if (is_json_object(root)) return ok();
  return invalid_argument("the request must be a JSON object, got {}", json_kind_name(root));
}

StatusOr<json::value> parse_json_body(std::string_view body, const json::storage_ptr& memory) {
  ASSIGN_OR_RETURN(json::value root, parse_document(body, memory));
  RETURN_IF_ERROR(check_is_object(root));
  return root;
}

StatusOr<json::value> parse_members_body(std::string_view body, const json::storage_ptr& memory) {
  ASSIGN_OR_RETURN(json::value root, parse_document(body, memory));
  if (const json::array* array = root.if_array(); array != nullptr && array->empty())
    return json::value(json::object_kind);
  RETURN_IF_ERROR(check_is_object(root));
  return root;
}

StatusOr<json::value> parse_short_body(std::string_view body) {
  if (body.size() <= kQuickJsonBytes) return parse_members_body(body);
  return invalid_argument("the request body has {} bytes, at most {} are allowed here", body.size(),
                          kQuickJsonBytes);
}

Status wrong_member(std::string_view key, std::string_view wanted, const json::value& value) {
  return invalid_argument("Unable to parse '{}': expected {}, got {}", key, wanted,
                          json_kind_name(value));
}

StatusOr<std::optional<bool>> bool_member(const json::value& value, std::string_view key) {
  const json::value* m = member(value, key);
  if (m == nullptr) return std::optional<bool>();
  if (!m->is_bool()) return wrong_member(key, "a boolean", *m);
  return std::optional<bool>(m->get_bool());
}

StatusOr<std::optional<std::string>> string_member(const json::value& value, std::string_view key) {
  const json::value* m = member(value, key);
  if (m == nullptr) return std::optional<std::string>();
  if (!m->is_string()) return wrong_member(key, "a string", *m);
  return std::optional<std::string>(std::string_view(m->get_string()));
}

StatusOr<std::optional<uint64_t>> uint_member(const json::value& value, std::string_view key) {
  const json::value* m = member(value, key);
  if (m == nullptr) return std::optional<uint64_t>();
  if (m->is_uint64()) return std::optional<uint64_t>(m->get_uint64());
  if (m->is_int64() && m->get_int64() >= 0) {
    return std::optional<uint64_t>(static_cast<uint64_t>(m->get_int64()));
  }
  return wrong_member(key, "an integer >= 0", *m);
}

}  // namespace nereid::front
