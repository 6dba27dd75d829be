// Routes of other APIs, answered by OpenAI's handlers: Anthropic's and, by option, Ollama's.
#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

#include "front/http/json_text.h"
#include "front/openai/handlers.h"
#include "front/openai/requests/chat_prompt.h"
#include "front/openai/requests/request_fields.h"
#include "front/translate/anthropic.h"
#include "front/translate/ollama.h"

namespace nereid::front {
namespace {

using ErrorBody = std::string (*)(int status, std::string_view message);

RouteTraits translated_traits(Cost cost, ErrorShape errors) {
  return {Api::kInference, Access::kCallers, cost, errors};
}

std::string ollama_error_body(int, std::string_view message) { return ollama_error(message); }

using ReadRequest = std::variant<Translated, ApiError>;

ReadRequest read(const OpenAiContext& context, const Request& http, Translator translate) {
  auto root =
      parse_body(http.body, memory_for_json(context.budget, http.body.size()), kExactOfChats);
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  auto& object = std::get<json::object>(root);
  const bool is_anthropic =
      translate == translate_messages || translate == translate_messages_to_count;
  const std::string* const betas = find_header(http.headers, "anthropic-beta");
  if (is_anthropic && betas) object.emplace("anthropic_beta", *betas);
  auto translated = translate(object);
  if (const auto* fault = std::get_if<TranslationFault>(&translated))
    return ApiError{400, fault->message};
  auto& out = std::get<Translated>(translated);
  CommonOptions common;
  common.unknown = std::move(out.unknown);
  if (auto error = refuse_unknown(context, common)) return *std::move(error);
  out.headers = warnings(common);
  if (out.to == Translates::kNothing) {
    auto model = find_model(context.models, out.model);
    if (auto* error = std::get_if<ApiError>(&model)) return std::move(*error);
  }
  return std::move(out);
}

void start(const OpenAiContextPtr& context, const ExchangePtr& x, Translated request,
           EmbeddingForm form) {
  const ContextRules rules = request.rules;
  switch (request.to) {
    case Translates::kChat:
      return handle_chat(context, translated_exchange(x, std::move(request)), rules);
    case Translates::kCompletion:
      return handle_completion(context, translated_exchange(x, std::move(request)), rules);
    case Translates::kEmbedding:
      return handle_embedding(context, translated_exchange(x, std::move(request)), form);
    case Translates::kNothing:
      return x->send(
          {200, "application/json", std::move(request.headers), std::move(request.body)});
  }
}

bool is_quick(const OpenAiContext& context, const ExchangePtr& x) {
  return lane_of(context, x) == Lane::kLoop;
}

// `form`: of answers with embeddings.
void add_translated(Router& router, const OpenAiContextPtr& context, const char* path,
                    ErrorShape errors, Translator translate, ErrorBody error_body,
                    EmbeddingForm form = EmbeddingForm::kOpenAi) {
  router.add("POST", path, translated_traits(Cost::kTokens, errors), [=](const ExchangePtr& x) {
    const auto work = [context, x, translate] {
      return std::make_shared<ReadRequest>(read(*context, x->request(), translate));
    };
    const auto then = [context, x, error_body, form](const auto& result) {
      if (const auto* error = std::get_if<ApiError>(&*result))
        x->send(json_response(error_body(error->status, said(*error)), error->status));
      else
        start(context, x, std::get<Translated>(std::move(*result)), form);
    };
    context->workers.run(x, is_quick(*context, x), work, then);
  });
}

// The number of tokens of a request's prompt.
std::variant<Response, ApiError> count_messages(const OpenAiContext& context, const ExchangePtr& x,
                                                Lane lane) {
  ReadRequest request = read(context, x->request(), translate_messages_to_count);
  if (auto* error = std::get_if<ApiError>(&request)) return std::move(*error);
  auto& read = std::get<Translated>(request);
  const auto count =
      count_chat_tokens(context, read.body, {lane, [x] { return x->disconnected(); }});
  if (const auto* error = std::get_if<ApiError>(&count)) return *error;
  return Response{200, "application/json", std::move(read.headers),
                  messages_token_count(std::get<int64_t>(count))};
}

void add_count(Router& router, const OpenAiContextPtr& context) {
  const RouteTraits traits = translated_traits(Cost::kRequest, ErrorShape::kAnthropic);
  router.add("POST", "/v1/messages/count_tokens", traits, [context](const ExchangePtr& x) {
    context->workers.run(
        x, lane_of(*context, x),
        [context, x](Lane lane) { return count_messages(*context, x, lane); },
        [x](std::variant<Response, ApiError> result) {
          if (const auto* error = std::get_if<ApiError>(&result))
            x->send(json_response(messages_error(error->status, said(*error)), error->status));
          else
            x->send(std::get<Response>(std::move(result)));
        });
  });
}

OllamaModel ollama_model(const LanguageModel& model, std::time_t since) {
  const ModelFacts& facts = model.facts;
  OllamaModel out{.name = model.id,
                  .format = facts.format,
                  .architecture = facts.architecture.empty() ? "nereid" : facts.architecture,
                  .quantization = facts.quantization,
                  .context_length = model.max_seq_len,
                  .embedding_length = std::max(facts.hidden_size, model.embedding_size),
                  .vocabulary = model.tokenizer->vocab_size(),
                  .num_layers = facts.num_layers,
                  .num_heads = facts.num_heads,
                  .num_kv_heads = facts.num_kv_heads,
                  .num_parameters = facts.num_parameters,
                  .num_bytes = facts.num_bytes,
                  .since = since};
  if (model.chat_template) out.chat_template = model.chat_template->source();
  out.capabilities = {"completion"};
  if (model.tool_format) out.capabilities.emplace_back("tools");
  if (model.infill) out.capabilities.emplace_back("insert");
  if (model.reasoning_format) out.capabilities.emplace_back("thinking");
  if (model.pictures.ok()) out.capabilities.emplace_back("vision");
  if (model.embedding_size > 0) out.capabilities.emplace_back("embedding");
  return out;
}

// Adds a model, and its adapters as models.
void add_models(const LanguageModel& model, std::time_t since, std::vector<OllamaModel>& out) {
  out.push_back(ollama_model(model, since));
  const OllamaModel base = out.back();
  for (const backend::LoraModule& adapter : model.adapters) {
    out.push_back(base);
    out.back().name = adapter.name;
  }
}

Response object_or_error(const std::variant<json::object, ApiError>& result) {
  if (const auto* error = std::get_if<ApiError>(&result))
    return json_response(ollama_error(said(*error)), error->status);
  return json_response(json_text(std::get<json::object>(result)));
}

void add_list(Router& router, const OpenAiContextPtr& context, const char* path, std::time_t since,
              json::object (*make)(const std::vector<OllamaModel>&)) {
  const auto list = [context, since, make]() -> std::variant<json::object, ApiError> {
    const auto all = context->models.all();
    if (!all.ok()) return api_error(all.status());
    std::vector<OllamaModel> models;
    for (const LanguageModelPtr& model : *all) add_models(*model, since, models);
    return make(models);
  };
  router.add("GET", path, translated_traits(Cost::kNothing, ErrorShape::kOllama),
             [context, list](const ExchangePtr& x) {
               context->workers.run(x, context->models.is_loaded(), list,
                                    [x](const auto& result) { x->send(object_or_error(result)); });
             });
}

std::variant<json::object, ApiError> show(const OpenAiContext& context, const Request& http,
                                          std::time_t since) {
  const auto root = parse_body(http.body, memory_for_json(context.budget, http.body.size()));
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  if (auto fault = check_ollama_show(std::get<json::object>(root)))
    return ApiError{400, std::move(fault->message)};
  const std::string name = ollama_model_name(std::get<json::object>(root));
  auto found = find_model(context.models, name);
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  OllamaModel model = ollama_model(*std::get<LanguageModelPtr>(found), since);
  if (!name.empty()) model.name = name;
  return ollama_show(model);
}

void add_ollama(Router& router, const OpenAiContextPtr& context) {
  constexpr ErrorShape kShape = ErrorShape::kOllama;
  const auto add = [&](const char* path, Translator translate,
                       EmbeddingForm form = EmbeddingForm::kOpenAi) {
    add_translated(router, context, path, kShape, translate, ollama_error_body, form);
  };
  add("/api/chat", translate_ollama_chat);
  add("/api/generate", translate_ollama_generate);
  add("/api/embed", translate_ollama_embed, EmbeddingForm::kOllama);
  add("/api/embeddings", translate_ollama_embeddings, EmbeddingForm::kOllamaOne);
  const std::time_t since = std::time(nullptr);
  add_list(router, context, "/api/tags", since, ollama_tags);
  add_list(router, context, "/api/ps", since, ollama_running);
  router.add("POST", "/api/show", translated_traits(Cost::kRequest, kShape),
             [context, since](const ExchangePtr& x) {
               context->workers.run(
                   x, is_quick(*context, x),
                   [context, x, since] { return show(*context, x->request(), since); },
                   [x](const auto& result) { x->send(object_or_error(result)); });
             });
  router.add("GET", "/api/version", translated_traits(Cost::kNothing, kShape),
             [](const ExchangePtr& x) { x->send(object_or_error(ollama_version())); });
}

}  // namespace

void add_translated_routes(Router& router, const OpenAiContextPtr& context, bool with_ollama) {
  add_translated(router, context, "/v1/messages", ErrorShape::kAnthropic, translate_messages,
                 messages_error);
  add_count(router, context);
  if (with_ollama) add_ollama(router, context);
}

}  // namespace nereid::front
