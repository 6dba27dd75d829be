#include "front/openai/responses/responses.h"

#include <utility>

#include "front/http/json_text.h"
#include "front/openai/error.h"
#include "front/openai/responses/response_output.h"

namespace nereid::front {
namespace {

json::value response_usage(const json::object& chat) {
  const json::object& usage = object_member(chat, "usage");
  if (usage.empty()) return nullptr;
  const auto inner = [&](std::string_view details, std::string_view key) {
    return integer_member(object_member(usage, details), key);
  };
  return json::object{
      {"input_tokens", integer_member(usage, "prompt_tokens")},
      {"input_tokens_details",
       json::object{{"cached_tokens", inner("prompt_tokens_details", "cached_tokens")}}},
      {"output_tokens", integer_member(usage, "completion_tokens")},
      {"output_tokens_details",
       json::object{{"reasoning_tokens", inner("completion_tokens_details", "reasoning_tokens")}}},
      {"total_tokens", integer_member(usage, "total_tokens")}};
}

class ResponsesTranslation final : public Translation {
 public:
  ResponsesTranslation(ResponsesRequest request, OwnerResponses kept, std::string id_end)
      : request_(std::move(request)),
        kept_(std::move(kept)),
        id_("resp_" + id_end),
        output_(std::move(id_end), request_.stream) {}

  std::string_view stream_type() const override { return "text/event-stream; charset=utf-8"; }

  std::string answer(const json::object& chat) override {
    begin(chat);
    if (const json::object* choice = first_choice(chat)) {
      add(object_member(*choice, "message"), *choice);
      take_finish(*choice);
    }
    usage_ = response_usage(chat);
    output_.finish(status_);
    return keep();
  }

  std::string chunk(const json::object& chunk) override {
    if (!begun_) {
      begin(chunk);
      const json::object response = {{"response", this->response("in_progress")}};
      output_.event("response.created", response);
      output_.event("response.in_progress", response);
    }
    if (json::value usage = response_usage(chunk); !usage.is_null()) usage_ = std::move(usage);
    if (const json::object* choice = first_choice(chunk)) {
      add(object_member(*choice, "delta"), *choice);
      take_finish(*choice);
    }
    return output_.take_events();
  }

  std::string end() override {
    output_.finish(status_);
    output_.event("response." + status_, {{"response", response(status_)}});
    keep();
    return output_.take_events();
  }

  std::string error(const ChatError& chat, bool in_stream) override {
    const ApiError error = responses_error({chat.status, chat.message, chat.param, chat.code});
    if (!in_stream) return openai_error_body(error);
    if (!begun_) {
      // The stream's end when the server stops; event numbers are not known yet.
      json::object event = {{"type", "error"},
                            {"code", "server_error"},
                            {"message", error.message},
                            {"param", nullptr},
                            {"sequence_number", 0}};
      event["error"] = json::object{{"message", error.message}, {"type", "server_error"}};
      return named_event("error", event);
    }
    json::object failed = response("failed");
    failed["error"] = json::object{{"code", "server_error"}, {"message", error.message}};
    output_.event("response.failed", {{"response", std::move(failed)}});
    return output_.take_events();
  }

 private:
  void begin(const json::object& chat) {
    begun_ = true;
    created_ = integer_member(chat, "created");
    model_ = text_member(chat, "model");
  }

  // Appends the content of a message or a part of one.
  void add(const json::object& message, const json::object& choice) {
    output_.add_reasoning(text_member(message, "reasoning_content"));
    output_.add_text(text_member(message, "content"),
                     array_member(object_member(choice, "logprobs"), "content"));
    for (const json::value& value : array_member(message, "tool_calls")) {
      const json::object& call = object_or_empty(value);
      const json::object& function = object_member(call, "function");
      // A piece with an id begins a call.
      if (const std::string id = text_member(call, "id"); !id.empty())
        output_.begin_call(id, text_member(function, "name"));
      output_.add_arguments(text_member(function, "arguments"));
    }
  }

  void take_finish(const json::object& choice) {
    if (text_member(choice, "finish_reason") == "length") status_ = "incomplete";
  }

  json::object response(std::string_view status) const {
    json::object out = {{"id", id_},        {"object", "response"}, {"created_at", created_},
                        {"status", status}, {"error", nullptr},     {"incomplete_details", nullptr},
                        {"model", model_}};
    if (status == "incomplete")
      out["incomplete_details"] = json::object{{"reason", "max_output_tokens"}};
    out["output"] = output_.items();
    out["usage"] = usage_;
    for (const auto& [key, value] : request_.members) out[key] = value;
    return out;
  }

  // The text of the finished response, which is stored.
  std::string keep() {
    std::string text = json_text(response(status_));
    if (request_.is_kept)
      kept_.store->put(kept_.owner, id_, {text, std::exchange(request_.items, {})});
    return text;
  }

  ResponsesRequest request_;
  const OwnerResponses kept_;
  const std::string id_;
  ResponseOutput output_;
  bool begun_ = false;
  int64_t created_ = 0;
  std::string model_;
  std::string status_ = "completed";
  json::value usage_ = nullptr;
};

}  // namespace

std::unique_ptr<Translation> responses_translation(ResponsesRequest request, OwnerResponses kept,
                                                   std::string id_end) {
  return std::make_unique<ResponsesTranslation>(std::move(request), std::move(kept),
                                                std::move(id_end));
}

}  // namespace nereid::front
