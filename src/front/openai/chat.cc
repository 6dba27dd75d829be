// POST /v1/chat/completions: template, generation, tool calls, collected or streamed.
#include <utility>

#include "front/http/json_text.h"
#include "front/openai/generation.h"
#include "front/openai/handlers.h"
#include "front/openai/tool_calls.h"

namespace nereid::front {
namespace {

// One request in flight; on the exchange's strand only.
class Chat : public std::enable_shared_from_this<Chat> {
 public:
  Chat(ExchangePtr exchange, LanguageModelPtr model, ChatRequest request)
      : exchange_(std::move(exchange)), model_(std::move(model)), request_(std::move(request)) {
    envelope_.id = random_id("chatcmpl-");
    envelope_.model = model_->id;
  }

  void start(TRITONSERVER_Server* server) {
    auto prompt = render();
    if (const auto* error = std::get_if<ApiError>(&prompt)) {
      send_failure(exchange_, false, *error);
      return;
    }
    auto& ids = std::get<std::vector<int32_t>>(prompt);
    num_prompt_tokens_ = static_cast<int64_t>(ids.size());
    auto self = shared_from_this();
    auto on_piece = [self](Piece piece) { self->take(std::move(piece)); };
    const auto started = Generation::start(server, model_, exchange_, std::move(ids),
                                           request_.common.sampling, std::move(on_piece));
    if (!started.ok()) {
      send_failure(exchange_, false, api_error(started.status()));
      return;
    }
    exchange_->on_disconnect([generation = *started] { generation->cancel(); });
  }

 private:
  std::variant<std::vector<int32_t>, ApiError> render() const {
    if (!model_->chat_template) {
      return ApiError{400, "the model has no chat template; use /v1/completions", "messages"};
    }
    const auto text = model_->chat_template->render(request_.context);
    if (!text.ok()) {
      return ApiError{400, fmt::format("chat template: {}", message(text.status())), "messages"};
    }
    auto ids = model_->tokenizer->encode(*text, {.add_special_tokens = false});
    if (!ids.ok()) return ApiError{400, std::string(message(ids.status())), "messages"};
    const auto room = check_prompt(*model_, *ids, request_.common.sampling, "messages");
    if (const auto* error = std::get_if<ApiError>(&room)) return *error;
    return *std::move(ids);
  }

  void take(Piece piece) {
    if (!piece.status.ok()) {
      send_failure(exchange_, begun_, api_error(piece.status));
      return;
    }
    num_tokens_ = piece.num_tokens;
    ToolCallParser::Out out;
    if (request_.parse_tools) {
      out = tools_.push(piece.text, piece.done);
    } else {
      out.text = std::move(piece.text);
    }
    if (piece.done && tools_.num_calls() > 0 && piece.finish_reason == "stop") {
      piece.finish_reason = "tool_calls";
    }
    if (request_.common.stream) {
      stream(out, piece);
      return;
    }
    content_ += out.text;
    for (ToolCall& call : out.calls) calls_.push_back(call_object(std::move(call)));
    if (piece.done) answer(piece);
  }

  json::object call_object(ToolCall call) const {
    return {{"id", random_id("chatcmpl-tool-")},
            {"type", "function"},
            {"function", json::object{{"name", std::move(call.name)},
                                      {"arguments", std::move(call.arguments)}}}};
  }

  json::object usage() const { return usage_object(num_prompt_tokens_, num_tokens_); }

  void write_chunk(json::object delta, json::value finish_reason, json::value stop_reason) {
    json::object choice = {{"index", 0},
                           {"delta", std::move(delta)},
                           {"logprobs", nullptr},
                           {"finish_reason", finish_reason}};
    if (!finish_reason.is_null()) choice["stop_reason"] = std::move(stop_reason);
    json::object chunk = envelope_.make("chat.completion.chunk");
    chunk["choices"] = json::array{std::move(choice)};
    if (request_.common.continuous_usage_stats) {
      chunk["usage"] = usage();
    } else if (request_.common.include_usage) {
      chunk["usage"] = nullptr;
    }
    exchange_->write(sse_event(chunk));
  }

  void stream(ToolCallParser::Out& out, const Piece& piece) {
    if (!std::exchange(begun_, true)) {
      exchange_->begin_stream(sse_head());
      write_chunk({{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    }
    if (!out.text.empty()) write_chunk({{"content", std::move(out.text)}}, nullptr, nullptr);
    for (ToolCall& call : out.calls) {
      json::object object = call_object(std::move(call));
      object["index"] = num_streamed_calls_++;
      write_chunk({{"tool_calls", json::array{std::move(object)}}}, nullptr, nullptr);
    }
    if (!piece.done) return;
    write_chunk({}, json::value(piece.finish_reason), piece.stop_reason);
    if (request_.common.include_usage) {
      json::object chunk = envelope_.make("chat.completion.chunk");
      chunk["choices"] = json::array();
      chunk["usage"] = usage();
      exchange_->write(sse_event(chunk));
    }
    exchange_->write(kSseDone);
    exchange_->end();
  }

  void answer(const Piece& piece) {
    json::object answer_message = {{"role", "assistant"}, {"content", std::move(content_)}};
    answer_message["tool_calls"] = std::move(calls_);
    json::object choice = {{"index", 0},
                           {"message", std::move(answer_message)},
                           {"logprobs", nullptr},
                           {"finish_reason", piece.finish_reason},
                           {"stop_reason", piece.stop_reason}};
    json::object body = envelope_.make("chat.completion");
    body["choices"] = json::array{std::move(choice)};
    body["usage"] = usage();
    std::string text;
    append_json(text, body);
    exchange_->send({200, "application/json", {}, std::move(text)});
  }

  ExchangePtr exchange_;
  LanguageModelPtr model_;
  const ChatRequest request_;
  Envelope envelope_;
  ToolCallParser tools_;
  std::string content_;
  json::array calls_;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_tokens_ = 0;
  size_t num_streamed_calls_ = 0;
  bool begun_ = false;
};

}  // namespace

void handle_chat(LanguageModelCache& models, const ExchangePtr& exchange) {
  Parsed<ChatRequest> request = parse_chat_request(exchange->request().body);
  if (const auto* error = std::get_if<ApiError>(&request)) {
    exchange->send(openai_error(*error));
    return;
  }
  auto& parsed = std::get<ChatRequest>(request);
  auto model = find_model(models, parsed.common.model);
  if (const auto* error = std::get_if<ApiError>(&model)) {
    exchange->send(openai_error(*error));
    return;
  }
  std::make_shared<Chat>(exchange, std::get<LanguageModelPtr>(model), std::move(parsed))
      ->start(models.server());
}

}  // namespace nereid::front
