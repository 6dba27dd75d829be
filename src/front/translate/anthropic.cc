// Messages to chat completions and back; see anthropic.h.
#include "front/translate/anthropic.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_exact.h"
#include "front/http/json_text.h"
#include "front/translate/anthropic_messages.h"

namespace nereid::front {
namespace {

using Fault = TranslationFault;

// Members of a request: read, without effect, refused unless empty.
constexpr std::string_view kRead[] = {
    "model",          "messages",      "system",        "max_tokens",  "temperature",
    "top_p",          "top_k",         "stream",        "tools",       "thinking",
    "stop_sequences", "output_config", "output_format", "tool_choice", "context_management"};
// No effect: there is one service tier, prefixes are cached anyway, and nothing is stored.
constexpr std::string_view kWithoutEffect[] = {
    "metadata",        "service_tier", "cache_control",  "inference_geo",
    "speed",           "betas",        "anthropic_beta", "anthropic_version",
    "user_profile_id", "workspace_id", "diagnostics",    "billing_policy"};
constexpr std::string_view kRefused[] = {"container", "mcp_servers", "compaction", "thread",
                                         "fallbacks"};

constexpr Renamed kRenamed[] = {{"stop", "stop_sequences"},
                                {"thinking_token_budget", "thinking.budget_tokens"},
                                {"reasoning_effort", "output_config.effort"},
                                {"response_format", "output_config.format"}};

// Null, or an empty list.
bool is_nothing(const json::value& value) {
  return value.is_null() || (value.is_array() && value.get_array().empty());
}

const json::value* present(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  return value && !value->is_null() ? value : nullptr;
}

std::optional<Fault> read_tool(const json::object& tool, const std::string& where,
                               json::array& tools) {
  if (const json::value* type = present(tool, "type"); type && *type != "custom")
    return Fault{fmt::format("{}: type {} is not supported; tools are of type custom", where,
                             json_text(*type).substr(0, 60))};
  const std::string name = text_member(tool, "name");
  if (name.empty()) return Fault{where + ".name: expected a string that is not empty"};
  const json::value* const schema = tool.if_contains("input_schema");
  if (!schema || !is_exact_object(*schema))
    return Fault{where + ".input_schema: expected an object"};
  json::object function = {
      {"name", name}, {"description", text_member(tool, "description")}, {"parameters", *schema}};
  if (const json::value* strict = present(tool, "strict")) function["strict"] = *strict;
  tools.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
  return std::nullopt;
}

std::optional<Fault> read_tools(const json::object& request, json::object& chat) {
  const json::value* const list = present(request, "tools");
  if (list && !list->is_array()) return Fault{"tools: expected an array"};
  json::array tools;
  for (size_t i = 0; list && i < list->get_array().size(); ++i)
    if (auto fault =
            read_tool(object_or_empty(list->get_array()[i]), fmt::format("tools.{}", i), tools))
      return fault;
  if (!tools.empty()) chat["tools"] = std::move(tools);
  const json::value* const value = present(request, "tool_choice");
  if (!value) return std::nullopt;
  const json::object* const choice = value->if_object();
  if (!choice) return Fault{"tool_choice: expected an object {\"type\"}"};
  const std::string type = text_member(*choice, "type");
  if (type == "any")
    chat["tool_choice"] = "required";
  else if (type == "tool")
    chat["tool_choice"] = json::object{
        {"type", "function"}, {"function", json::object{{"name", text_member(*choice, "name")}}}};
  else if (type == "auto" || type == "none")
    chat["tool_choice"] = type;
  else
    return Fault{"tool_choice.type: expected auto, any, tool or none"};
  if (const json::value* one = choice->if_contains("disable_parallel_tool_use");
      one && one->is_bool() && one->get_bool())
    chat["parallel_tool_calls"] = false;
  return std::nullopt;
}

// Whether the budget covers the thinking between a turn's calls too: then it may exceed max_tokens.
// Source: docs.anthropic.com, "Interleaved thinking".
bool thinks_between_calls(const json::object& request) {
  constexpr std::string_view kBeta = "interleaved-thinking-";
  if (text_member(request, "anthropic_beta").find(kBeta) != std::string::npos) return true;
  for (const char* key : {"betas", "anthropic_beta"})
    for (const json::value& beta : array_member(request, key))
      if (const json::string* name = beta.if_string(); name && name->starts_with(kBeta))
        return true;
  return false;
}

// Budgets below the 1,024 tokens of Anthropic's API are accepted: contexts here may be short.
std::optional<Fault> check_budget(const json::value& budget, const json::object& request) {
  constexpr int64_t kLeast = 1;
  constexpr std::string_view kField = "thinking.budget_tokens";
  const json::value* const max_tokens = present(request, "max_tokens");
  if (!budget.is_int64()) return Fault{fmt::format("{}: expected an integer", kField)};
  if (budget.get_int64() < kLeast)
    return Fault{fmt::format("{}: {} is less than {}", kField, budget.get_int64(), kLeast)};
  if (max_tokens && max_tokens->is_int64() && max_tokens->get_int64() <= budget.get_int64() &&
      !thinks_between_calls(request))
    return Fault{fmt::format("max_tokens: {} is not greater than {}, which is {}",
                             max_tokens->get_int64(), kField, budget.get_int64())};
  return std::nullopt;
}

// Without "thinking" the answer shows no reasoning; with "adaptive" its length is not limited.
std::optional<Fault> read_thinking(const json::object& request, json::object& chat) {
  chat["include_reasoning"] = false;
  const json::value* const value = present(request, "thinking");
  if (!value) return std::nullopt;
  if (!value->is_object()) return Fault{"thinking: expected an object {\"type\"}"};
  const json::object& wanted = value->get_object();
  const std::string type = text_member(wanted, "type");
  const bool is_on = type == "enabled" || type == "adaptive" || type == "between_tools";
  if (!is_on && type != "disabled")
    return Fault{"thinking.type: expected enabled, adaptive or disabled"};
  if (const json::value* budget = present(wanted, "budget_tokens"); type == "enabled" && budget) {
    if (auto fault = check_budget(*budget, request)) return fault;
    chat["thinking_token_budget"] = *budget;
  }
  chat["chat_template_kwargs"] = json::object{{"enable_thinking", is_on}, {"thinking", is_on}};
  chat["include_reasoning"] = is_on && text_member(wanted, "display") != "omitted";
  return std::nullopt;
}

std::optional<Fault> read_format(const json::value& value, std::string_view where,
                                 json::object& chat) {
  const json::object& format = object_or_empty(value);
  const json::value* const schema = format.if_contains("schema");
  if (text_member(format, "type") != "json_schema" || !schema || !schema->is_object())
    return Fault{
        fmt::format("{}: expected an object {{\"type\": \"json_schema\", \"schema\"}}", where)};
  if (chat.contains("response_format"))
    return Fault{fmt::format("{}: not together with output_config.format", where)};
  chat["response_format"] =
      json::object{{"type", "json_schema"}, {"json_schema", json::object{{"schema", *schema}}}};
  return std::nullopt;
}

// Templates have three efforts; higher ones become the highest.
std::optional<Fault> read_output_config(const json::object& request, json::object& chat) {
  if (const json::value* value = present(request, "output_config")) {
    if (!value->is_object()) return Fault{"output_config: expected an object"};
    const json::object& config = value->get_object();
    if (const json::value* effort = present(config, "effort")) {
      const std::string name = text_member(config, "effort");
      const bool is_most = name == "xhigh" || name == "max";
      if (!is_most && name != "low" && name != "medium" && name != "high")
        return Fault{fmt::format(
            "output_config.effort: {} is none of \"low\", \"medium\", \"high\", \"xhigh\", \"max\"",
            json::serialize(*effort).substr(0, 40))};
      chat["reasoning_effort"] = is_most ? "high" : name;
    }
    if (const json::value* format = present(config, "format"))
      if (auto fault = read_format(*format, "output_config.format", chat)) return fault;
  }
  // Its former name.
  const json::value* const older = present(request, "output_format");
  return older ? read_format(*older, "output_format", chat) : std::nullopt;
}

// Thinking of earlier messages is dropped anyway, so clearing it has no effect.
std::optional<Fault> check_context_management(const json::object& request) {
  const json::value* const value = present(request, "context_management");
  if (!value) return std::nullopt;
  if (!value->is_object()) return Fault{"context_management: expected an object"};
  size_t index = 0;
  for (const json::value& edit : array_member(value->get_object(), "edits")) {
    const std::string type = text_member(object_or_empty(edit), "type");
    if (!type.starts_with("clear_thinking_"))
      return Fault{fmt::format("context_management.edits.{}: type '{}' is not supported", index,
                               type.substr(0, 40))};
    ++index;
  }
  return std::nullopt;
}

std::optional<Fault> check_refused(const json::object& request) {
  for (const std::string_view key : kRefused)
    if (const json::value* value = request.if_contains(key); value && !is_nothing(*value))
      return Fault{fmt::format("{}: not supported by this server", key)};
  return check_context_management(request);
}

std::vector<std::string> unknown_of(const json::object& request) {
  std::vector<std::string_view> known(std::begin(kRead), std::end(kRead));
  known.insert(known.end(), std::begin(kWithoutEffect), std::end(kWithoutEffect));
  known.insert(known.end(), std::begin(kRefused), std::end(kRefused));
  std::vector<std::string> out = unknown_members(request, known);
  constexpr std::string_view kThinking[] = {"type", "budget_tokens", "display", "block_binding"};
  constexpr std::string_view kConfig[] = {"effort", "format"};
  constexpr std::string_view kChoice[] = {"type", "name", "disable_parallel_tool_use"};
  const auto add = [&](std::string_view key, std::span<const std::string_view> members) {
    std::ranges::move(
        unknown_members(object_member(request, key), members, fmt::format("{}.", key)),
        std::back_inserter(out));
  };
  add("thinking", kThinking);
  add("output_config", kConfig);
  add("tool_choice", kChoice);
  return out;
}

// Reads all of a request but the form of its answer.
std::variant<Translated, Fault> read_request(const json::object& request, json::object chat) {
  for (const auto read : {read_conversation, read_tools, read_thinking, read_output_config})
    if (auto fault = read(request, chat)) return *std::move(fault);
  if (auto fault = check_refused(request)) return *std::move(fault);
  for (const char* key : {"model", "max_tokens", "temperature", "top_p", "top_k", "stream"})
    if (const json::value* v = request.if_contains(key)) chat[key] = *v;
  if (const json::value* stops = request.if_contains("stop_sequences")) chat["stop"] = *stops;
  Translated out;
  out.body = json_text(std::move(chat));
  out.model = text_member(request, "model");
  out.unknown = unknown_of(request);
  out.rules.clips_max_tokens = true;
  return out;
}

// A message's stop reason, from the choice's finish_reason and stop_reason.
struct Stop {
  std::string reason;
  json::value sequence;
};
Stop stop_of(const json::object& choice, bool has_calls, bool has_all_tokens) {
  const std::string finish = text_member(choice, "finish_reason");
  const json::value* const stop = choice.if_contains("stop_reason");
  if (finish == "length")
    return {has_all_tokens ? "max_tokens" : "model_context_window_exceeded", nullptr};
  // A required call may have been cut by a stop sequence.
  if (has_calls && finish == "tool_calls") return {"tool_use", nullptr};
  if (stop && stop->is_string()) return {"stop_sequence", *stop};
  return {has_calls ? "tool_use" : "end_turn", nullptr};
}

// Input tokens are the computed ones: cached ones are counted separately.
json::object usage_object(const json::object& chat, int64_t output_tokens) {
  const json::object& usage = object_member(chat, "usage");
  const int64_t cached =
      integer_member(object_member(usage, "prompt_tokens_details"), "cached_tokens");
  return {{"input_tokens", integer_member(usage, "prompt_tokens") - cached},
          {"cache_read_input_tokens", cached},
          {"cache_creation_input_tokens", 0},
          {"output_tokens", output_tokens}};
}

int64_t completion_tokens(const json::object& chat) {
  return integer_member(object_member(chat, "usage"), "completion_tokens");
}

// The block of a call; null: its arguments are no object, since the answer was cut.
json::value tool_use(const json::object& call) {
  const json::object& function = object_member(call, "function");
  StatusOr<json::value> input = parse_json_exact(text_member(function, "arguments"), 128);
  if (!input.ok() || !is_exact_object(*input)) return nullptr;
  return json::object{{"type", "tool_use"},
                      {"id", text_member(call, "id")},
                      {"name", text_member(function, "name")},
                      {"input", *std::move(input)}};
}

json::object error_object(int status, std::string_view message) {
  const char* type = status == 401   ? "authentication_error"
                     : status == 403 ? "permission_error"
                     : status == 404 ? "not_found_error"
                     : status == 413 ? "request_too_large"
                     : status == 429 ? "rate_limit_error"
                     : status == 503 ? "overloaded_error"
                     : status < 500  ? "invalid_request_error"
                                     : "api_error";
  return {{"type", type}, {"message", message}};
}

class MessagesTranslation final : public Translation {
 public:
  explicit MessagesTranslation(int64_t max_tokens) : max_tokens_(max_tokens) {}

  std::string_view stream_type() const override { return "text/event-stream; charset=utf-8"; }

  std::string answer(const json::object& chat) override {
    json::array content;
    Stop stop = {"end_turn", nullptr};
    if (const json::object* choice = first_choice(chat)) {
      const json::object& message = object_member(*choice, "message");
      if (const std::string text = text_member(message, "reasoning_content"); !text.empty())
        content.push_back(
            json::object{{"type", "thinking"}, {"thinking", text}, {"signature", ""}});
      if (const std::string text = text_member(message, "content"); !text.empty())
        content.push_back(json::object{{"type", "text"}, {"text", text}});
      const size_t num_others = content.size();
      for (const json::value& call : array_member(message, "tool_calls"))
        if (json::value block = tool_use(object_or_empty(call)); !block.is_null())
          content.push_back(std::move(block));
      const bool has_calls = content.size() > num_others;
      stop = stop_of(*choice, has_calls, completion_tokens(chat) >= max_tokens_);
    }
    json::object out = message_object(chat);
    out["content"] = std::move(content);
    out["stop_reason"] = stop.reason;
    out["stop_sequence"] = stop.sequence;
    out["usage"] = usage_object(chat, completion_tokens(chat));
    return json_text(out);
  }

  std::string chunk(const json::object& chunk) override {
    std::string out;
    if (!std::exchange(begun_, true)) {
      json::object message = message_object(chunk);
      message["content"] = json::array();
      message["stop_reason"] = nullptr, message["stop_sequence"] = nullptr;
      message["usage"] = usage_object(chunk, 0);
      out += event("message_start", {{"message", std::move(message)}});
    }
    output_tokens_ = std::max(output_tokens_, completion_tokens(chunk));
    const json::object* const choice = first_choice(chunk);
    if (!choice) return out;
    const json::object& d = object_member(*choice, "delta");
    if (const std::string text = text_member(d, "reasoning_content"); !text.empty())
      add_delta(out, "thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}},
                {{"type", "thinking_delta"}, {"thinking", text}});
    if (const std::string text = text_member(d, "content"); !text.empty())
      add_delta(out, "text", {{"type", "text"}, {"text", ""}},
                {{"type", "text_delta"}, {"text", text}});
    for (const json::value& call : array_member(d, "tool_calls"))
      out += call_events(object_or_empty(call));
    if (!text_member(*choice, "finish_reason").empty())
      stop_ = stop_of(*choice, has_calls_, output_tokens_ >= max_tokens_);
    return out;
  }

  std::string end() override {
    return stop_block() +
           event("message_delta", {{"delta", json::object{{"stop_reason", stop_.reason},
                                                          {"stop_sequence", stop_.sequence}}},
                                   {"usage", json::object{{"output_tokens", output_tokens_}}}}) +
           event("message_stop", {});
  }

  std::string error(const ChatError& chat, bool in_stream) override {
    ChatError error = chat;
    rename_field(error, kRenamed);
    if (in_stream) return event("error", {{"error", error_object(error.status, error.message)}});
    return messages_error(error.status, error.message);
  }

 private:
  static std::string event(std::string_view type, json::object data) {
    json::object whole = {{"type", type}};
    for (auto& [key, value] : data) whole[key] = std::move(value);
    return named_event(type, whole);
  }
  static json::object message_object(const json::object& chat) {
    std::string id = text_member(chat, "id");
    if (const size_t dash = id.find('-'); dash != std::string::npos) id.erase(0, dash + 1);
    return {{"id", "msg_" + id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", text_member(chat, "model")}};
  }
  // Events that begin a block of this kind, unless one is open.
  std::string block(std::string_view kind, json::object content) {
    if (open_ == kind) return "";
    std::string out = stop_block();
    open_ = kind;
    return out +
           event("content_block_start", {{"index", index_}, {"content_block", std::move(content)}});
  }
  void add_delta(std::string& out, std::string_view kind, json::object content,
                 json::object delta) {
    out += block(kind, std::move(content));
    out += block_delta(std::move(delta));
  }
  std::string block_delta(json::object delta) const {
    return event("content_block_delta", {{"index", index_}, {"delta", std::move(delta)}});
  }
  std::string stop_block() {
    if (open_.empty()) return "";
    open_.clear();
    return event("content_block_stop", {{"index", index_++}});
  }
  // A chunk with an id begins a call.
  std::string call_events(const json::object& call) {
    std::string out;
    const json::object& function = object_member(call, "function");
    if (const std::string id = text_member(call, "id"); !id.empty()) {
      has_calls_ = true;
      out += stop_block();
      out += block("tool_use", {{"type", "tool_use"},
                                {"id", id},
                                {"name", text_member(function, "name")},
                                {"input", json::object()}});
    }
    return out + block_delta({{"type", "input_json_delta"},
                              {"partial_json", text_member(function, "arguments")}});
  }

  const int64_t max_tokens_;  // of the request
  bool begun_ = false, has_calls_ = false;
  std::string open_;  // kind of the open block
  int64_t index_ = 0, output_tokens_ = 0;
  Stop stop_ = {"end_turn", nullptr};
};

}  // namespace

std::string messages_error(int status, std::string_view message) {
  return json_text(json::object{{"type", "error"}, {"error", error_object(status, message)}});
}

std::string messages_token_count(int64_t num_tokens) {
  return json::serialize(json::object{{"input_tokens", num_tokens}});
}

std::variant<Translated, TranslationFault> translate_messages(const json::object& request) {
  if (!present(request, "max_tokens")) return Fault{"max_tokens: required"};
  json::object chat;
  const json::value* const stream = request.if_contains("stream");
  if (stream && stream->is_bool() && stream->get_bool())
    chat["stream_options"] =
        json::object{{"include_usage", true}, {"continuous_usage_stats", true}};
  auto read = read_request(request, std::move(chat));
  if (auto* out = std::get_if<Translated>(&read))
    out->translation = std::make_unique<MessagesTranslation>(integer_member(request, "max_tokens"));
  return read;
}

std::variant<Translated, TranslationFault> translate_messages_to_count(
    const json::object& request) {
  return read_request(request, {});
}

}  // namespace nereid::front
