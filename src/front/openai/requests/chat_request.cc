// /v1/chat/completions bodies; see requests.h.
#include <algorithm>
#include <iterator>
#include <limits>

#include "base/blanks.h"
#include "base/json_exact.h"
#include "base/json_members.h"
#include "front/http/json_text.h"
#include "front/openai/requests/request_fields.h"
#include "front/openai/requests/tool_choice.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxTemplateBytes = 256 << 10;
constexpr size_t kMaxPromptIds = 1 << 20;
constexpr size_t kMaxRoleBytes = 64;

// A picture part for templates; its source is appended.
json::value read_picture(Fields& fields, const json::value& given, const std::string& where,
                         std::vector<PictureSource>& pictures) {
  const json::object* const object = given.if_object();
  const json::value* const url = object ? object->if_contains("url") : &given;
  const json::value* const detail = object ? object->if_contains("detail") : nullptr;
  constexpr std::string_view kDetails[] = {"auto", "low", "high"};
  if (!url || !url->is_string()) {
    fields.fail(where, "an image_url part needs an object \"image_url\" with a string \"url\"",
                "invalid_type");
  } else if (detail && !detail->is_null() &&
             (!detail->is_string() ||
              std::ranges::find(kDetails, std::string_view(detail->get_string())) ==
                  std::end(kDetails))) {
    fields.fail(where, "\"detail\" is none of auto, low, high", kInvalidValue);
  } else if (pictures.size() == kMaxPictures) {
    fields.fail(where, fmt::format("a request has at most {} pictures", kMaxPictures));
  } else {
    const json::string& text = url->get_string();
    pictures.push_back({where, json::string(text, text.storage())});
  }
  return json::object{{"type", "image"}, {"picture", std::ssize(pictures) - 1}};
}

// The text of a part of type text or refusal.
std::optional<std::string> read_text_part(Fields& fields, const json::value& item,
                                          const std::string& where) {
  const json::value* const type = member(item, "type");
  const bool is_refusal = type && *type == "refusal";
  if (!type || (*type != "text" && !is_refusal)) {
    fields.fail(where,
                fmt::format("only parts of type \"text\" and \"image_url\" are supported, got {}{}",
                            type ? json_text(*type).substr(0, 60) : "none",
                            type && *type == "video_url"
                                ? ": send frames of the video as parts of type \"image_url\""
                                : ""),
                "unsupported_parameter");
    return std::nullopt;
  }
  const char* const key = is_refusal ? "refusal" : "text";
  const json::value* const text = member(item, key);
  if (text && text->is_string()) return std::string(std::string_view(text->get_string()));
  fields.fail(where, fmt::format("a {0} part needs a string member \"{0}\"", key), "invalid_type");
  return std::nullopt;
}

// Content of a message: a string, or the parts' texts (of refusals too) joined by newlines; a list
// of parts for templates where there are pictures; null for null.
json::value read_content(Fields& fields, const json::value& content, const std::string& where,
                         std::vector<PictureSource>& pictures) {
  if (content.is_null() || content.is_string()) return content;
  if (!content.is_array()) {
    fields.fail(
        where,
        fmt::format("expected a string or an array of parts, got {}", json_kind_name(content)),
        "invalid_type");
    return nullptr;
  }
  const size_t num_before = pictures.size();
  json::array parts;
  std::string joined;
  for (const json::value& item : content.get_array()) {
    const std::string at = fmt::format("{}[{}]", where, parts.size());
    if (text_member(item, "type") == "image_url") {
      parts.push_back(read_picture(fields, member_or_null(item, "image_url"), at, pictures));
      continue;
    }
    auto text = read_text_part(fields, item, where);
    if (!text) return nullptr;
    if (!parts.empty()) joined += "\n";
    joined += *text;
    parts.push_back(json::object{{"type", "text"}, {"text", *std::move(text)}});
  }
  if (pictures.size() > num_before) return parts;
  return json::value(joined);
}

// Arguments arrive as JSON text, templates expect the object. Missing ones become an empty object.
json::value template_tool_call(const json::value& call) {
  json::value out = call;
  const auto object_of = [](json::value* value) {
    return value && is_exact_object(*value) ? &value->get_object() : nullptr;
  };
  json::object* object = object_of(&out);
  json::value* function = object ? object->if_contains("function") : nullptr;
  json::object* inner = function ? object_of(function) : object;
  if (inner == nullptr) return out;
  json::value& arguments = (*inner)["arguments"];
  if (arguments.is_string()) {
    const std::string_view text = without_blanks(std::string_view(arguments.get_string()));
    StatusOr<json::value> parsed = parse_json_exact(text, 100);
    if (text.empty())
      arguments = json::object();
    else if (parsed.ok() && (is_exact_object(*parsed) || parsed->is_null()))
      arguments = *std::move(parsed);
  }
  if (arguments.is_null()) arguments = json::object();
  return out;
}

json::value read_message(Fields& fields, const json::value& item, size_t index,
                         std::vector<PictureSource>& pictures) {
  const std::string where = fmt::format("messages[{}]", index);
  const json::object* in = item.if_object();
  const json::value* role = in ? in->if_contains("role") : nullptr;
  if (role == nullptr || !role->is_string()) {
    fields.fail(where, "expected an object with a string member \"role\"", "invalid_type");
    return nullptr;
  }
  const std::string_view name(role->get_string());
  if (name.empty() || name.size() > kMaxRoleBytes) {
    fields.fail(where + ".role", fmt::format("expected a text of 1 to {} bytes", kMaxRoleBytes),
                kInvalidValue);
    return nullptr;
  }
  json::object out = *in;
  const json::value* calls = in->if_contains("tool_calls");
  const bool has_calls = calls && calls->is_array() && !calls->get_array().empty();
  const json::value* content = in->if_contains("content");
  const size_t num_before = pictures.size();
  json::value read =
      content ? read_content(fields, *content, where + ".content", pictures) : json::value();
  if (pictures.size() > num_before && name == "assistant")
    fields.fail(where + ".content", "messages of the assistant have no pictures");
  const json::value* refusal = in->if_contains("refusal");
  const bool is_empty = read.is_null() || (read.is_string() && read.get_string().empty());
  if (is_empty && refusal && refusal->is_string()) read = *refusal;
  // An assistant message may have had only reasoning, or nothing.
  if (read.is_null() && !has_calls && name != "assistant") {
    fields.fail(where + ".content", "required", "missing_required_parameter");
  }
  if (read.is_null()) read = "";
  out["content"] = std::move(read);
  if (has_calls) {
    json::array converted;
    for (const json::value& call : calls->get_array()) {
      converted.push_back(template_tool_call(call));
    }
    out["tool_calls"] = std::move(converted);
  } else {
    out.erase("tool_calls");
  }
  return out;
}

json::array read_messages(Fields& fields, std::vector<PictureSource>& pictures) {
  json::array out;
  const json::array* list = fields.array("messages");
  if (list == nullptr || list->empty()) {
    fields.fail("messages", "expected a non-empty array", "missing_required_parameter");
    return out;
  }
  for (size_t i = 0; i < list->size(); ++i)
    out.push_back(read_message(fields, (*list)[i], i, pictures));
  return out;
}

void read_log_probs(Fields& fields, SamplingOptions& out) {
  out.log_probs = fields.flag("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogProbs);
  if (top.value_or(0) > 0 && !out.log_probs) {
    fields.fail("top_logprobs", "only allowed with \"logprobs\": true");
  }
  out.num_top_log_probs = top.value_or(0);
}

void refuse_unsupported_chat(Fields& fields) {
  fields.refuse_unless("modalities", json::array{"text"});
  for (const char* key : {"functions", "function_call", "audio", "prediction",
                          "mm_processor_kwargs", "media_io_kwargs", "web_search_options"}) {
    fields.refuse_unless(key, nullptr);
  }
  // Advice that any output satisfies.
  fields.ignore("verbosity");
}

// Whether the answer begins a message or continues the last one.
void read_continuation(Fields& fields, ChatRequest& out) {
  out.continues_last = fields.flag("continue_final_message").value_or(false);
  const bool begins = fields.flag("add_generation_prompt").value_or(!out.continues_last);
  if (begins && out.continues_last)
    fields.fail("continue_final_message", "not together with \"add_generation_prompt\": true");
  out.context["add_generation_prompt"] = begins;
}

// The last message, if its role is the answer's.
void read_echo(const Fields& fields, ChatRequest& out) {
  if (fields.error()) return;
  const json::object& last = out.context.at("messages").get_array().back().get_object();
  if (last.at("role") == "assistant") out.echo = last.at("content").as_string();
}

ChatRequest chat_of(Fields& fields) {
  ChatRequest out;
  if (const json::object* extra = fields.object("chat_template_kwargs")) out.context = *extra;
  if (const auto effort = fields.text("reasoning_effort")) {
    out.context["reasoning_effort"] = *effort;
  }
  if (const auto thinks = fields.flag("thinking"))
    out.context["thinking"] = out.context["enable_thinking"] = *thinks;
  out.context["messages"] = read_messages(fields, out.pictures);
  const json::array* documents = fields.array("documents");
  out.context["documents"] = documents ? json::value(*documents) : json::value(nullptr);
  read_continuation(fields, out);
  if (fields.flag("echo").value_or(false)) read_echo(fields, out);
  auto ids = read_token_ids(fields, "prompt_token_ids", kMaxPromptIds);
  if (!ids.empty()) out.prompt_ids = std::move(ids);
  out.chat_template = fields.text("chat_template");
  if (out.chat_template && out.chat_template->size() > kMaxTemplateBytes)
    fields.fail("chat_template", fmt::format("{} bytes given, at most {} allowed",
                                             out.chat_template->size(), kMaxTemplateBytes));
  out.add_special_tokens = fields.flag("add_special_tokens").value_or(false);
  out.include_reasoning = fields.flag("include_reasoning").value_or(true);
  out.max_reasoning_tokens =
      fields.integer("thinking_token_budget", 0, std::numeric_limits<int32_t>::max());
  out.common = read_common(fields);
  read_tools(fields, out);
  read_sequences(fields, out.common, 1);
  read_log_probs(fields, out.common.sampling);
  refuse_unsupported_chat(fields);
  return out;
}

}  // namespace

Parsed<ChatRequest> parse_chat_request(std::string_view body, json::storage_ptr memory) {
  return parse_fields(body, std::move(memory), chat_of, kExactOfChats);
}

FieldUses chat_fields() { return uses_of(chat_of); }

}  // namespace nereid::front
