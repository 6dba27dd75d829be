// POST /v1/completions: one generation per prompt, n choices each, collected or streamed.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "front/http/json_text.h"
#include "front/openai/generation.h"
#include "front/openai/handlers.h"

namespace nereid::front {
namespace {

struct TextChoice {
  TokenCounts counts;
  std::string text;                    // whole when collecting; unused when streaming
  std::vector<ScoredToken> log_probs;  // likewise
  std::vector<int32_t> token_ids;      // likewise
  json::value finish_reason;
  json::value stop_reason;
};

// One request in flight; on the exchange's strand only.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(ExchangePtr exchange, LanguageModelPtr model, CompletionRequest request)
      : exchange_(std::move(exchange)), model_(std::move(model)), request_(std::move(request)) {
    envelope_.id = answer_id("cmpl-", request_.common);
    const backend::LoraModule* const adapter = model_->adapter(request_.common.model);
    envelope_.model = adapter ? adapter->name : model_->id;
  }

  // The prompts' tokens. On any thread, before start().
  std::optional<ApiError> read_prompts() { return tokenize(prompts_); }

  void start(TRITONSERVER_Server* server, Tracer& tracer) {
    auto prompts = request_.common.return_token_ids ? prompts_ : std::exchange(prompts_, {});
    const auto n = static_cast<size_t>(request_.common.sampling.n);
    choices_.resize(prompts.size() * n);
    num_running_ = choices_.size();
    auto self = shared_from_this();
    for (size_t i = 0; i < prompts.size(); ++i) {
      num_prompt_tokens_ += static_cast<int64_t>(prompts[i].size());
      auto on_piece = [self, first = i * n](Piece piece) {
        self->take(first + piece.index, std::move(piece));
      };
      auto started = Generation::start(server, tracer, model_, exchange_, std::move(prompts[i]),
                                       request_.common.sampling, std::move(on_piece));
      if (!started.ok()) {
        fail(api_error(started.status()));
        return;
      }
      generations_.push_back(*std::move(started));
    }
    exchange_->on_disconnect([self] { self->cancel(); });
  }

 private:
  std::optional<ApiError> tokenize(std::vector<std::vector<int32_t>>& prompts) {
    const SamplingOptions& sampling = request_.common.sampling;
    if (!request_.suffix.empty() && !model_->infill)
      return ApiError{400, "'suffix': the model has no tokens for a text with a gap", "suffix",
                      "unsupported_parameter"};
    for (const Prompt& given : request_.prompts) {
      const Prompt prompt =
          request_.suffix.empty()
              ? given
              : infill_prompt(*model_->infill, std::get<std::string>(given), request_.suffix);
      auto ids = prompt_ids(*model_, prompt, request_.add_special_tokens,
                            sampling.max_prompt_tokens, "prompt");
      if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
      prompts.push_back(std::get<std::vector<int32_t>>(std::move(ids)));
      const auto room = check_prompt(*model_, prompts.back(), sampling, "prompt");
      if (const auto* error = std::get_if<ApiError>(&room)) return *error;
    }
    return std::nullopt;
  }

  std::string prompt_text(size_t index) const {
    const Prompt& prompt =
        request_.prompts[index / static_cast<size_t>(request_.common.sampling.n)];
    if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
    return model_->tokenizer->decode(std::get<std::vector<int32_t>>(prompt), false);
  }

  void cancel() {
    for (const auto& generation : generations_) generation->cancel();
  }

  void fail(const ApiError& error) {
    if (std::exchange(ended_, true)) return;
    cancel();
    send_failure(exchange_, begun_, error);
  }

  void take(size_t index, Piece piece) {
    if (ended_) return;
    if (!piece.status.ok()) {
      fail(api_error(piece.status));
      return;
    }
    TextChoice& choice = choices_[index];
    choice.counts = piece.counts;
    if (piece.done) {
      choice.finish_reason = piece.finish_reason;
      choice.stop_reason = piece.stop_reason;
      --num_running_;
    }
    if (request_.common.stream) {
      stream(index, piece);
    } else {
      choice.text += piece.text;
      std::move(piece.log_probs.begin(), piece.log_probs.end(),
                std::back_inserter(choice.log_probs));
      choice.token_ids.insert(choice.token_ids.end(), piece.token_ids.begin(),
                              piece.token_ids.end());
      if (num_running_ == 0) answer();
    }
  }

  json::object choice_object(size_t index, std::string text,
                             const std::vector<ScoredToken>& log_probs,
                             const std::vector<int32_t>& token_ids) const {
    const TextChoice& c = choices_[index];
    json::value scores;
    if (request_.common.sampling.log_probs) {
      scores = completion_log_probs(*model_->tokenizer, log_probs,
                                    request_.common.sampling.tokens_as_ids);
    }
    json::object choice = {{"index", index},
                           {"text", std::move(text)},
                           {"logprobs", std::move(scores)},
                           {"finish_reason", c.finish_reason},
                           {"stop_reason", c.stop_reason}};
    if (request_.common.return_token_ids) {
      const size_t prompt = index / static_cast<size_t>(request_.common.sampling.n);
      choice["token_ids"] = ids_or_null(request_.common, token_ids);
      choice["prompt_token_ids"] = ids_or_null(request_.common, prompts_[prompt]);
    }
    return choice;
  }

  json::object usage() const {
    std::vector<TokenCounts> counts;
    for (const TextChoice& c : choices_) counts.push_back(c.counts);
    return usage_object(num_prompt_tokens_, counts,
                        static_cast<size_t>(request_.common.sampling.n));
  }

  void stream(size_t index, Piece& piece) {
    begin();
    const bool has_ids = request_.common.return_token_ids && !piece.token_ids.empty();
    if (!piece.text.empty() || !piece.log_probs.empty() || has_ids || piece.done) {
      json::object chunk = envelope_.make("text_completion");
      chunk["choices"] = json::array{
          choice_object(index, std::move(piece.text), piece.log_probs, piece.token_ids)};
      if (request_.common.continuous_usage_stats) {
        chunk["usage"] = usage();
      } else if (request_.common.include_usage) {
        chunk["usage"] = nullptr;
      }
      exchange_->write(sse_event(chunk));
    }
    if (num_running_ > 0) return;
    if (request_.common.include_usage) {
      json::object chunk = envelope_.make("text_completion");
      chunk["choices"] = json::array();
      chunk["usage"] = usage();
      exchange_->write(sse_event(chunk));
    }
    exchange_->write(kSseDone);
    exchange_->end();
    ended_ = true;
  }

  void begin() {
    if (std::exchange(begun_, true)) return;
    begin_events(exchange_, warnings(request_.common));
    if (!request_.echo) return;
    for (size_t i = 0; i < choices_.size(); ++i) {
      json::object chunk = envelope_.make("text_completion");
      json::object choice = choice_object(i, prompt_text(i), {}, {});
      choice["finish_reason"] = nullptr;
      choice["stop_reason"] = nullptr;
      chunk["choices"] = json::array{std::move(choice)};
      exchange_->write(sse_event(chunk));
    }
  }

  void answer() {
    ended_ = true;
    json::array choices;
    for (size_t i = 0; i < choices_.size(); ++i) {
      std::string text = request_.echo ? prompt_text(i) : std::string();
      choices.push_back(choice_object(i, std::move(text) + choices_[i].text, choices_[i].log_probs,
                                      choices_[i].token_ids));
    }
    json::object body = envelope_.make("text_completion");
    body["choices"] = std::move(choices);
    body["usage"] = usage();
    std::string text;
    append_json(text, body);
    exchange_->send({200, "application/json", warnings(request_.common), std::move(text)});
  }

  ExchangePtr exchange_;
  LanguageModelPtr model_;
  const CompletionRequest request_;
  Envelope envelope_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<std::shared_ptr<Generation>> generations_;  // one for each prompt
  std::vector<TextChoice> choices_;                       // n for each prompt
  int64_t num_prompt_tokens_ = 0;
  size_t num_running_ = 0;
  bool begun_ = false;
  bool ended_ = false;
};

using CompletionPtr = std::shared_ptr<Completion>;

std::variant<CompletionPtr, ApiError> read_completion(const OpenAiContextPtr& context,
                                                      const ExchangePtr& exchange) {
  const std::string& body = exchange->request().body;
  Parsed<CompletionRequest> request =
      parse_completion_request(body, memory_for_json(context->budget, body.size()));
  if (auto* error = std::get_if<ApiError>(&request)) return std::move(*error);
  auto& parsed = std::get<CompletionRequest>(request);
  auto model = accept_request(*context, exchange->request(), parsed.common);
  if (auto* error = std::get_if<ApiError>(&model)) return std::move(*error);
  auto completion =
      std::make_shared<Completion>(exchange, std::get<LanguageModelPtr>(model), std::move(parsed));
  if (auto error = completion->read_prompts()) return *std::move(error);
  return completion;
}

}  // namespace

void handle_completion(const OpenAiContextPtr& context, const ExchangePtr& exchange) {
  const auto read = [context, exchange] { return read_completion(context, exchange); };
  const auto start = [context, exchange](std::variant<CompletionPtr, ApiError> completion) {
    if (const auto* error = std::get_if<ApiError>(&completion)) {
      exchange->send(openai_error(*error));
    } else {
      std::get<CompletionPtr>(completion)->start(context->models.server(), *context->tracer);
    }
  };
  const bool is_quick =
      context->models.is_loaded() && exchange->request().body.size() <= kQuickPromptBytes;
  context->workers.run(exchange, is_quick, read, start);
}

}  // namespace nereid::front
