// The handlers of the OpenAI routes, and shared parts of their answers. Internal to front/openai.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "base/json.h"
#include "front/http/message.h"
#include "front/http/router.h"
#include "front/http/workers.h"
#include "front/media/media_fetch.h"
#include "front/openai/error.h"
#include "front/openai/fair_queue.h"
#include "front/openai/language_models.h"
#include "front/openai/options.h"
#include "front/openai/requests/requests.h"
#include "front/openai/responses/response_store.h"
#include "front/protection/budget_memory.h"
#include "front/protection/counted_text.h"
#include "front/trace/tracer.h"

namespace nereid::front {

using LanguageModelPtr = std::shared_ptr<const LanguageModel>;

// State shared by the handlers; outlives the requests.
struct OpenAiContext {
  mutable LanguageModels models;
  const OpenAiOptions options;
  std::shared_ptr<Tracer> tracer;
  Workers& workers;
  std::shared_ptr<ByteBudget> budget;
  const std::shared_ptr<StoredResponses> responses;
  mutable FairQueues queues = {};
  const MediaFetcher media =
      MediaFetcher(options.media_domains, resolve_by_system, options.farthest_media);
};
using OpenAiContextPtr = std::shared_ptr<OpenAiContext>;

void handle_completion(const OpenAiContextPtr& context, const ExchangePtr& exchange,
                       const ContextRules& rules = {});
void handle_chat(const OpenAiContextPtr& context, const ExchangePtr& exchange,
                 const ContextRules& rules = {});
// Forms of answers with embeddings.
enum class EmbeddingForm { kOpenAi, kOllama, kOllamaOne };
void handle_embedding(const OpenAiContextPtr& context, const ExchangePtr& exchange,
                      EmbeddingForm form = EmbeddingForm::kOpenAi);
void handle_health_generate(const OpenAiContextPtr& context, const ExchangePtr& exchange);
void add_translated_routes(Router& router, const OpenAiContextPtr& context, bool with_ollama);
// GET / of browsers, Ollama's clients and lost ones; none where `options` have nothing for it.
void add_root_route(Router& router, const OpenAiOptions& options);
void add_responses_routes(Router& router, const OpenAiContextPtr& context);
void add_adapter_routes(Router& router, const OpenAiContextPtr& context);
void add_score_routes(Router& router, const OpenAiContextPtr& context);
void add_audio_routes(Router& router, const OpenAiContextPtr& context);
void add_tokenizer_routes(Router& router, const OpenAiContextPtr& context);

// Traits of OpenAI routes: reading, computing tokens, and other work.
inline constexpr RouteTraits kShows = {Api::kInference, Access::kCallers, Cost::kNothing,
                                       ErrorShape::kOpenAi};
inline constexpr RouteTraits kComputes = {Api::kInference, Access::kCallers, Cost::kTokens,
                                          ErrorShape::kOpenAi};
inline constexpr RouteTraits kWorks = {Api::kInference, Access::kCallers, Cost::kRequest,
                                       ErrorShape::kOpenAi};

// Bodies up to this size are tokenised on the event loop, in about a millisecond.
inline constexpr size_t kQuickPromptBytes = 8 << 10;
// Larger bodies take more than some 100 ms.
inline constexpr size_t kLongPromptBytes = 1 << 20;

struct PromptWork;
// Prompt tokens of a chat's body, whether or not they fit the model.
std::variant<int64_t, ApiError> count_chat_tokens(const OpenAiContext& context,
                                                  std::string_view body, const PromptWork& work);

// The lane for reading a request.
inline Lane lane_of(const OpenAiContext& context, const ExchangePtr& exchange) {
  const size_t size = exchange->request().body.size();
  if (size > kLongPromptBytes) return Lane::kLong;
  return context.models.is_loaded() && size <= kQuickPromptBytes ? Lane::kLoop : Lane::kWorker;
}

// prefix + 32 unguessable hex digits (random_hex).
std::string random_id(std::string_view prefix);
// prefix + the request's own id, else random_id().
std::string answer_id(std::string_view prefix, const CommonOptions& request);

// Takes a valid header X-Request-Id as id, if the body has none.
void take_request_id(const Request& http, CommonOptions& request);
// Null unless `request` asks for ids.
json::value ids_or_null(const CommonOptions& request, const std::vector<int32_t>& ids);

// The response for an error in a parsed request.
inline Response refusal(const OpenAiContext& context, const ApiError& error) {
  return context.options.fastapi_errors ? fastapi_error(error) : openai_error(error);
}

// A 400 for unknown fields, where these are refused.
std::optional<ApiError> refuse_unknown(const OpenAiContext& context, const CommonOptions& request);
// Finds the model of a request and completes its checks: its id (see take_request_id), unknown
// fields, the adapter that it names, the tokens of its banned words, which may take long. Or
// the error to send.
std::variant<LanguageModelPtr, ApiError> accept_request(const OpenAiContext& context,
                                                        const Request& http,
                                                        CommonOptions& request);
// A 400 for a prompt of text to a speech model, which names the routes that take recordings.
std::optional<ApiError> refuse_text(const LanguageModel& model);
// A request and the model that it is for.
template <class Request>
struct Accepted {
  LanguageModelPtr model;
  Request request;
};
// Reads the exchange's body by `parse` (see requests.h), accept_request(), and refuse_text().
template <class Request>
std::variant<Accepted<Request>, ApiError> accept_body(const OpenAiContext& context,
                                                      const ExchangePtr& exchange,
                                                      Parsed<Request> (*parse)(std::string_view,
                                                                               json::storage_ptr)) {
  const std::string& body = exchange->request().body;
  Parsed<Request> parsed = parse(body, memory_for_json(context.budget, body.size()));
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& request = std::get<Request>(parsed);
  auto model = accept_request(context, exchange->request(), request.common);
  if (auto* error = std::get_if<ApiError>(&model)) return std::move(*error);
  if (auto error = refuse_text(*std::get<LanguageModelPtr>(model))) return *std::move(error);
  return Accepted<Request>{std::get<LanguageModelPtr>(std::move(model)), std::move(request)};
}

// Warning headers: unknown fields, and the request's warning. Source: RFC 7234, section 5.5.
Headers warnings(const CommonOptions& request);

// Sets the adapter of a request.
void use_adapter(const backend::LoraModule& adapter, SamplingOptions& sampling);

// The members id, object, created and model at the start of every answer and chunk.
struct Envelope {
  std::string id;
  std::string model;
  int64_t created = std::time(nullptr);

  json::object make(std::string_view object) const;
};
// Envelope of the answer to a request: the id by answer_id(), the model or its adapter.
Envelope envelope_of(std::string_view id_prefix, const LanguageModel& model,
                     const CommonOptions& request);

// The events of a streamed answer: an envelope with at most one choice each.
class ChunkEvents {
 public:
  ChunkEvents(const Envelope& envelope, std::string_view object);

  // `choice`: JSON. `more`: members behind the choices.
  std::string event(std::string_view choice, const json::object& more = {}) const;

 private:
  std::string start_;  // text up to the choice
};

// The choices of an answer that is sent whole, one after the other.
class ChoiceList {
 public:
  // `head`: members before them.
  ChoiceList(CountedText& body, const json::object& head);
  void add(const json::object& choice);
  void finish(const json::object& more);  // `more`: members behind them

 private:
  CountedText& body_;
  size_t num_choices_ = 0;
};

// Sends the JSON text of `make`, called on a worker unless it is quick, with the
// headers of `headers`; 503 when the budget is full. `lane`: a Lane, or whether it is
// quick; see Workers::run().
template <class LaneOrQuick, class Make, class GetHeaders>
void send_made(const OpenAiContext& context, const ExchangePtr& exchange, LaneOrQuick lane,
               Make make, GetHeaders headers) {
  using Made = std::variant<CountedText, ApiError>;
  const auto make_in_budget = [make = std::move(make)](Lane taken) mutable -> Made {
    try {
      if constexpr (std::is_invocable_v<Make&, Lane>)
        return make(taken);
      else
        return make();
    } catch (const std::bad_alloc& e) {
      return ApiError{503, shortage(e), "", ""};
    }
  };
  context.workers.run(exchange, lane, make_in_budget,
                      [exchange, headers = std::move(headers)](Made made) {
                        if (const auto* error = std::get_if<ApiError>(&made))
                          return exchange->send(openai_error(*error));
                        auto& body = std::get<CountedText>(made);
                        exchange->send({200, "application/json", headers(), std::move(body.text)});
                      });
}

inline constexpr char kSseDone[] = "data: [DONE]\n\n";
// Begins an answer of events; a server that stops ends it with an error event and [DONE].
void begin_events(const ExchangePtr& exchange, Headers more = {});

// An error event and [DONE], the end of a failed stream.
std::string error_event(const ApiError& error);

// Calls `start` when the request is next in its FairQueue, or answers 503.
void start_in_turn(const OpenAiContext& context, const ExchangePtr& exchange,
                   const LanguageModel& model, int64_t num_prompt_tokens,
                   std::function<void()> start);

// Calls `read`, on a worker if that may take long (see Workers::run()), and queues its result to
// start: a pointer to an object with model(), num_prompt_tokens() and start(); or sends its error.
template <class Read>
void read_and_start(const OpenAiContextPtr& context, const ExchangePtr& exchange, Read read) {
  const auto start = [context, exchange](auto result) {
    if (const auto* error = std::get_if<ApiError>(&result)) {
      exchange->send(refusal(*context, *error));
      return;
    }
    const auto& ready = std::get<0>(result);
    start_in_turn(*context, exchange, ready->model(), ready->num_prompt_tokens(),
                  [context, ready] { ready->start(context->models.server(), *context->tracer); });
  };
  // Copies from the body's tree count in the budget like the tree.
  const auto read_in_budget = [read = std::move(read)](Lane lane) -> decltype(read(lane)) {
    try {
      return read(lane);
    } catch (const std::bad_alloc& e) {
      return ApiError{503, shortage(e), "", ""};
    }
  };
  context->workers.run(exchange, lane_of(*context, exchange), read_in_budget, start);
}

// Sends a failure: a JSON error when the answer has not begun, else an error event and [DONE].
void send_failure(const ExchangePtr& exchange, bool begun, const ApiError& error);

// The loaded model named `requested`, directly or by a model of the repository that calls it, or
// the error to send.
std::variant<LanguageModelPtr, ApiError> find_model(LanguageModels& models,
                                                    std::string_view requested);

}  // namespace nereid::front
