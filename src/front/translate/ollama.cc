// Ollama's requests to chat completions and back; see ollama.h.
#include "front/translate/ollama.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json_exact.h"
#include "front/http/json_text.h"
#include "front/translate/ollama_fields.h"

namespace nereid::front {
namespace {

using Clock = std::chrono::steady_clock;
using Answer = std::variant<Translated, TranslationFault>;

int64_t nanoseconds(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

// The end of an answer without tokens: the model is loaded, or unloaded.
void end_without_tokens(json::object& out, bool unloads) {
  out["done"] = true;
  out["done_reason"] = unloads ? "unload" : "load";
}

class OllamaTranslation final : public Translation {
 public:
  // `begun`: arrival of the request.
  OllamaTranslation(std::string model, bool is_chat, Clock::time_point begun)
      : model_(std::move(model)), is_chat_(is_chat), begun_(begun) {}

  std::string_view stream_type() const override { return "application/x-ndjson"; }

  std::string answer(const json::object& chat) override {
    take_usage(chat);
    const json::object* const choice = first_choice(chat);
    if (!choice) return line({}, {}, true);
    reason_ = text_member(*choice, "finish_reason");
    return line(said_by(*choice, "message"), scores_of(*choice), true);
  }
  std::string chunk(const json::object& chunk) override {
    take_usage(chunk);
    const json::object* const choice = first_choice(chunk);
    if (!choice) return "";
    if (std::string reason = text_member(*choice, "finish_reason"); !reason.empty())
      reason_ = std::move(reason);
    const json::object d = said_by(*choice, "delta");
    const bool says = !text_member(d, "content").empty() ||
                      !array_member(d, "tool_calls").empty() ||
                      !text_member(d, "reasoning_content").empty() || !scores_of(*choice).empty();
    if (says) take_piece();
    return says ? line(d, scores_of(*choice), false) + "\n" : "";
  }
  std::string end() override { return line({}, {}, true) + "\n"; }
  std::string error(const ChatError& error, bool in_stream) override {
    ChatError own = error;
    rename_field(own, kOllamaNames);
    return ollama_error(own.message) + (in_stream ? "\n" : "");
  }
  void take_piece() override {
    if (first_piece_ == Clock::time_point()) first_piece_ = Clock::now();
  }

 private:
  static constexpr Renamed kOllamaNames[] = {{"repetition_penalty", "options.repeat_penalty"},
                                             {"max_tokens", "options.num_predict"},
                                             {"temperature", "options.temperature"},
                                             {"top_p", "options.top_p"},
                                             {"top_k", "options.top_k"},
                                             {"min_p", "options.min_p"},
                                             {"seed", "options.seed"},
                                             {"stop", "options.stop"},
                                             {"presence_penalty", "options.presence_penalty"},
                                             {"frequency_penalty", "options.frequency_penalty"},
                                             {"guided_json", "format"},
                                             {"response_format", "format"}};

  void take_usage(const json::object& chat) {
    const json::object& usage = object_member(chat, "usage");
    if (usage.empty()) return;
    prompt_tokens_ = integer_member(usage, "prompt_tokens");
    tokens_ = integer_member(usage, "completion_tokens");
  }
  // A message of a chat's choice, or a completion's text as one.
  static json::object said_by(const json::object& choice, std::string_view key) {
    const std::string text = text_member(choice, "text");
    return text.empty() ? object_member(choice, key) : json::object{{"content", text}};
  }
  static const json::array& scores_of(const json::object& choice) {
    return array_member(object_member(choice, "logprobs"), "content");
  }
  static json::array calls_of(const json::object& from) {
    json::array out;
    for (const json::value& call : array_member(from, "tool_calls")) {
      const json::object& function = object_member(object_or_empty(call), "function");
      StatusOr<json::value> arguments = parse_json_exact(text_member(function, "arguments"), 128);
      if (!arguments.ok() || !is_exact_object(*arguments)) continue;
      out.push_back(json::object{{"function", json::object{{"name", text_member(function, "name")},
                                                           {"arguments", *std::move(arguments)}}}});
    }
    return out;
  }
  std::string line(const json::object& from, const json::array& scores, bool done) const {
    json::object out = {{"model", model_}, {"created_at", ollama_time()}};
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
    if (!scores.empty()) out["logprobs"] = scores;
    out["done"] = done;
    if (done) add_numbers(out);
    return json_text(out);
  }

  // Load time is that of reading the request: models are already loaded.
  void add_numbers(json::object& out) const {
    const Clock::time_point now = Clock::now();
    const Clock::time_point first = first_piece_ == Clock::time_point() ? now : first_piece_;
    out["done_reason"] = reason_ == "length" ? "length" : "stop";
    out["total_duration"] = nanoseconds(now - begun_);
    out["load_duration"] = nanoseconds(read_ - begun_);
    out["prompt_eval_count"] = prompt_tokens_;
    out["prompt_eval_duration"] = nanoseconds(first - read_);
    out["eval_count"] = tokens_;
    out["eval_duration"] = std::max<int64_t>(1, nanoseconds(now - first));
  }

  const std::string model_;
  const bool is_chat_;
  const Clock::time_point begun_, read_ = Clock::now();
  Clock::time_point first_piece_;
  std::string reason_;
  int64_t prompt_tokens_ = 0, tokens_ = 0;
};

// Options by Ollama's and OpenAI's names.
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
constexpr std::string_view kOtherOptions[] = {"num_predict", "num_ctx",   "repeat_last_n",
                                              "mirostat",    "typical_p", "tfs_z"};
// Members of every request; each route has more.
constexpr std::string_view kAllRequests[] = {"model", "name", "stream", "options", "keep_alive"};
constexpr std::string_view kAllAnswers[] = {"format", "think",    "truncate",
                                            "shift",  "logprobs", "top_logprobs"};
constexpr std::string_view kOfChat[] = {"messages", "tools"};
constexpr std::string_view kOfGenerate[] = {"prompt", "suffix",  "system", "template",
                                            "raw",    "context", "images"};
constexpr std::string_view kOfEmbed[] = {"input", "truncate", "dimensions"};
constexpr std::string_view kOfEmbeddings[] = {"prompt"};

// Whether a member is unset: absent, null, false or empty.
bool is_unset(const json::value* value) {
  if (!value || value->is_null()) return true;
  if (value->is_bool()) return !value->get_bool();
  if (value->is_string()) return value->get_string().empty();
  return value->is_array() && value->get_array().empty();
}

// The value of an integer option (see check_ollama_options()).
int64_t whole_number(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  return value.is_uint64() ? INT64_MAX : static_cast<int64_t>(value.get_double());
}

// Translates one request to a chat, a completion or an embedding.
class OllamaReader {
 public:
  explicit OllamaReader(const json::object& request) : request_(request) {
    know(kAllRequests);
    out_.model = ollama_model_name(request);
    body_["model"] = out_.model;
  }

  Answer chat() {
    know(kOfChat);
    know(kAllAnswers);
    if (auto fault = check_ollama_members(request_, known_)) return *std::move(fault);
    const json::array& list = array_member(request_, "messages");
    if (list.empty()) return without_tokens(true);
    json::array messages;
    for (size_t i = 0; i < list.size(); ++i) {
      json::object message = message_of(list[i].as_object());
      if (auto fault = add_images(list[i], fmt::format("messages[{}].images", i), message))
        return *std::move(fault);
      messages.push_back(std::move(message));
    }
    body_["messages"] = std::move(messages);
    if (const json::value* tools = present_member("tools")) {
      json::array& all = body_["tools"].emplace_array();
      for (const json::value& tool : tools->get_array()) all.push_back(with_type(tool));
    }
    out_.rules.drops_messages = truncates();
    return finish_text(true);
  }

  Answer generate() {
    know(kOfGenerate);
    know(kAllAnswers);
    if (auto fault = check_ollama_members(request_, known_)) return *std::move(fault);
    for (const char* key : {"context", "template"})
      if (!is_unset(request_.if_contains(key)))
        return TranslationFault{fmt::format("{}: not supported by this server", key)};
    const json::value* const raw = present_member("raw");
    const std::string prompt = text_member(request_, "prompt");
    if (prompt.empty()) return without_tokens(false);
    const std::string suffix = text_member(request_, "suffix");
    if ((raw && raw->get_bool()) || !suffix.empty()) return complete(prompt, suffix);
    json::array messages;
    if (const std::string system = text_member(request_, "system"); !system.empty())
      messages.push_back(json::object{{"role", "system"}, {"content", system}});
    json::object message = {{"role", "user"}, {"content", prompt}};
    if (auto fault = add_images(request_, "images", message)) return *std::move(fault);
    messages.push_back(std::move(message));
    body_["messages"] = std::move(messages);
    return finish_text(false);
  }

  // `key`: the texts' member; `is_many`: the answer is a list.
  Answer embed(const char* key, bool is_many) {
    know(is_many ? std::span<const std::string_view>(kOfEmbed) : kOfEmbeddings);
    if (auto fault = check_ollama_members(request_, known_)) return *std::move(fault);
    const json::value* const input = present_member(key);
    const bool is_list = input && is_many && input->is_array();
    bool is_text = !input || is_list || input->is_string();
    if (is_list)
      for (const json::value& one : input->get_array()) is_text &= one.is_string();
    if (!is_text)
      return TranslationFault{
          fmt::format("{}: expected a string{}", key, is_many ? " or an array of them" : "")};
    if (is_unset(input)) {
      if (is_many)
        body_["embeddings"] = json::array();
      else
        body_ = json::object{{"embedding", json::array()}};
      out_.to = Translates::kNothing;
      return take();
    }
    body_["input"] = *input;
    body_["normalize"] = is_many;
    if (truncates()) body_["truncate_prompt_tokens"] = -1;
    if (const json::value* dimensions = present_member("dimensions"))
      body_["dimensions"] = *dimensions;
    out_.to = Translates::kEmbedding;
    return finish(false);
  }

 private:
  const json::value* present_member(std::string_view key) const {
    const json::value* const value = request_.if_contains(key);
    return value && !value->is_null() ? value : nullptr;
  }
  void know(std::span<const std::string_view> names) {
    known_.insert(known_.end(), names.begin(), names.end());
  }
  bool truncates() const {
    const json::value* const value = present_member("truncate");
    return !value || value->get_bool();
  }

  // Adds the type of calls and tools, which may be missing here.
  static json::value with_type(const json::value& value) {
    json::value out = value;
    if (json::object* object = out.if_object(); object && !object->contains("type"))
      (*object)["type"] = "function";
    return out;
  }
  static json::object message_of(const json::object& given) {
    json::object message = given;
    message.erase("images");
    json::value& content = message["content"];
    if (content.is_null()) content = "";
    if (json::value* calls = message.if_contains("tool_calls"); calls && calls->is_array())
      for (json::value& call : calls->get_array()) call = with_type(call);
    return message;
  }

  // Puts the base64 texts of `from`'s images in front of the message's text.
  static std::optional<TranslationFault> add_images(const json::value& from,
                                                    const std::string& where,
                                                    json::object& message) {
    json::array parts;
    for (const json::value& image : array_member(from, "images")) {
      const json::string* const text = image.if_string();
      if (!text) return TranslationFault{fmt::format("{}: expected strings", where)};
      parts.push_back(json::object{{"type", "image_url"}, {"image_url", data_url(*text)}});
    }
    if (parts.empty()) return std::nullopt;
    const std::string text = text_member(message, "content");
    if (!text.empty()) parts.push_back(json::object{{"type", "text"}, {"text", text}});
    message["content"] = std::move(parts);
    return std::nullopt;
  }
  static json::string data_url(const json::string& base64) {
    json::string out("data:;base64,", base64.storage());
    out.append(base64);
    return out;
  }

  // A text without a template, or with a suffix.
  Answer complete(const std::string& prompt, const std::string& suffix) {
    if (!is_unset(request_.if_contains("logprobs")))
      return TranslationFault{"logprobs: not supported together with raw or suffix"};
    body_["prompt"] = prompt;
    for (const json::value& image : array_member(request_, "images")) {
      const json::string* const text = image.if_string();
      if (!text) return TranslationFault{"images: expected strings"};
      if (!body_.contains("images")) body_["images"].emplace_array();
      body_["images"].get_array().push_back(data_url(*text));
    }
    if (!suffix.empty()) body_["suffix"] = suffix;
    // A truncated fill-in-the-middle prompt would lose its tokens.
    if (truncates() && suffix.empty() && !body_.contains("images"))
      body_["truncate_prompt_tokens"] = -1;
    out_.to = Translates::kCompletion;
    return finish_text(false);
  }

  Answer finish_text(bool is_chat) {
    read_format();
    read_think();
    read_log_probs();
    const json::value* const stream = present_member("stream");
    const bool streams = !stream || stream->get_bool();
    body_["stream"] = streams;
    if (streams) body_["stream_options"] = json::object{{"include_usage", true}};
    out_.rules.clips_max_tokens = true;
    return finish(is_chat);
  }

  Answer finish(bool is_chat) {
    if (auto fault = read_options()) return *std::move(fault);
    out_.translation =
        std::make_unique<OllamaTranslation>(text_member(request_, "model"), is_chat, begun_);
    return take();
  }

  Answer take() {
    std::ranges::move(unknown_members(request_, known_), std::back_inserter(out_.unknown));
    out_.body = json_text(std::move(body_));
    return std::move(out_);
  }

  // Without messages or a prompt the request loads or, with keep_alive 0, unloads the model. All
  // models are loaded.
  Answer without_tokens(bool is_chat) {
    body_["created_at"] = ollama_time();
    if (is_chat)
      body_["message"] = json::object{{"role", "assistant"}, {"content", ""}};
    else
      body_["response"] = "";
    const json::value* const time = present_member("keep_alive");
    end_without_tokens(body_, time && keep_alive_seconds(*time) == 0);
    out_.to = Translates::kNothing;
    return take();
  }

  void read_format() {
    const json::value* const format = present_member("format");
    if (format && format->is_object())
      body_["guided_json"] = *format;
    else if (format && *format == "json")
      body_["response_format"] = json::object{{"type", "json_object"}};
  }

  void read_think() {
    const json::value* const think = present_member("think");
    if (!think || out_.to != Translates::kChat) return;
    const bool is_on = !think->is_bool() || think->get_bool();
    if (think->is_string()) body_["reasoning_effort"] = *think;
    body_["chat_template_kwargs"] = json::object{{"enable_thinking", is_on}, {"thinking", is_on}};
    body_["include_reasoning"] = is_on;
  }

  void read_log_probs() {
    if (is_unset(present_member("logprobs"))) return;
    body_["logprobs"] = true;
    if (const json::value* top = present_member("top_logprobs")) body_["top_logprobs"] = *top;
  }

  std::optional<TranslationFault> read_options() {
    const json::value* const value = present_member("options");
    if (!value) return std::nullopt;
    const json::object& options = value->get_object();
    std::vector<std::string_view> names(std::begin(kOtherOptions), std::end(kOtherOptions));
    for (const auto& [theirs, ours] : kOptions) names.emplace_back(theirs);
    out_.unknown = unknown_members(options, names, "options.");
    std::erase_if(out_.unknown, [](std::string_view name) {
      return is_ollama_option_without_effect(name.substr(name.find('.') + 1));
    });
    read_sizes(options);
    if (out_.to == Translates::kEmbedding) return std::nullopt;
    for (const auto& [theirs, ours] : kOptions)
      if (const json::value* v = options.if_contains(theirs); v && !v->is_null()) body_[ours] = *v;
    adapt_options();
    return check_samplers(options);
  }

  // Adapts options with another meaning here.
  void adapt_options() {
    const auto number = [this](const char* key) {
      const json::value* const v = body_.if_contains(key);
      return v && v->is_number() ? v->to_number<double>() : NAN;
    };
    if (number("seed") < 0) body_.erase("seed");  // means a random seed
    if (number("top_p") == 0) body_.erase("top_p"), body_["top_k"] = 1;
    if (number("repetition_penalty") == 0) body_.erase("repetition_penalty");
  }

  void read_sizes(const json::object& options) {
    const auto number = [&](const char* key) {
      const json::value* const value = options.if_contains(key);
      return value && !value->is_null() ? std::optional(whole_number(*value)) : std::nullopt;
    };
    // 0 and less: until the model ends, or the context is full.
    if (const auto most = number("num_predict"); most && out_.to != Translates::kEmbedding)
      body_["max_tokens"] = std::min<int64_t>(*most > 0 ? *most : INT32_MAX, INT32_MAX);
    if (const auto most = number("num_ctx"); most && *most > 0)
      out_.rules.max_seq_len = std::max<int64_t>(*most, kLeastContext);
  }

  // Refuses unsupported samplers, unless they are off. The repetition penalty always
  // counts all tokens.
  std::optional<TranslationFault> check_samplers(const json::object& options) {
    constexpr std::pair<const char*, double> kOff[] = {
        {"mirostat", 0}, {"typical_p", 1}, {"tfs_z", 1}};
    for (const auto& [key, off] : kOff) {
      const json::value* const value = options.if_contains(key);
      if (value && !value->is_null() && !(value->is_number() && value->to_number<double>() == off))
        return TranslationFault{fmt::format(
            "options.{}: not supported by this server; leave it out or set it to {}", key, off)};
    }
    const json::value* const last = options.if_contains("repeat_last_n");
    if (last && last->is_number() && last->to_number<double>() == 0)
      body_.erase("repetition_penalty");
    return std::nullopt;
  }

  static constexpr int64_t kLeastContext = 4;

  const Clock::time_point begun_ = Clock::now();
  const json::object& request_;
  json::object body_;
  std::vector<std::string_view> known_;
  Translated out_;
};

}  // namespace

Answer translate_ollama_chat(const json::object& request) { return OllamaReader(request).chat(); }
Answer translate_ollama_generate(const json::object& request) {
  return OllamaReader(request).generate();
}
Answer translate_ollama_embed(const json::object& request) {
  return OllamaReader(request).embed("input", true);
}
Answer translate_ollama_embeddings(const json::object& request) {
  return OllamaReader(request).embed("prompt", false);
}

std::optional<TranslationFault> check_ollama_show(const json::object& request) {
  constexpr std::string_view kOfShow[] = {"model", "name", "verbose", "options"};
  return check_ollama_members(request, kOfShow);
}

std::string ollama_model_name(const json::object& request) {
  constexpr std::string_view kLatest = ":latest";
  std::string name = text_member(request, "model");
  if (name.empty()) name = text_member(request, "name");
  if (name.ends_with(kLatest)) name.resize(name.size() - kLatest.size());
  return name;
}

std::string ollama_error(std::string_view message) {
  return json_text(json::object{{"error", message}});
}

}  // namespace nereid::front
