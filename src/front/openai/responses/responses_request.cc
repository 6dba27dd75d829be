// See responses_request.h. Source: platform.openai.com/docs/api-reference/responses/create.
#include "front/openai/responses/responses_request.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_set>
#include <utility>

#include "front/http/json_text.h"
#include "front/openai/requests/fields.h"
#include "front/openai/responses/responses_input.h"
#include "front/translate/translated_exchange.h"

namespace nereid::front {
namespace {

// Members of the same name and meaning in both bodies: those of the API, and extensions.
constexpr const char* kSameFields[] = {"model",
                                       "temperature",
                                       "top_p",
                                       "stream",
                                       "parallel_tool_calls",
                                       "top_k",
                                       "min_p",
                                       "seed",
                                       "stop",
                                       "stop_token_ids",
                                       "include_stop_str_in_output",
                                       "ignore_eos",
                                       "min_tokens",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "logit_bias",
                                       "repetition_penalty",
                                       "bad_words",
                                       "priority",
                                       "cache_salt",
                                       "truncate_prompt_tokens",
                                       "skip_special_tokens"};

// Members with other names: (chat, request).
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"messages", "input"},
    {"max_completion_tokens", "max_output_tokens"},
    {"response_format", "text.format"},
    {"reasoning_effort", "reasoning.effort"}};

const json::value* present(const json::object& object, std::string_view key) {
  const json::value* const v = object.if_contains(key);
  return v && !v->is_null() ? v : nullptr;
}

json::value value_or(const json::object& object, std::string_view key, json::value otherwise) {
  const json::value* const v = present(object, key);
  return v ? *v : std::move(otherwise);
}

class RequestReader {
 public:
  RequestReader(const json::object& request, const OwnerResponses& kept, std::string_view id_end)
      : request_(request), fields_(request), kept_(kept), id_end_(id_end) {}

  Parsed<ResponsesRequest> read() {
    read_same();
    read_limits();
    read_text();
    read_reasoning();
    read_tools();
    read_include();
    read_others();
    if (!fields_.error()) read_conversation();
    if (fields_.error()) return *fields_.error();
    if (failure_) return *std::move(failure_);
    out_.unknown = fields_.unknown();
    std::ranges::move(inner_unknown_, std::back_inserter(out_.unknown));
    out_.chat = json_text(chat_);
    return std::move(out_);
  }
  FieldUses uses() const { return fields_.uses(); }

 private:
  void read_same() {
    for (const char* key : kSameFields)
      if (const json::value* v = fields_.get(key); v && !v->is_null()) chat_[key] = *v;
    out_.stream = fields_.flag("stream").value_or(false);
    if (out_.stream) chat_["stream_options"] = json::object{{"include_usage", true}};
    if (const json::object* extra = fields_.object("chat_template_kwargs"))
      chat_["chat_template_kwargs"] = *extra;
    out_.members["temperature"] = value_or(request_, "temperature", 1.0);
    out_.members["top_p"] = value_or(request_, "top_p", 1.0);
    out_.members["parallel_tool_calls"] = value_or(request_, "parallel_tool_calls", true);
  }

  void read_limits() {
    constexpr int64_t kMax = INT32_MAX;
    const auto most = fields_.integer("max_output_tokens", 1, kMax);
    if (most) chat_["max_completion_tokens"] = *most;
    out_.members["max_output_tokens"] = most ? json::value(*most) : nullptr;
    // No effect: it bounds calls of tools run by the server, of which there are none.
    const auto calls = fields_.integer("max_tool_calls", 1, kMax);
    out_.members["max_tool_calls"] = calls ? json::value(*calls) : nullptr;
  }

  // A chat's json_schema is a nested object.
  void read_text() {
    json::object format = {{"type", "text"}};
    if (const json::object* text = fields_.object("text")) {
      Fields inner(*text);
      inner.ignore("verbosity");
      if (const json::object* wanted = inner.object("format")) format = *wanted;
      take(inner, "text");
    }
    const std::string type = text_member(format, "type");
    if (type == "json_schema") {
      if (!present(format, "schema")) return fields_.fail("text.format", "schema: it is missing");
      json::object schema = format;
      schema.erase("type");
      chat_["response_format"] = json::object{{"type", type}, {"json_schema", std::move(schema)}};
    } else if (type == "json_object") {
      chat_["response_format"] = format;
    } else if (type != "text") {
      return fields_.fail("text.format",
                          "type: expected \"text\", \"json_object\" or \"json_schema\"");
    }
    out_.members["text"] = json::object{{"format", std::move(format)}};
  }

  void read_reasoning() {
    json::object echo = {{"effort", nullptr}, {"summary", nullptr}};
    if (const json::object* reasoning = fields_.object("reasoning")) {
      Fields inner(*reasoning);
      if (const auto effort = inner.text("effort")) {
        echo["effort"] = *effort;
        chat_["reasoning_effort"] = *effort;
        if (*effort == "none") {
          json::object& variables = chat_["chat_template_kwargs"].is_object()
                                        ? chat_["chat_template_kwargs"].get_object()
                                        : chat_["chat_template_kwargs"].emplace_object();
          variables["enable_thinking"] = false, variables["thinking"] = false;
        }
      }
      // Reasoning is shown whole; there are no summaries.
      for (const char* key : {"summary", "generate_summary"}) inner.refuse_unless(key, "auto");
      take(inner, "reasoning");
    }
    out_.members["reasoning"] = std::move(echo);
  }

  // {"type": "function", "name", ...} here, {"type", "function": {"name", ...}} in a chat.
  void read_tools() {
    json::array tools;
    std::unordered_set<std::string> names;
    const json::array* const list = fields_.array("tools");
    for (size_t i = 0; list && i < list->size(); ++i) {
      const std::string where = fmt::format("tools[{}]", i);
      const json::object* const tool = (*list)[i].if_object();
      const std::string type = tool ? text_member(*tool, "type") : "";
      if (type != "function")
        return fields_.fail(where,
                            fmt::format("type '{}' is not supported; tools are of type function",
                                        type.substr(0, 60)),
                            "unsupported_parameter");
      const std::string name = text_member(*tool, "name");
      if (name.empty())
        return fields_.fail(where + ".name", "required", "missing_required_parameter");
      json::object function = *tool;
      function.erase("type");
      for (auto it = function.begin(); it != function.end();)
        it = it->value().is_null() ? function.erase(it) : it + 1;
      names.insert(name);
      tools.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
    }
    out_.members["tools"] = list ? *list : json::array();
    read_tool_choice(tools, names);
    if (!tools.empty()) chat_["tools"] = std::move(tools);
  }

  void read_tool_choice(json::array& tools, const std::unordered_set<std::string>& names) {
    const json::value* const value = fields_.get("tool_choice");
    out_.members["tool_choice"] = value && !value->is_null() ? *value : json::value("auto");
    if (!value || value->is_null()) return;
    const json::object* const choice = value->if_object();
    if (!choice) {
      chat_["tool_choice"] = *value;
      return;
    }
    const std::string type = text_member(*choice, "type");
    if (type == "function") {
      chat_["tool_choice"] = json::object{
          {"type", type}, {"function", json::object{{"name", text_member(*choice, "name")}}}};
    } else if (type == "allowed_tools") {
      allow_tools(*choice, tools, names);
    } else {
      fields_.fail("tool_choice",
                   fmt::format("type '{}' is not supported; allowed are \"none\", \"auto\", "
                               "\"required\", function and allowed_tools",
                               type.substr(0, 60)),
                   "unsupported_parameter");
    }
  }

  // {"type": "allowed_tools", "mode", "tools": [{"type": "function", "name"}]}: other tools are
  // removed from the prompt.
  void allow_tools(const json::object& choice, json::array& tools,
                   const std::unordered_set<std::string>& names) {
    const std::string mode = text_member(choice, "mode");
    if (mode != "auto" && mode != "required")
      return fields_.fail("tool_choice", "mode: expected \"auto\" or \"required\"");
    std::unordered_set<std::string> allowed;
    if (const json::value* list = choice.if_contains("tools"); list && list->is_array())
      for (const json::value& tool : list->get_array())
        if (tool.is_object()) allowed.insert(text_member(tool.get_object(), "name"));
    for (const std::string& name : allowed)
      if (!names.contains(name))
        return fields_.fail("tool_choice",
                            fmt::format("'{}' is none of the tools", name.substr(0, 100)));
    if (allowed.empty()) return fields_.fail("tool_choice", "tools: at least one is required");
    json::array kept;
    for (json::value& tool : tools)
      if (allowed.contains(std::string(tool.at("function").at("name").as_string())))
        kept.push_back(std::move(tool));
    tools = std::move(kept);
    chat_["tool_choice"] = mode;
  }

  // Optional parts of the answer. Most belong to tools and inputs that are refused above; reasoning
  // is plain text, so it needs no encryption.
  void read_include() {
    constexpr std::string_view kLogProbs = "message.output_text.logprobs";
    constexpr std::string_view kKnown[] = {kLogProbs,
                                           "reasoning.encrypted_content",
                                           "file_search_call.results",
                                           "web_search_call.results",
                                           "web_search_call.action.sources",
                                           "message.input_image.image_url",
                                           "computer_call_output.output.image_url",
                                           "code_interpreter_call.outputs"};
    const auto top = fields_.integer("top_logprobs", 0, kMaxTopLogProbs);
    bool with_log_probs = top.value_or(0) > 0;
    if (const json::array* list = fields_.array("include"))
      for (const json::value& item : *list) {
        const std::string_view name =
            item.is_string() ? std::string_view(item.get_string()) : std::string_view();
        if (std::ranges::find(kKnown, name) == std::end(kKnown))
          return fields_.fail("include",
                              fmt::format("{} is not known", json::serialize(item).substr(0, 100)));
        with_log_probs |= name == kLogProbs;
      }
    if (with_log_probs) chat_["logprobs"] = true, chat_["top_logprobs"] = top.value_or(0);
    out_.members["top_logprobs"] = top.value_or(0);
  }

  void read_others() {
    fields_.refuse_unless("background", false);
    const std::string truncation = fields_.text("truncation").value_or("disabled");
    if (truncation != "auto" && truncation != "disabled")
      fields_.fail("truncation", "expected \"auto\" or \"disabled\"");
    out_.drops_messages = truncation == "auto";
    for (const char* key : {"conversation", "prompt", "context_management"})
      fields_.refuse_unless(key, nullptr);
    if (const json::object* options = fields_.object("stream_options")) {
      if (!out_.stream) fields_.fail("stream_options", "only allowed with \"stream\": true");
      Fields inner(*options);
      inner.refuse_unless("include_obfuscation", false);
      take(inner, "stream_options");
    }
    // There is one service tier.
    for (const char* key : {"service_tier", "client_metadata", "prompt_cache_retention"})
      fields_.ignore(key);
    json::object& members = out_.members;
    members["background"] = false, members["truncation"] = truncation;
    members["service_tier"] = "default";
    for (const char* key : {"user", "safety_identifier", "prompt_cache_key"}) {
      const auto text = fields_.text(key);
      members[key] = text ? json::value(*text) : nullptr;
    }
    read_metadata();
    out_.is_kept = fields_.flag("store").value_or(true) && kept_.store->is_on();
    members["store"] = out_.is_kept;
  }

  void read_metadata() {
    constexpr size_t kMaxPairs = 16, kMaxKey = 64, kMaxValue = 512;
    const json::object* const metadata = fields_.object("metadata");
    out_.members["metadata"] = metadata ? *metadata : json::object();
    if (!metadata) return;
    bool is_good = metadata->size() <= kMaxPairs;
    for (const auto& [key, value] : *metadata)
      is_good &=
          key.size() <= kMaxKey && value.is_string() && value.get_string().size() <= kMaxValue;
    if (!is_good)
      fields_.fail("metadata", fmt::format("at most {} texts of at most {} bytes, with keys of at "
                                           "most {} bytes, are allowed",
                                           kMaxPairs, kMaxValue, kMaxKey));
  }

  // Instructions apply to this request only.
  void read_conversation() {
    ChatMessages messages;
    const auto instructions = fields_.text("instructions");
    out_.members["instructions"] = instructions ? json::value(*instructions) : nullptr;
    if (instructions)
      add(messages, {{"type", "message"}, {"role", "system"}, {"content", *instructions}}, "");
    json::array items = earlier_items();
    for (const json::value& item : items) add(messages, item.as_object(), "previous_response_id");
    const json::value* const input = fields_.get("input");
    if (!input) return fields_.fail("input", "required", "missing_required_parameter");
    auto own = read_input_items(*input, kept_, id_end_);
    if (auto* error = std::get_if<ApiError>(&own)) return fail(std::move(*error));
    size_t index = 0;
    for (json::value& item : std::get<json::array>(own)) {
      add(messages, item.get_object(), fmt::format("input[{}]", index++));
      items.push_back(std::move(item));
    }
    chat_["messages"] = messages.take();
    if (out_.is_kept) out_.items = json::serialize(items);
  }

  // Items of the response that this one continues.
  json::array earlier_items() {
    const auto id = fields_.text("previous_response_id");
    out_.members["previous_response_id"] = id ? json::value(*id) : nullptr;
    if (!id) return {};
    const StoredResponsePtr response = kept_.get(*id);
    if (!response) {
      fail({404,
            fmt::format("'previous_response_id': no response '{}' is kept", id->substr(0, 100)),
            "previous_response_id", "previous_response_not_found"});
      return {};
    }
    auto items = parse_json(response->items);
    auto object = parse_json(response->object);
    if (!items.ok() || !object.ok()) return {};
    json::array out = std::move(items->as_array());
    for (json::value& item : object->as_object().at("output").as_array())
      out.push_back(std::move(item));
    return out;
  }

  void add(ChatMessages& messages, const json::object& item, const std::string& where) {
    if (auto error = messages.add(item, where)) fail(*std::move(error));
  }
  void fail(ApiError error) {
    if (!failure_) failure_ = std::move(error);
  }
  // Takes the fault of the object in `key`, unknown members included.
  void take(const Fields& inner, std::string_view key) {
    if (inner.error()) return fields_.fail(key, inner.error()->message, inner.error()->code);
    for (const std::string& name : inner.unknown())
      inner_unknown_.push_back(fmt::format("{}.{}", key, name));
  }

  const json::object& request_;
  Fields fields_;
  const OwnerResponses& kept_;
  const std::string_view id_end_;
  json::object chat_;
  ResponsesRequest out_;
  std::optional<ApiError> failure_;  // of the conversation, with its own HTTP status
  std::vector<std::string> inner_unknown_;
};

}  // namespace

Parsed<ResponsesRequest> read_responses_request(const json::object& request,
                                                const OwnerResponses& kept,
                                                std::string_view id_end) {
  return RequestReader(request, kept, id_end).read();
}

FieldUses responses_fields() {
  const json::object request = {{"input", "x"}};
  const OwnerResponses kept = {std::make_shared<StoredResponses>(0), ""};
  RequestReader reader(request, kept, "");
  (void)reader.read();
  return reader.uses();
}

ApiError responses_error(ApiError error) {
  for (const auto& [chat, own] : kRenamed) {
    if (error.param != chat) continue;
    const std::string quoted = fmt::format("'{}'", chat);
    if (error.message.starts_with(quoted))
      error.message.replace(0, quoted.size(), fmt::format("'{}'", own));
    error.param = own;
    break;
  }
  return error;
}

}  // namespace nereid::front
