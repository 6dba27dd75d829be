// Ollama's requests to chat completions and back; see ollama.h.
#include "front/translate/ollama.h"

#include <chrono>
#include <ctime>
#include <string>
#include <utility>

#include "front/http/json_text.h"

namespace nereid::front {
namespace {

using Clock = std::chrono::steady_clock;

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

int64_t nanoseconds(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

class OllamaTranslation final : public Translation {
 public:
  OllamaTranslation(std::string model, bool is_chat)
      : model_(std::move(model)), is_chat_(is_chat) {}

  std::string_view stream_type() const override { return "application/x-ndjson"; }

  std::string answer(const json::object& chat) override {
    const json::object* const choice = first_choice(chat);
    const json::value* const message = choice ? choice->if_contains("message") : nullptr;
    json::object empty;
    const json::object& from = message && message->is_object() ? message->get_object() : empty;
    take_usage(chat);
    if (choice) reason_ = text_member(*choice, "finish_reason");
    return line(from, true);
  }
  std::string chunk(const json::object& chunk) override {
    take_usage(chunk);
    const json::object* const choice = first_choice(chunk);
    const json::value* const delta = choice ? choice->if_contains("delta") : nullptr;
    if (choice)
      if (std::string reason = text_member(*choice, "finish_reason"); !reason.empty())
        reason_ = std::move(reason);
    if (!delta || !delta->is_object()) return "";
    const json::object& d = delta->get_object();
    const json::value* const calls = d.if_contains("tool_calls");
    const bool says = !text_member(d, "content").empty() || (calls && calls->is_array()) ||
                      !text_member(d, "reasoning_content").empty();
    if (says && begun_ == Clock::time_point()) begun_ = Clock::now();
    return says ? line(d, false) + "\n" : "";
  }
  std::string end() override { return line({}, true) + "\n"; }
  std::string error(const ChatError& error, bool in_stream) override {
    return ollama_error(error.message) + (in_stream ? "\n" : "");
  }

 private:
  void take_usage(const json::object& chat) {
    const json::value* const usage = chat.if_contains("usage");
    if (!usage || !usage->is_object()) return;
    prompt_tokens_ = usage->at("prompt_tokens").to_number<int64_t>();
    tokens_ = usage->at("completion_tokens").to_number<int64_t>();
  }
  static json::array calls_of(const json::object& from) {
    json::array out;
    const json::value* const calls = from.if_contains("tool_calls");
    if (!calls || !calls->is_array()) return out;
    for (const json::value& call : calls->get_array()) {
      const json::object& function = call.at("function").get_object();
      StatusOr<json::value> arguments = parse_json(text_member(function, "arguments"), 128);
      out.push_back(json::object{
          {"function", json::object{{"name", text_member(function, "name")},
                                    {"arguments", arguments.ok() ? *std::move(arguments)
                                                                 : json::value(json::object())}}}});
    }
    return out;
  }
  std::string line(const json::object& from, bool done) const {
    json::object out = {{"model", model_}, {"created_at", time_text()}};
    const std::string thinking = text_member(from, "reasoning_content");
    if (is_chat_) {
      json::object message = {{"role", "assistant"}, {"content", text_member(from, "content")}};
      if (!thinking.empty()) message["thinking"] = thinking;
      if (json::array calls = calls_of(from); !calls.empty())
        message["tool_calls"] = std::move(calls);
      out["message"] = std::move(message);
    } else {
      out["response"] = text_member(from, "content");
      if (!thinking.empty()) out["thinking"] = thinking;
    }
    out["done"] = done;
    if (done) {
      const Clock::time_point now = Clock::now();
      const Clock::time_point begun = begun_ == Clock::time_point() ? now : begun_;
      out["done_reason"] = reason_ == "length" ? "length" : "stop";
      out["total_duration"] = nanoseconds(now - start_);
      out["load_duration"] = 0;
      out["prompt_eval_count"] = prompt_tokens_;
      out["prompt_eval_duration"] = nanoseconds(begun - start_);
      out["eval_count"] = tokens_;
      out["eval_duration"] = nanoseconds(now - begun);
    }
    std::string text;
    append_json(text, out);
    return text;
  }

  const std::string model_;
  const bool is_chat_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point begun_;
  std::string reason_;
  int64_t prompt_tokens_ = 0, tokens_ = 0;
};

// Options by Ollama's names and OpenAI's.
constexpr std::pair<const char*, const char*> kOptions[] = {
    {"temperature", "temperature"},
    {"top_p", "top_p"},
    {"top_k", "top_k"},
    {"min_p", "min_p"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"repeat_penalty", "repetition_penalty"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
};

std::variant<Translated, TranslationFault> finish(const json::object& request, json::object chat,
                                                  bool is_chat) {
  std::string model = text_member(request, "model");
  if (model.ends_with(":latest")) model.resize(model.size() - 7);
  chat["model"] = model;
  const json::value* const stream = request.if_contains("stream");
  const bool streams = !stream || !stream->is_bool() || stream->get_bool();
  chat["stream"] = streams;
  if (streams) chat["stream_options"] = json::object{{"include_usage", true}};
  if (const json::value* options = request.if_contains("options");
      options && options->is_object()) {
    const json::object& from = options->get_object();
    for (const auto& [theirs, ours] : kOptions)
      if (const json::value* v = from.if_contains(theirs)) chat[ours] = *v;
    const json::value* const most = from.if_contains("num_predict");
    if (most && most->is_int64() && most->get_int64() > 0) chat["max_tokens"] = *most;
  }
  if (const json::value* format = request.if_contains("format")) {
    if (format->is_object())
      chat["guided_json"] = *format;
    else if (format->is_string() && format->get_string() == "json")
      chat["response_format"] = json::object{{"type", "json_object"}};
    else if (!format->is_null() && !(format->is_string() && format->get_string().empty()))
      return TranslationFault{"format: expected \"json\" or a JSON schema"};
  }
  if (const json::value* think = request.if_contains("think"); think && think->is_bool()) {
    chat["chat_template_kwargs"] = json::object{{"enable_thinking", *think}, {"thinking", *think}};
    chat["include_reasoning"] = *think;
  }
  for (const char* key : {"raw", "images", "context", "suffix", "template"})
    if (const json::value* v = request.if_contains(key);
        v && !v->is_null() && !(v->is_bool() && !v->get_bool()) &&
        !(v->is_string() && v->get_string().empty()) && !(v->is_array() && v->get_array().empty()))
      return TranslationFault{fmt::format("{}: not supported by this server", key)};
  return Translated{json::serialize(chat),
                    std::make_unique<OllamaTranslation>(text_member(request, "model"), is_chat)};
}

}  // namespace

std::variant<Translated, TranslationFault> translate_ollama_chat(const json::object& request) {
  const json::value* const messages = request.if_contains("messages");
  if (!messages || !messages->is_array()) return TranslationFault{"messages: required"};
  json::array list;
  for (const json::value& item : messages->get_array()) {
    json::value message = item;
    json::object* const object = message.if_object();
    if (object && object->contains("images"))
      return TranslationFault{"messages: images are not supported by this server"};
    // Calls have no type and no id here.
    json::value* const calls = object ? object->if_contains("tool_calls") : nullptr;
    if (calls && calls->is_array())
      for (json::value& call : calls->get_array())
        if (json::object* one = call.if_object(); one && !one->contains("type"))
          (*one)["type"] = "function";
    list.push_back(std::move(message));
  }
  json::object chat = {{"messages", std::move(list)}};
  if (const json::value* tools = request.if_contains("tools")) chat["tools"] = *tools;
  return finish(request, std::move(chat), true);
}

std::variant<Translated, TranslationFault> translate_ollama_generate(const json::object& request) {
  const json::value* const prompt = request.if_contains("prompt");
  if (!prompt || !prompt->is_string()) return TranslationFault{"prompt: required"};
  json::array messages;
  if (const std::string system = text_member(request, "system"); !system.empty())
    messages.push_back(json::object{{"role", "system"}, {"content", system}});
  messages.push_back(json::object{{"role", "user"}, {"content", *prompt}});
  return finish(request, {{"messages", std::move(messages)}}, false);
}

std::string ollama_error(std::string_view message) {
  std::string text;
  append_json(text, json::object{{"error", message}});
  return text;
}

json::object ollama_tags(std::string_view model) {
  return {{"models", json::array{json::object{
                         {"name", model},
                         {"model", model},
                         {"modified_at", time_text()},
                         {"size", 0},
                         {"digest", ""},
                         {"details", json::object{{"format", "nereid"}, {"family", ""}}}}}}};
}

json::object ollama_show(int64_t context_length) {
  return {{"details", json::object{{"format", "nereid"}, {"family", ""}}},
          {"model_info", json::object{{"general.context_length", context_length}}},
          {"capabilities", json::array{"completion", "tools"}}};
}

}  // namespace nereid::front
