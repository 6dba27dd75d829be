// Code shared by the OpenAI handlers, the model list and the route table; see handlers.h.
#include "front/openai/handlers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/log_limit.h"
#include "base/random_hex.h"
#include "front/http/json_text.h"
#include "front/openai/requests/sampling_defaults.h"
#include "front/openai/routes.h"
#include "front/output/reasoning_formats.h"
#include "front/output/tool_formats.h"

namespace nereid::front {
namespace {

json::object model_card(const LanguageModel& model, int64_t created) {
  json::object card = {{"id", model.id},
                       {"object", "model"},
                       {"created", created},
                       {"owned_by", "nereid"},
                       {"max_model_len", model.max_seq_len}};
  // As OpenRouter's list has it; models of text alone keep the fields that they had.
  if (model.pictures.ok())
    card["architecture"] = json::object{{"input_modalities", json::array{"text", "image"}},
                                        {"output_modalities", json::array{"text"}}};
  return card;
}

json::object adapter_card(const LanguageModel& model, const backend::LoraModule& adapter,
                          int64_t created) {
  json::object card = model_card(model, created);
  card["id"] = adapter.name;
  card["parent"] = model.id;
  return card;
}

Response list_models(LanguageModels& models, int64_t created) {
  json::array data;
  const auto all = models.all();
  if (!all.ok() && all.status().code() != absl::StatusCode::kUnavailable)
    return openai_error(api_error(all.status()));
  for (const LanguageModelPtr& model : all.value_or(std::vector<LanguageModelPtr>())) {
    data.push_back(model_card(*model, created));
    for (const backend::LoraModule& adapter : model->adapters)
      data.push_back(adapter_card(*model, adapter, created));
  }
  return json_response(json_text(json::object{{"object", "list"}, {"data", std::move(data)}}));
}

Response show_model(LanguageModels& models, int64_t created, const Request& request) {
  const auto id = percent_decode(request.param("id"));
  const auto model = find_model(models, id.value_or("%"));
  if (const auto* error = std::get_if<ApiError>(&model)) return openai_error(*error);
  const LanguageModel& found = *std::get<LanguageModelPtr>(model);
  const backend::LoraModule* const adapter = found.adapter(id.value_or("%"));
  return json_response(
      json_text(adapter ? adapter_card(found, *adapter, created) : model_card(found, created)));
}

}  // namespace

std::string random_id(std::string_view prefix) { return fmt::format("{}{}", prefix, random_hex()); }

std::string answer_id(std::string_view prefix, const CommonOptions& request) {
  if (request.request_id.empty()) return random_id(prefix);
  return fmt::format("{}{}", prefix, request.request_id);
}

void take_request_id(const Request& http, CommonOptions& request) {
  if (!request.request_id.empty()) return;
  const std::string* id = find_header(http.headers, "X-Request-Id");
  if (id != nullptr && is_request_id(*id)) request.request_id = *id;
}

json::value ids_or_null(const CommonOptions& request, const std::vector<int32_t>& ids) {
  if (!request.return_token_ids) return nullptr;
  return json::array(ids.begin(), ids.end());
}

namespace {

// The names, escaped: a client's text must not go into headers as it is.
std::string names_of_unknown(const CommonOptions& request) {
  constexpr size_t kMaxNames = 8, kMaxBytes = 40;
  std::string names;
  for (size_t i = 0; i < std::min(kMaxNames, request.unknown.size()); ++i) {
    if (i > 0) names += ", ";
    for (const char c : request.unknown[i].substr(0, kMaxBytes))
      names += (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                       c == '_' || c == '-' || c == '.'
                   ? c
                   : '?';
  }
  if (request.unknown.size() > kMaxNames) names += ", ...";
  return names;
}

}  // namespace

std::optional<ApiError> refuse_unknown(const OpenAiContext& context, const CommonOptions& request) {
  if (request.unknown.empty()) return std::nullopt;
  const std::string names = names_of_unknown(request);
  if (context.options.strict_fields)
    return ApiError{400, fmt::format("unknown fields, which this server refuses: {}", names),
                    request.unknown[0], "unknown_parameter"};
  static LogLimit log;
  log.warn("fields of a request that are not known: {}", names);
  return std::nullopt;
}

Headers warnings(const CommonOptions& request) {
  Headers out;
  if (!request.unknown.empty())
    out.push_back(
        {"Warning", fmt::format("299 - \"unknown fields: {}\"", names_of_unknown(request))});
  if (!request.warning.empty())
    out.push_back({"Warning", fmt::format("299 - \"{}\"", request.warning)});
  return out;
}

void use_adapter(const backend::LoraModule& adapter, SamplingOptions& sampling) {
  sampling.lora_task_id = adapter.task_id;
  if (adapter.by_request) sampling.lora_folder = adapter.folder;
}

namespace {

constexpr size_t kMaxBadWordTokens = 256;  // limit of the engine

// A word is banned as it stands and behind a space.
std::optional<ApiError> find_bad_word_ids(const LanguageModel& model, SamplingOptions& sampling) {
  for (const std::string& word : sampling.bad_words) {
    for (const std::string& text : {word, " " + word}) {
      StatusOr<std::vector<int32_t>> ids = std::vector<int32_t>();
      const bool may_fit = word.size() <= kMaxBadWordTokens * model.max_token_bytes;
      if (may_fit) ids = model.tokenizer->encode(text, {.add_special_tokens = false});
      if (!ids.ok()) return api_error(ids.status());
      if (!may_fit || ids->size() > kMaxBadWordTokens)
        return ApiError{400,
                        fmt::format("'bad_words': a word has more than the {} tokens that are "
                                    "allowed",
                                    kMaxBadWordTokens),
                        "bad_words", ""};
      if (!ids->empty()) sampling.bad_word_ids.push_back(*std::move(ids));
    }
  }
  return std::nullopt;
}

}  // namespace

std::variant<LanguageModelPtr, ApiError> accept_request(const OpenAiContext& context,
                                                        const Request& http,
                                                        CommonOptions& request) {
  if (auto error = refuse_unknown(context, request)) return *std::move(error);
  take_request_id(http, request);
  if (context.options.fastapi_errors && request.model.empty())
    return ApiError{400, "'model': required", "model", "missing_required_parameter"};
  auto model = find_model(context.models, request.model);
  const auto* const refused = std::get_if<ApiError>(&model);
  if (refused && refused->status == 404 && context.options.any_model_name)
    model = find_model(context.models, "");
  const auto* const found = std::get_if<LanguageModelPtr>(&model);
  if (!found) return model;
  use_defaults((*found)->defaults, request.sampling);
  if (const auto* adapter = (*found)->adapter(request.model))
    use_adapter(*adapter, request.sampling);
  if (auto error = find_bad_word_ids(**found, request.sampling)) return *std::move(error);
  return model;
}

std::optional<ApiError> refuse_text(const LanguageModel& model) {
  if (!model.speech.ok()) return std::nullopt;
  return ApiError{400,
                  fmt::format("model '{}' takes recordings, not text: POST "
                              "/v1/audio/transcriptions or /v1/audio/translations",
                              model.id),
                  "model", "unsupported_parameter"};
}

Envelope envelope_of(std::string_view id_prefix, const LanguageModel& model,
                     const CommonOptions& request) {
  const backend::LoraModule* const adapter = model.adapter(request.model);
  return {answer_id(id_prefix, request), adapter ? adapter->name : model.id};
}

json::object Envelope::make(std::string_view object) const {
  return {{"id", id}, {"object", object}, {"created", created}, {"model", model}};
}

ChunkEvents::ChunkEvents(const Envelope& envelope, std::string_view object) : start_("data: ") {
  append_json(start_, envelope.make(object));
  start_.pop_back();
  start_ += ",\"choices\":[";
}

std::string ChunkEvents::event(std::string_view choice, const json::object& more) const {
  std::string out;
  out.reserve(start_.size() + choice.size() + 64);
  out.append(start_).append(choice).append("]");
  for (const auto& member : more) {
    out += ',';
    append_json_string(out, std::string_view(member.key()));
    out += ':';
    append_json(out, member.value());
  }
  out += "}\n\n";
  return out;
}

ChoiceList::ChoiceList(CountedText& body, const json::object& head) : body_(body) {
  append_json(body_.text, head);
  body_.text.pop_back();
  body_.text += ",\"choices\":[";
  body_.count();
}

void ChoiceList::add(const json::object& choice) {
  if (num_choices_++ > 0) body_.text += ',';
  append_json(body_.text, choice);
  body_.count();
}

void ChoiceList::finish(const json::object& more) {
  body_.text += ']';
  for (const auto& member : more) {
    body_.text += ',';
    append_json_string(body_.text, std::string_view(member.key()));
    body_.text += ':';
    append_json(body_.text, member.value());
  }
  body_.text += '}';
  body_.count();
}

std::string error_event(const ApiError& error) {
  return fmt::format("data: {}\n\n{}", openai_error_body(error), kSseDone);
}

void begin_events(const ExchangePtr& exchange, Headers more) {
  Response head{200,
                "text/event-stream; charset=utf-8",
                {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                ""};
  for (Header& header : more) head.headers.push_back(std::move(header));
  exchange->begin_stream(std::move(head), error_event({503, "Server exiting", "", ""}));
}

void send_failure(const ExchangePtr& exchange, bool begun, const ApiError& error) {
  if (!begun) {
    exchange->send(openai_error(error));
    return;
  }
  exchange->write(error_event(error));
  exchange->end();
}

void start_in_turn(const OpenAiContext& context, const ExchangePtr& exchange,
                   const LanguageModel& model, int64_t num_prompt_tokens,
                   std::function<void()> start) {
  // More than it runs at once, so that its queue is never empty.
  const int64_t limit = model.max_num_sequences + model.max_num_sequences / 4;
  const auto queue = context.queues.of(model.engine_name);
  if (!queue->enter(exchange, static_cast<size_t>(limit), num_prompt_tokens, std::move(start)))
    exchange->send(openai_error({503, "too many requests wait for the model", "", ""}));
}

std::variant<LanguageModelPtr, ApiError> find_model(LanguageModels& models,
                                                    std::string_view requested) {
  auto model = models.get(requested);
  if (model.ok()) return *std::move(model);
  if (model.status().code() != absl::StatusCode::kNotFound) return api_error(model.status());
  return ApiError{404, std::string(message(model.status())), "model", "model_not_found"};
}

Status check(const OpenAiOptions& options) {
  for (const std::string& domain : options.media_domains)
    RETURN_IF_ERROR(annotate(check_media_domain(domain), "allow media domain"));
  if (options.generation_config != "auto" && options.generation_config != "none")
    return invalid_argument("generation config: '{}' is none of auto, none",
                            options.generation_config);
  if (options.pooling != "auto" && options.pooling != "last" && options.pooling != "mean")
    return invalid_argument("pooling: '{}' is none of auto, last, mean", options.pooling);
  const auto allowed = [](std::string_view option, std::string_view value, const auto& formats) {
    std::vector<std::string_view> names = {"auto", "none"};
    for (const auto& format : formats) names.push_back(format.name);
    if (std::ranges::find(names, value) != names.end()) return ok();
    return invalid_argument("{}: '{}' is none of {}", option, value, fmt::join(names, ", "));
  };
  RETURN_IF_ERROR(allowed("tool call parser", options.tool_parser, tool_formats()));
  return allowed("reasoning parser", options.reasoning_parser, reasoning_formats());
}

void add_openai_routes(Router& router, TRITONSERVER_Server* server, OpenAiOptions options,
                       std::shared_ptr<Tracer> tracer, Workers& workers,
                       std::shared_ptr<ByteBudget> budget) {
  const OpenAiContextPtr context(
      new OpenAiContext{{server, options},
                        options,
                        std::move(tracer),
                        workers,
                        std::move(budget),
                        std::make_shared<StoredResponses>(options.response_store_bytes)});
  const int64_t created = std::time(nullptr);
  router.add("GET", "/v1/models", kShows, [context, created](const ExchangePtr& x) {
    context->workers.run(
        x, context->models.is_loaded(),
        [context, created] { return list_models(context->models, created); },
        [x](Response response) { x->send(std::move(response)); });
  });
  router.add("GET", "/v1/models/{id*}", kShows, [context, created](const ExchangePtr& x) {
    context->workers.run(
        x, context->models.is_loaded(),
        [context, created, x] { return show_model(context->models, created, x->request()); },
        [x](Response response) { x->send(std::move(response)); });
  });
  add_adapter_routes(router, context);
  add_tokenizer_routes(router, context);
  add_score_routes(router, context);
  add_audio_routes(router, context);
  add_responses_routes(router, context);
  add_translated_routes(router, context, options.ollama);
  add_root_route(router, options);
  router.add("GET", "/health_generate", kComputes,
             [context](const ExchangePtr& x) { handle_health_generate(context, x); });
  router.add("POST", "/v1/completions", kComputes,
             [context](const ExchangePtr& x) { handle_completion(context, x); });
  router.add("POST", "/v1/chat/completions", kComputes,
             [context](const ExchangePtr& x) { handle_chat(context, x); });
  router.add("POST", "/v1/embeddings", kComputes,
             [context](const ExchangePtr& x) { handle_embedding(context, x); });
}

}  // namespace nereid::front
