// Routes of other chat APIs, answered by the chat handler: Anthropic's and, by option, Ollama's.
#include "front/http/json_text.h"
#include "front/openai/handlers.h"
#include "front/openai/request_fields.h"
#include "front/translate/anthropic.h"
#include "front/translate/ollama.h"

namespace nereid::front {
namespace {

using ErrorBody = std::string (*)(int status, std::string_view message);

Response json_reply(int status, std::string body) {
  return {status, "application/json", {}, std::move(body)};
}
std::string ollama_error_body(int, std::string_view message) { return ollama_error(message); }

std::variant<Translated, ApiError> read(const OpenAiContext& context, const Request& http,
                                        Translator translate) {
  const auto root = parse_body(http.body, memory_for_json(context.budget, http.body.size()));
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  auto translated = translate(std::get<json::object>(root));
  if (const auto* fault = std::get_if<TranslationFault>(&translated))
    return ApiError{400, fault->message};
  return std::get<Translated>(std::move(translated));
}

void add_translated(Router& router, const OpenAiContextPtr& context, const char* path,
                    Translator translate, ErrorBody error_body) {
  router.add("POST", path, [=](const ExchangePtr& x) {
    const auto work = [context, x, translate] {
      return std::make_shared<std::variant<Translated, ApiError>>(
          read(*context, x->request(), translate));
    };
    const auto then = [context, x, error_body](const auto& result) {
      if (const auto* error = std::get_if<ApiError>(&*result))
        x->send(json_reply(error->status, error_body(error->status, error->message)));
      else
        handle_chat(context, translated_exchange(x, std::get<Translated>(std::move(*result))));
    };
    context->workers.run(x, x->request().body.size() <= kQuickPromptBytes, work, then);
  });
}

// A GET whose answer is made of the loaded model.
void add_model_answer(Router& router, const OpenAiContextPtr& context, const char* method,
                      const char* path, json::object (*make)(const LanguageModel&)) {
  router.add(method, path, [=](const ExchangePtr& x) {
    context->workers.run(
        x, context->models.is_loaded(), [context] { return context->models.get(); },
        [x, make](const StatusOr<LanguageModelPtr>& model) {
          if (!model.ok()) {
            const ApiError error = api_error(model.status());
            return x->send(json_reply(error.status, ollama_error(error.message)));
          }
          std::string body;
          append_json(body, make(**model));
          x->send(json_reply(200, std::move(body)));
        });
  });
}

}  // namespace

void add_translated_routes(Router& router, const OpenAiContextPtr& context, bool with_ollama) {
  add_translated(router, context, "/v1/messages", translate_messages, messages_error);
  if (!with_ollama) return;
  add_translated(router, context, "/api/chat", translate_ollama_chat, ollama_error_body);
  add_translated(router, context, "/api/generate", translate_ollama_generate, ollama_error_body);
  add_model_answer(router, context, "GET", "/api/tags",
                   [](const LanguageModel& model) { return ollama_tags(model.id); });
  add_model_answer(router, context, "POST", "/api/show",
                   [](const LanguageModel& model) { return ollama_show(model.max_seq_len); });
}

}  // namespace nereid::front
