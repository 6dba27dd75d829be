// /v1/chat/completions bodies; see requests.h.
#include <limits>

#include "base/blanks.h"
#include "base/json_exact.h"
#include "front/http/json_text.h"
#include "front/openai/requests/request_fields.h"
#include "front/openai/requests/tool_choice.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxTemplateBytes = 256 << 10;
constexpr size_t kMaxPromptIds = 1 << 20;
constexpr size_t kMaxRoleBytes = 64;

// Text of a message: a string, or the parts' texts (of refusals too) joined by
// newlines. Absent for null.
std::optional<std::string> read_content(Fields& fields, const json::value& content,
                                        std::string_view where) {
  if (content.is_null()) return std::nullopt;
  if (content.is_string()) return std::string(std::string_view(content.get_string()));
  if (!content.is_array()) {
    fields.fail(
        where,
        fmt::format("expected a string or an array of parts, got {}", json_kind_name(content)),
        "invalid_type");
    return std::nullopt;
  }
  std::string out;
  bool first = true;
  for (const json::value& item : content.get_array()) {
    const json::object* part = item.if_object();
    const json::value* type = part ? part->if_contains("type") : nullptr;
    const bool is_refusal = type && *type == "refusal";
    const json::value* text = part ? part->if_contains(is_refusal ? "refusal" : "text") : nullptr;
    if (!type || (*type != "text" && !is_refusal)) {
      fields.fail(where,
                  fmt::format("only parts of type \"text\" are supported, got {}",
                              type ? json_text(*type).substr(0, 60) : "none"),
                  "unsupported_parameter");
      return std::nullopt;
    }
    if (!text || !text->is_string()) {
      fields.fail(
          where,
          fmt::format("a {0} part needs a string member \"{0}\"", is_refusal ? "refusal" : "text"),
          "invalid_type");
      return std::nullopt;
    }
    if (!first) out += "\n";
    first = false;
    out += std::string_view(text->get_string());
  }
  return out;
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

json::value read_message(Fields& fields, const json::value& item, size_t index) {
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
  auto text = content ? read_content(fields, *content, where + ".content") : std::nullopt;
  const json::value* refusal = in->if_contains("refusal");
  if (text.value_or("").empty() && refusal && refusal->is_string())
    text = std::string(std::string_view(refusal->get_string()));
  // An assistant message may have had only reasoning, or nothing.
  if (!text && !has_calls && name != "assistant") {
    fields.fail(where + ".content", "required", "missing_required_parameter");
  }
  out["content"] = text.value_or("");
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

json::array read_messages(Fields& fields) {
  json::array out;
  const json::array* list = fields.array("messages");
  if (list == nullptr || list->empty()) {
    fields.fail("messages", "expected a non-empty array", "missing_required_parameter");
    return out;
  }
  for (size_t i = 0; i < list->size(); ++i) out.push_back(read_message(fields, (*list)[i], i));
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
  out.context["messages"] = read_messages(fields);
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
