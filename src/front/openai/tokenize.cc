// POST /tokenize and /detokenize, GET /tokenizer_info, in the shapes of vLLM and of llama-server.
#include <algorithm>
#include <limits>
#include <utility>

#include "front/http/json_text.h"
#include "front/openai/chat_prompt.h"
#include "front/openai/generation.h"
#include "front/openai/handlers.h"
#include "front/openai/request_fields.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxIds = 1 << 20;  // of a text to be made

Response json_answer(const json::value& value) {
  std::string body;
  append_json(body, value);
  return {200, "application/json", {}, std::move(body)};
}

using Answer = std::variant<json::object, ApiError>;

json::array token_texts(const LanguageModel& model, const std::vector<int32_t>& ids) {
  json::array out;
  for (const int32_t id : ids)
    out.emplace_back(model.tokenizer->decode(std::span(&id, 1), /*skip_special_tokens=*/false));
  return out;
}

// What is to be tokenised: "prompt" (vLLM), "content" (llama-server) or "messages".
struct TokenizeRequest {
  std::string model;
  std::optional<std::string> text;
  json::object context;  // of a chat
  std::optional<std::string> chat_template;
  bool continues_last = false, add_special_tokens = true;
  bool with_texts = false;
  bool is_llama = false;  // the answer is [tokens] alone
};

std::variant<TokenizeRequest, ApiError> read_tokenize(const Request& http,
                                                      json::storage_ptr memory) {
  const auto root = parse_body(http.body, memory);
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  const json::object& object = std::get<json::object>(root);
  TokenizeRequest out;
  if (object.contains("messages")) {
    auto chat = parse_chat_request(http.body, std::move(memory));
    if (auto* error = std::get_if<ApiError>(&chat)) return std::move(*error);
    auto& parsed = std::get<ChatRequest>(chat);
    out.model = parsed.common.model;
    out.context = std::move(parsed.context);
    out.continues_last = parsed.continues_last;
    out.chat_template = std::move(parsed.chat_template);
    out.add_special_tokens = parsed.add_special_tokens;
  }
  Fields fields(object);
  if (!object.contains("messages")) {
    out.model = fields.text("model").value_or("");
    out.is_llama = object.contains("content");
    out.text = fields.text(out.is_llama ? "content" : "prompt");
    if (!out.text) fields.fail("prompt", "required", "missing_required_parameter");
    out.add_special_tokens = fields.flag("add_special_tokens")
                                 .value_or(fields.flag("add_special").value_or(!out.is_llama));
  }
  out.with_texts =
      fields.flag("return_token_strs").value_or(fields.flag("with_pieces").value_or(false));
  if (fields.error()) return *fields.error();
  return out;
}

Answer tokenize(const OpenAiContext& context, const Request& http) {
  auto read = read_tokenize(http, memory_for_json(context.budget, http.body.size()));
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  TokenizeRequest& request = std::get<TokenizeRequest>(read);
  auto found = find_model(context.models, request.model);
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  const LanguageModel& model = *std::get<LanguageModelPtr>(found);
  if (!request.text) {
    auto text = chat_prompt(model, request.context, request.continues_last, request.chat_template);
    if (auto* error = std::get_if<ApiError>(&text)) return std::move(*error);
    request.text = std::get<std::string>(std::move(text));
  }
  // All of them, also of a text that is too long for the model.
  SamplingOptions sampling;
  sampling.max_prompt_tokens = std::numeric_limits<int64_t>::max();
  auto encoded =
      prompt_ids(model, *std::move(request.text), request.add_special_tokens, sampling, "prompt");
  if (auto* error = std::get_if<ApiError>(&encoded)) return std::move(*error);
  const auto& ids = std::get<std::vector<int32_t>>(encoded);
  json::array tokens(ids.begin(), ids.end());
  if (request.is_llama) {
    if (!request.with_texts) return json::object{{"tokens", std::move(tokens)}};
    json::array pieces = token_texts(model, ids);
    for (size_t i = 0; i < tokens.size(); ++i)
      pieces[i] = json::object{{"id", tokens[i]}, {"piece", std::move(pieces[i])}};
    return json::object{{"tokens", std::move(pieces)}};
  }
  json::value texts = nullptr;
  if (request.with_texts) texts = token_texts(model, ids);
  return json::object{{"count", ids.size()},
                      {"max_model_len", model.max_seq_len},
                      {"tokens", std::move(tokens)},
                      {"token_strs", std::move(texts)}};
}

Answer detokenize(const OpenAiContext& context, const Request& http) {
  const auto root = parse_body(http.body, memory_for_json(context.budget, http.body.size()));
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  Fields fields(std::get<json::object>(root));
  auto found = find_model(context.models, fields.text("model").value_or(""));
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  const LanguageModel& model = *std::get<LanguageModelPtr>(found);
  const json::array* const list = fields.array("tokens");
  if (!list) fields.fail("tokens", "required", "missing_required_parameter");
  if (list && list->size() > kMaxIds)
    fields.fail("tokens", fmt::format("{} ids given, at most {} allowed", list->size(), kMaxIds));
  if (fields.error()) return *fields.error();
  std::vector<int32_t> ids;
  for (const json::value& item : *list) {
    const int64_t id = item.is_int64() ? item.get_int64() : -1;
    if (id < 0 || id >= model.tokenizer->vocab_size())
      return ApiError{
          400,
          fmt::format("'tokens': {} is not in [0, {})", json::serialize(item).substr(0, 40),
                      model.tokenizer->vocab_size()),
          "tokens"};
    ids.push_back(static_cast<int32_t>(id));
  }
  const std::string text = model.tokenizer->decode(ids, /*skip_special_tokens=*/false);
  return json::object{{"prompt", text}, {"content", text}};
}

Answer tokenizer_info(const OpenAiContext& context, const Request&) {
  auto found = find_model(context.models, "");
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  const LanguageModel& model = *std::get<LanguageModelPtr>(found);
  json::object out = {{"vocab_size", model.tokenizer->vocab_size()},
                      {"model_max_length", model.max_seq_len},
                      {"eos_token_ids", json::array(model.eos_ids.begin(), model.eos_ids.end())}};
  out["chat_template"] = nullptr;
  if (model.chat_template) {
    out["chat_template"] = model.chat_template->source();
    for (const auto& [name, text] : model.chat_template->special_tokens()) out[name] = text;
  }
  return out;
}

}  // namespace

void add_tokenizer_routes(Router& router, const OpenAiContextPtr& context) {
  const auto add = [&](const char* method, const char* path,
                       Answer (*make)(const OpenAiContext&, const Request&)) {
    router.add(method, path, [context, make](const ExchangePtr& x) {
      const bool is_quick =
          context->models.is_loaded() && x->request().body.size() <= kQuickPromptBytes;
      context->workers.run(
          x, is_quick, [context, x, make] { return make(*context, x->request()); },
          [x](const Answer& answer) {
            if (const auto* error = std::get_if<ApiError>(&answer))
              x->send(openai_error(*error));
            else
              x->send(json_answer(std::get<json::object>(answer)));
          });
    });
  };
  add("POST", "/tokenize", tokenize);
  add("POST", "/_internal/tokenize", tokenize);
  add("POST", "/detokenize", detokenize);
  add("GET", "/tokenizer_info", tokenizer_info);
}

}  // namespace nereid::front
