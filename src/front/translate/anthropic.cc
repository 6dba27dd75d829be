// Messages to chat completions and back; see anthropic.h.
#include "front/translate/anthropic.h"

#include <string>
#include <utility>

#include "front/http/json_text.h"

namespace nereid::front {
namespace {

using Fault = TranslationFault;

std::string kind_of(const json::value& block) {
  const json::object* const object = block.if_object();
  return object ? text_member(*object, "type") : std::string();
}

// The text of a string or of text blocks; a fault for others.
std::variant<std::string, Fault> text_of_blocks(const json::value& content,
                                                std::string_view where) {
  if (content.is_string()) return std::string(content.get_string());
  if (!content.is_array()) return Fault{fmt::format("{}: expected a string or blocks", where)};
  std::string out;
  for (const json::value& block : content.get_array()) {
    if (kind_of(block) != "text")
      return Fault{fmt::format("{}: a block of type '{}' is not supported; text is", where,
                               kind_of(block).substr(0, 40))};
    if (!out.empty()) out += "\n";
    out += text_member(block.get_object(), "text");
  }
  return out;
}

// Chat messages that one message becomes: results of tools are messages of their own.
class MessageReader {
 public:
  explicit MessageReader(json::array& out) : out_(out) {}

  std::optional<Fault> read(const json::object& message, std::string_view where) {
    const std::string role = text_member(message, "role");
    if (role != "user" && role != "assistant")
      return Fault{fmt::format("{}.role: expected \"user\" or \"assistant\"", where)};
    const json::value* const content = message.if_contains("content");
    if (!content) return Fault{fmt::format("{}.content: required", where)};
    if (content->is_string()) {
      out_.push_back(json::object{{"role", role}, {"content", *content}});
      return std::nullopt;
    }
    if (!content->is_array())
      return Fault{fmt::format("{}.content: expected a string or blocks", where)};
    for (const json::value& block : content->get_array())
      if (auto fault = read_block(block, where)) return fault;
    if (!text_.empty() || !calls_.empty()) {
      json::object chat = {{"role", role}, {"content", text_}};
      if (!calls_.empty()) chat["tool_calls"] = std::move(calls_);
      out_.push_back(std::move(chat));
    }
    return std::nullopt;
  }

 private:
  std::optional<Fault> read_block(const json::value& block, std::string_view where) {
    const std::string kind = kind_of(block);
    if (kind == "text") {
      if (!text_.empty()) text_ += "\n";
      text_ += text_member(block.get_object(), "text");
    } else if (kind == "tool_use") {
      const json::object& use = block.get_object();
      const json::value* const input = use.if_contains("input");
      calls_.push_back(json::object{
          {"id", text_member(use, "id")},
          {"type", "function"},
          {"function", json::object{{"name", text_member(use, "name")},
                                    {"arguments", input ? json::serialize(*input) : "{}"}}}});
    } else if (kind == "tool_result") {
      const json::object& result = block.get_object();
      const json::value* const content = result.if_contains("content");
      auto text = content ? text_of_blocks(*content, where) : std::string();
      if (auto* fault = std::get_if<Fault>(&text)) return std::move(*fault);
      out_.push_back(json::object{{"role", "tool"},
                                  {"tool_call_id", text_member(result, "tool_use_id")},
                                  {"content", std::get<std::string>(text)}});
    } else if (kind != "thinking" && kind != "redacted_thinking") {  // thoughts are not read again
      return Fault{fmt::format("{}.content: a block of type '{}' is not supported", where,
                               kind.substr(0, 40))};
    }
    return std::nullopt;
  }

  json::array& out_;
  std::string text_;
  json::array calls_;
};

std::optional<Fault> read_messages(const json::object& request, json::object& chat) {
  json::array messages;
  if (const json::value* system = request.if_contains("system"); system && !system->is_null()) {
    auto text = text_of_blocks(*system, "system");
    if (auto* fault = std::get_if<Fault>(&text)) return std::move(*fault);
    messages.push_back(json::object{{"role", "system"}, {"content", std::get<std::string>(text)}});
  }
  const json::value* const list = request.if_contains("messages");
  if (!list || !list->is_array() || list->get_array().empty())
    return Fault{"messages: expected an array with at least one message"};
  for (size_t i = 0; i < list->get_array().size(); ++i) {
    const std::string where = fmt::format("messages.{}", i);
    const json::object* const message = list->get_array()[i].if_object();
    if (!message) return Fault{where + ": expected an object"};
    if (auto fault = MessageReader(messages).read(*message, where)) return fault;
  }
  // An answer goes on behind a last message of the assistant.
  if (text_member(messages.back().get_object(), "role") == "assistant")
    chat["continue_final_message"] = true;
  chat["messages"] = std::move(messages);
  return std::nullopt;
}

std::optional<Fault> read_tools(const json::object& request, json::object& chat) {
  const json::value* const list = request.if_contains("tools");
  if (list && list->is_array()) {
    json::array tools;
    for (const json::value& item : list->get_array()) {
      const json::object* const tool = item.if_object();
      const json::value* const schema = tool ? tool->if_contains("input_schema") : nullptr;
      if (!schema) return Fault{"tools: expected objects {\"name\", \"input_schema\"}"};
      tools.push_back(
          json::object{{"type", "function"},
                       {"function", json::object{{"name", text_member(*tool, "name")},
                                                 {"description", text_member(*tool, "description")},
                                                 {"parameters", *schema}}}});
    }
    if (!tools.empty()) chat["tools"] = std::move(tools);
  }
  const json::value* const value = request.if_contains("tool_choice");
  const json::object* const choice = value ? value->if_object() : nullptr;
  if (!choice) return std::nullopt;
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

// The end of a message, by the choice's finish_reason and stop_reason.
struct Stop {
  std::string reason;
  json::value sequence;
};
Stop stop_of(const json::object& choice, bool has_calls) {
  const std::string finish = text_member(choice, "finish_reason");
  const json::value* const stop = choice.if_contains("stop_reason");
  if (finish == "length") return {"max_tokens", nullptr};
  if (has_calls) return {"tool_use", nullptr};
  if (stop && stop->is_string()) return {"stop_sequence", *stop};
  return {"end_turn", nullptr};
}

int64_t usage_of(const json::object& chat, std::string_view key) {
  const json::value* const usage = chat.if_contains("usage");
  const json::value* const count =
      usage && usage->is_object() ? usage->get_object().if_contains(key) : nullptr;
  return count && count->is_int64() ? count->get_int64() : 0;
}

int64_t cached_tokens(const json::object& chat) {
  const json::value* const usage = chat.if_contains("usage");
  const json::value* const details = usage && usage->is_object()
                                         ? usage->get_object().if_contains("prompt_tokens_details")
                                         : nullptr;
  const json::value* const count = details && details->is_object()
                                       ? details->get_object().if_contains("cached_tokens")
                                       : nullptr;
  return count && count->is_int64() ? count->get_int64() : 0;
}

// Input tokens are those that were computed: what was cached counts apart.
json::object usage_object(const json::object& chat, int64_t output_tokens) {
  const int64_t cached = cached_tokens(chat);
  return {{"input_tokens", usage_of(chat, "prompt_tokens") - cached},
          {"cache_read_input_tokens", cached},
          {"cache_creation_input_tokens", 0},
          {"output_tokens", output_tokens}};
}

// The object that a call's arguments are.
json::value input_of(const json::object& function) {
  StatusOr<json::value> input = parse_json(text_member(function, "arguments"), 128);
  return input.ok() && input->is_object() ? *std::move(input) : json::value(json::object());
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
  std::string_view stream_type() const override { return "text/event-stream; charset=utf-8"; }

  std::string answer(const json::object& chat) override {
    json::array content;
    Stop stop = {"end_turn", nullptr};
    if (const json::object* choice = first_choice(chat)) {
      const json::object& message = choice->at("message").get_object();
      if (const std::string text = text_member(message, "reasoning_content"); !text.empty())
        content.push_back(
            json::object{{"type", "thinking"}, {"thinking", text}, {"signature", ""}});
      if (const std::string text = text_member(message, "content"); !text.empty())
        content.push_back(json::object{{"type", "text"}, {"text", text}});
      const json::array& calls = message.at("tool_calls").get_array();
      for (const json::value& call : calls) {
        const json::object& function = call.at("function").get_object();
        content.push_back(json::object{{"type", "tool_use"},
                                       {"id", call.at("id")},
                                       {"name", function.at("name")},
                                       {"input", input_of(function)}});
      }
      stop = stop_of(*choice, !calls.empty());
    }
    json::object out = message_object(chat);
    out["content"] = std::move(content);
    out["stop_reason"] = stop.reason;
    out["stop_sequence"] = stop.sequence;
    out["usage"] = usage_object(chat, usage_of(chat, "completion_tokens"));
    std::string text;
    append_json(text, out);
    return text;
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
    output_tokens_ = std::max(output_tokens_, usage_of(chunk, "completion_tokens"));
    const json::object* const choice = first_choice(chunk);
    const json::value* const delta = choice ? choice->if_contains("delta") : nullptr;
    if (!delta || !delta->is_object()) return out;
    const json::object& d = delta->get_object();
    if (const std::string text = text_member(d, "reasoning_content"); !text.empty())
      add_delta(out, "thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}},
                {{"type", "thinking_delta"}, {"thinking", text}});
    if (const std::string text = text_member(d, "content"); !text.empty())
      add_delta(out, "text", {{"type", "text"}, {"text", ""}},
                {{"type", "text_delta"}, {"text", text}});
    if (const json::value* calls = d.if_contains("tool_calls"); calls && calls->is_array())
      for (const json::value& call : calls->get_array()) out += call_events(call.get_object());
    if (!text_member(*choice, "finish_reason").empty()) stop_ = stop_of(*choice, has_calls_);
    return out;
  }

  std::string end() override {
    return stop_block() +
           event("message_delta", {{"delta", json::object{{"stop_reason", stop_.reason},
                                                          {"stop_sequence", stop_.sequence}}},
                                   {"usage", json::object{{"output_tokens", output_tokens_}}}}) +
           event("message_stop", {});
  }

  std::string error(const ChatError& error, bool in_stream) override {
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
  // Events that begin a block of this kind, unless it is the one that is open.
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
  // A call begins with the chunk that has its id.
  std::string call_events(const json::object& call) {
    std::string out;
    const json::value* const value = call.if_contains("function");
    const json::object* const function = value ? value->if_object() : nullptr;
    if (!function) return out;
    if (const std::string id = text_member(call, "id"); !id.empty()) {
      has_calls_ = true;
      out += stop_block();
      out += block("tool_use", {{"type", "tool_use"},
                                {"id", id},
                                {"name", text_member(*function, "name")},
                                {"input", json::object()}});
    }
    return out + block_delta({{"type", "input_json_delta"},
                              {"partial_json", text_member(*function, "arguments")}});
  }

  bool begun_ = false, has_calls_ = false;
  std::string open_;  // kind of the block that has begun
  int64_t index_ = 0, output_tokens_ = 0;
  Stop stop_ = {"end_turn", nullptr};
};

}  // namespace

std::string messages_error(int status, std::string_view message) {
  std::string text;
  append_json(text, json::object{{"type", "error"}, {"error", error_object(status, message)}});
  return text;
}

std::variant<Translated, TranslationFault> translate_messages(const json::object& request) {
  json::object chat;
  const json::value* const most = request.if_contains("max_tokens");
  if (!most || most->is_null()) return Fault{"max_tokens: required"};
  if (auto fault = read_messages(request, chat)) return *std::move(fault);
  if (auto fault = read_tools(request, chat)) return *std::move(fault);
  for (const char* key : {"model", "max_tokens", "temperature", "top_p", "top_k", "stream"})
    if (const json::value* v = request.if_contains(key)) chat[key] = *v;
  if (const json::value* stops = request.if_contains("stop_sequences")) chat["stop"] = *stops;
  const json::value* const stream = request.if_contains("stream");
  if (stream && stream->is_bool() && stream->get_bool())
    chat["stream_options"] =
        json::object{{"include_usage", true}, {"continuous_usage_stats", true}};
  if (const json::value* thinking = request.if_contains("thinking");
      thinking && thinking->is_object()) {
    const json::object& wanted = thinking->get_object();
    const bool on = text_member(wanted, "type") == "enabled";
    if (const json::value* budget = wanted.if_contains("budget_tokens"); on && budget)
      chat["thinking_token_budget"] = *budget;
    chat["chat_template_kwargs"] = json::object{{"enable_thinking", on}, {"thinking", on}};
    chat["include_reasoning"] = on;
  } else {
    chat["include_reasoning"] = false;
  }
  return Translated{json::serialize(chat), std::make_unique<MessagesTranslation>()};
}

}  // namespace nereid::front
