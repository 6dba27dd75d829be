// See responses_input.h. Source: platform.openai.com/docs/api-reference/responses/create, "input".
#include "front/openai/responses/responses_input.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "front/http/json_text.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {
namespace {

ApiError fault(const std::string& where, std::string_view what, const char* code = "") {
  return {400, fmt::format("'{}': {}", where, what), where, code};
}
ApiError unsupported_type(const std::string& where, std::string_view type,
                          std::string_view supported) {
  return fault(where, fmt::format("type '{}' is not supported; {}", type.substr(0, 60), supported),
               "unsupported_parameter");
}

// A part of type input_image as a chat's.
std::variant<json::object, ApiError> picture_of(const json::object& part,
                                                const std::string& where) {
  const json::value* const url = part.if_contains("image_url");
  if (!url || !url->is_string())
    return fault(where,
                 "a part of type input_image needs a string image_url: files by id are not "
                 "kept here",
                 "invalid_type");
  json::object image = {{"url", *url}};
  if (const json::value* detail = part.if_contains("detail")) image["detail"] = *detail;
  return json::object{{"type", "image_url"}, {"image_url", std::move(image)}};
}

// A string's text, or the parts' texts joined by newlines; a chat's parts with pictures.
std::variant<json::value, ApiError> chat_content(const json::value& content,
                                                 const std::string& where) {
  if (content.is_string()) return content;
  if (!content.is_array())
    return fault(where, "expected a string or an array of parts", "invalid_type");
  std::string out;
  json::array parts;
  bool first = true, has_pictures = false;
  for (const json::value& item : content.get_array()) {
    const json::object* const part = item.if_object();
    if (!part) return fault(where, "expected parts that are objects", "invalid_type");
    const std::string type = text_member(*part, "type");
    if (type == "input_image") {
      auto picture = picture_of(*part, where);
      if (auto* error = std::get_if<ApiError>(&picture)) return std::move(*error);
      parts.push_back(std::get<json::object>(std::move(picture)));
      has_pictures = true;
      continue;
    }
    const bool is_text = type == "input_text" || type == "output_text" || type == "text";
    if (!is_text && type != "refusal")
      return unsupported_type(where, type,
                              "parts are input_text, input_image, output_text or refusal");
    const json::value* const text = part->if_contains(is_text ? "text" : "refusal");
    if (!text || !text->is_string())
      return fault(where, fmt::format("a part of type {} needs its text", type), "invalid_type");
    if (!std::exchange(first, false)) out += "\n";
    out += std::string_view(text->get_string());
    parts.push_back(json::object{{"type", "text"}, {"text", *text}});
  }
  if (has_pictures) return parts;
  return json::value(out);
}

std::string type_of(const json::object& item) {
  const std::string type = text_member(item, "type");
  return type.empty() && item.contains("role") ? "message" : type;
}

// Prefix of the ids of new items of this type.
std::string_view prefix_of(std::string_view type) {
  if (type == "function_call") return "fc_";
  if (type == "function_call_output") return "fco_";
  return type == "reasoning" ? "rs_" : "msg_";
}

// The response id in an item's id: <prefix>_<32 digits>_<number>.
std::string response_of(std::string_view item_id) {
  constexpr size_t kDigits = 32;
  const size_t at = item_id.find('_');
  if (at == std::string_view::npos) return "";
  return fmt::format("resp_{}", item_id.substr(at + 1, kDigits));
}

// Items of stored responses by their ids, each once.
class StoredItems {
 public:
  explicit StoredItems(const OwnerResponses& kept) : kept_(kept) {}

  std::variant<json::object, ApiError> take(const std::string& id, const std::string& where) {
    const std::string response = response_of(id);
    if (loaded_.insert(response).second)
      if (auto error = load(response, where)) return *std::move(error);
    auto found = items_.extract(id);
    if (!found.empty()) return std::move(found.mapped());
    return ApiError{404,
                    fmt::format("'{}': item '{}' is not stored, or is referenced twice", where,
                                id.substr(0, 100)),
                    where, "item_not_found"};
  }

 private:
  std::optional<ApiError> load(const std::string& id, const std::string& where) {
    const StoredResponsePtr response = kept_.get(id);
    if (!response) return std::nullopt;
    bytes_ += response->object.size() + response->items.size();
    if (bytes_ > StoredResponses::kMaxResponseBytes)
      return fault(where, fmt::format("responses of more than {} bytes are referred to",
                                      StoredResponses::kMaxResponseBytes));
    const auto object = parse_json(response->object);
    const auto items = parse_json(response->items);
    if (object.ok()) index(object->at("output").as_array());
    if (items.ok()) index(items->as_array());
    return std::nullopt;
  }
  void index(const json::array& items) {
    for (const json::value& item : items)
      items_.emplace(text_member(item.as_object(), "id"), item.as_object());
  }

  const OwnerResponses& kept_;
  std::unordered_set<std::string> loaded_;
  std::unordered_map<std::string, json::object> items_;
  size_t bytes_ = 0;  // of text read so far
};

}  // namespace

std::variant<json::array, ApiError> read_input_items(const json::value& input,
                                                     const OwnerResponses& kept,
                                                     std::string_view id_end) {
  if (!input.is_string() && !input.is_array())
    return fault(
        "input",
        fmt::format("expected a string or an array of items, got {}", json_kind_name(input)),
        "invalid_type");
  const json::array one = {json::object{{"role", "user"}, {"content", input}}};
  StoredItems kept_items(kept);
  json::array out;
  for (const json::value& value : input.is_string() ? one : input.get_array()) {
    const std::string where = fmt::format("input[{}]", out.size());
    const json::object* const given = value.if_object();
    if (!given) return fault(where, "expected an object", "invalid_type");
    json::object item = *given;
    const std::string type = type_of(item);
    if (type == "item_reference") {
      auto found = kept_items.take(text_member(item, "id"), where);
      if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
      out.push_back(std::get<json::object>(std::move(found)));
      continue;
    }
    item["type"] = type;
    if (text_member(item, "id").empty())
      item["id"] = fmt::format("{}{}_in{}", prefix_of(type), id_end, out.size());
    if (const json::value* content = item.if_contains("content");
        type == "message" && content && content->is_string()) {
      const char* part = text_member(item, "role") == "assistant" ? "output_text" : "input_text";
      item["content"] = json::array{json::object{{"type", part}, {"text", *content}}};
    }
    out.push_back(std::move(item));
  }
  if (out.empty()) return fault("input", "at least one item is required");
  return out;
}

std::optional<ApiError> ChatMessages::add(const json::object& item, const std::string& where) {
  const std::string type = type_of(item);
  if (type == "message") return add_message(item, where);
  if (type == "function_call_output") return add_output(item, where);
  if (type == "reasoning") {
    add_reasoning(item);
    return std::nullopt;
  }
  if (type != "function_call")
    return unsupported_type(where, type,
                            "items are message, function_call, function_call_output, reasoning "
                            "and item_reference");
  for (const char* key : {"call_id", "name"})
    if (text_member(item, key).empty())
      return fault(fmt::format("{}.{}", where, key), "required", "missing_required_parameter");
  add_call(item);
  return std::nullopt;
}

std::optional<ApiError> ChatMessages::add_message(const json::object& item,
                                                  const std::string& where) {
  constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"};
  const std::string role = text_member(item, "role");
  if (std::ranges::find(kRoles, role) == std::end(kRoles))
    return fault(where + ".role", fmt::format("'{}' is none of user, assistant, system, developer",
                                              role.substr(0, 60)));
  const json::value* const content = item.if_contains("content");
  if (!content) return fault(where + ".content", "required", "missing_required_parameter");
  auto read = chat_content(*content, where + ".content");
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  json::value& text = std::get<json::value>(read);
  if (role != "assistant") {
    end_assistant();
    out_.push_back(json::object{{"role", role}, {"content", std::move(text)}});
    return std::nullopt;
  }
  if (!text.is_string()) return fault(where + ".content", "the assistant's have no pictures");
  if (has_text_ || !calls_.empty()) end_assistant();
  has_text_ = true;
  text_ = text.get_string();
  return std::nullopt;
}

// The full text, else the summary.
void ChatMessages::add_reasoning(const json::object& item) {
  if (has_text_ || !calls_.empty()) end_assistant();
  for (const char* key : {"content", "summary"}) {
    std::string text;
    if (const json::value* parts = item.if_contains(key); parts && parts->is_array())
      for (const json::value& part : parts->get_array())
        if (part.is_object()) text += text_member(part.get_object(), "text");
    if (text.empty()) continue;
    reasoning_ += text;
    return;
  }
}

void ChatMessages::add_call(const json::object& item) {
  const std::string id = text_member(item, "call_id");
  call_ids_.insert(id);
  calls_.push_back(
      json::object{{"id", id},
                   {"type", "function"},
                   {"function", json::object{{"name", text_member(item, "name")},
                                             {"arguments", text_member(item, "arguments")}}}});
}

std::optional<ApiError> ChatMessages::add_output(const json::object& item,
                                                 const std::string& where) {
  const std::string id = text_member(item, "call_id");
  if (!call_ids_.contains(id))
    return fault(where + ".call_id",
                 fmt::format("no function_call before it has the call_id '{}'", id.substr(0, 100)));
  const json::value* const output = item.if_contains("output");
  if (!output) return fault(where + ".output", "required", "missing_required_parameter");
  auto text = chat_content(*output, where + ".output");
  if (auto* error = std::get_if<ApiError>(&text)) return std::move(*error);
  end_assistant();
  out_.push_back(json::object{
      {"role", "tool"}, {"tool_call_id", id}, {"content", std::get<json::value>(std::move(text))}});
  return std::nullopt;
}

// Reasoning without a following item is no message.
void ChatMessages::end_assistant() {
  if (has_text_ || !calls_.empty()) {
    json::object chat = {{"role", "assistant"}, {"content", std::move(text_)}};
    if (!reasoning_.empty()) chat["reasoning_content"] = std::move(reasoning_);
    if (!calls_.empty()) chat["tool_calls"] = std::move(calls_);
    out_.push_back(std::move(chat));
  }
  reasoning_.clear(), text_.clear(), calls_.clear();
  has_text_ = false;
}

json::array ChatMessages::take() {
  end_assistant();
  return std::move(out_);
}

}  // namespace nereid::front
