// POST /tokenize and /detokenize, GET /tokenizer_info, in the shapes of vLLM and of llama-server.
#include <algorithm>
#include <limits>
#include <utility>

#include "front/http/json_text.h"
#include "front/openai/generation.h"
#include "front/openai/handlers.h"
#include "front/openai/pictures/read_pictures.h"
#include "front/openai/requests/chat_prompt.h"
#include "front/openai/requests/request_fields.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxIds = 1 << 20;  // of a text to be made

// The body of a reply, written as text directly: it may be many times as large as its request.
using Answer = std::variant<CountedText, ApiError>;

// [write(id), ...]
template <class Write>
void append_list(CountedText& body, const std::vector<int32_t>& ids, Write write) {
  body.text += '[';
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) body.text += ',';
    write(ids[i]);
    body.count();
  }
  body.text += ']';
}

// The input: "prompt" (vLLM), "content" (llama-server) or "messages".
struct TokenizeRequest {
  std::string model;
  std::optional<std::string> text;
  json::object context;  // of a chat
  std::vector<PictureSource> pictures;
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
    out.pictures = std::move(parsed.pictures);
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

Answer tokenize_answer(const OpenAiContext& context, const LanguageModel& model,
                       const TokenizeRequest& request, const std::vector<int32_t>& ids) {
  CountedText body(context.budget);
  std::string& out = body.text;
  const auto write_id = [&](int32_t id) { fmt::format_to(std::back_inserter(out), "{}", id); };
  const auto write_text = [&](int32_t id) {
    append_json_string(out,
                       model.tokenizer->decode(std::span(&id, 1), /*skip_special_tokens=*/false));
  };
  const auto write_piece = [&](int32_t id) {
    out += "{\"id\":";
    write_id(id);
    out += ",\"piece\":";
    write_text(id);
    out += '}';
  };
  if (request.is_llama) {
    out += "{\"tokens\":";
    if (request.with_texts)
      append_list(body, ids, write_piece);
    else
      append_list(body, ids, write_id);
    out += '}';
    return body;
  }
  out +=
      fmt::format("{{\"count\":{},\"max_model_len\":{},\"tokens\":", ids.size(), model.max_seq_len);
  append_list(body, ids, write_id);
  out += ",\"token_strs\":";
  if (request.with_texts)
    append_list(body, ids, write_text);
  else
    out += "null";
  out += '}';
  return body;
}

// All tokens, also of a text that is too long for the model.
std::variant<std::vector<int32_t>, ApiError> all_ids(const OpenAiContext& context,
                                                     const LanguageModel& model, std::string text,
                                                     bool add_special_tokens,
                                                     const PromptWork& work) {
  SamplingOptions sampling;
  sampling.max_prompt_tokens = std::numeric_limits<int64_t>::max();
  return prompt_ids(model, std::move(text), add_special_tokens, sampling, "prompt", context.budget,
                    work.is_unwanted);
}

// all_ids() of a conversation with pictures.
std::variant<std::vector<int32_t>, ApiError> chat_ids(const OpenAiContext& context,
                                                      const LanguageModel& model,
                                                      const json::object& conversation,
                                                      const std::vector<PictureSource>& sources,
                                                      std::string text, bool add_special_tokens,
                                                      const PromptWork& work) {
  auto ids = all_ids(context, model, std::move(text), add_special_tokens, work);
  if (!model.pictures.ok() || std::holds_alternative<ApiError>(ids)) return ids;
  auto pictures = read_pictures(context, model, sources, work);
  if (auto* error = std::get_if<ApiError>(&pictures)) return std::move(*error);
  PromptPictures shown;
  for (const size_t index : pictures_in(conversation))
    shown.pictures.push_back(std::get<0>(pictures)[index]);
  auto error = place_in_prompt(context, model, "messages", std::get<0>(ids), shown);
  if (error) return *std::move(error);
  return ids;
}

Answer tokenize(const OpenAiContext& context, const Request& http, const PromptWork& work) {
  auto read = read_tokenize(http, memory_for_json(context.budget, http.body.size()));
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  TokenizeRequest& request = std::get<TokenizeRequest>(read);
  auto found = find_model(context.models, request.model);
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  const LanguageModel& model = *std::get<LanguageModelPtr>(found);
  if (auto error = check_takes_pictures(model, request.pictures)) return *std::move(error);
  const bool is_chat = !request.text;
  if (is_chat) {
    auto text =
        chat_prompt(model, request.context, request.continues_last, request.chat_template, work);
    if (auto* error = std::get_if<ApiError>(&text)) return std::move(*error);
    request.text = std::get<std::string>(std::move(text));
  }
  // A token mostly has at least one byte.
  CountedText held(context.budget);
  held.expect(request.text->size());
  auto encoded =
      is_chat ? chat_ids(context, model, request.context, request.pictures,
                         *std::move(request.text), request.add_special_tokens, work)
              : all_ids(context, model, *std::move(request.text), request.add_special_tokens, work);
  if (auto* error = std::get_if<ApiError>(&encoded)) return std::move(*error);
  const auto& ids = std::get<std::vector<int32_t>>(encoded);
  held.expect(ids.size() * sizeof(int32_t));
  return tokenize_answer(context, model, request, ids);
}

// The ids of "tokens", and their model. The body's tree is freed on return.
using IdsOfModel = std::pair<LanguageModelPtr, std::vector<int32_t>>;
std::variant<IdsOfModel, ApiError> read_detokenize(const OpenAiContext& context,
                                                   const Request& http, CountedText& held) {
  const auto root = parse_body(http.body, memory_for_json(context.budget, http.body.size()));
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  Fields fields(std::get<json::object>(root));
  auto found = find_model(context.models, fields.text("model").value_or(""));
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  LanguageModelPtr model = std::get<LanguageModelPtr>(std::move(found));
  const json::array* const list = fields.array("tokens");
  if (!list) fields.fail("tokens", "required", "missing_required_parameter");
  if (list && list->size() > kMaxIds)
    fields.fail("tokens", fmt::format("{} ids given, at most {} allowed", list->size(), kMaxIds));
  if (fields.error()) return *fields.error();
  held.expect(list->size() * sizeof(int32_t));
  std::vector<int32_t> ids;
  ids.reserve(list->size());
  for (const json::value& item : *list) {
    const int64_t id = item.is_int64() ? item.get_int64() : -1;
    if (id < 0 || id >= model->tokenizer->vocab_size())
      return ApiError{
          400,
          fmt::format("'tokens': {} is not in [0, {})", json::serialize(item).substr(0, 40),
                      model->tokenizer->vocab_size()),
          "tokens"};
    ids.push_back(static_cast<int32_t>(id));
  }
  return IdsOfModel(std::move(model), std::move(ids));
}

Answer detokenize(const OpenAiContext& context, const Request& http, const PromptWork&) {
  CountedText body(context.budget);
  auto read = read_detokenize(context, http, body);
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  auto& [model, ids] = std::get<IdsOfModel>(read);
  const size_t id_bytes = ids.size() * sizeof(int32_t);
  // The text, and the reply that has it twice: refused before any of it is made.
  body.expect(id_bytes + 3 * model->tokenizer->text_bytes(ids));
  const std::string text = model->tokenizer->decode(ids, /*skip_special_tokens=*/false);
  std::vector<int32_t>().swap(ids);
  constexpr std::string_view kPrompt = "{\"prompt\":", kContent = ",\"content\":";
  const size_t size = kPrompt.size() + kContent.size() + 2 * json_string_size(text) + 1;
  body.expect(text.capacity() + size);
  body.text.reserve(size);
  body.text += kPrompt;
  append_json_string(body.text, text);
  body.text += kContent;
  append_json_string(body.text, text);
  body.text += '}';
  return body;
}

Answer tokenizer_info(const OpenAiContext& context, const Request&, const PromptWork&) {
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
  CountedText body(context.budget);
  append_json(body.text, out);
  body.count();
  return body;
}

}  // namespace

std::variant<int64_t, ApiError> count_chat_tokens(const OpenAiContext& context,
                                                  std::string_view body, const PromptWork& work) {
  auto read = parse_chat_request(body, memory_for_json(context.budget, body.size()));
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  const ChatRequest& request = std::get<ChatRequest>(read);
  auto found = find_model(context.models, request.common.model);
  if (auto* error = std::get_if<ApiError>(&found)) return std::move(*error);
  const LanguageModel& model = *std::get<LanguageModelPtr>(found);
  if (auto error = check_takes_pictures(model, request.pictures)) return *std::move(error);
  auto text =
      chat_prompt(model, request.context, request.continues_last, request.chat_template, work);
  if (auto* error = std::get_if<ApiError>(&text)) return std::move(*error);
  // A token mostly has at least one byte.
  CountedText held(context.budget);
  held.expect(std::get<std::string>(text).size());
  const auto ids =
      chat_ids(context, model, request.context, request.pictures,
               std::get<std::string>(std::move(text)), request.add_special_tokens, work);
  if (const auto* error = std::get_if<ApiError>(&ids)) return *error;
  return std::ssize(std::get<std::vector<int32_t>>(ids));
}

void add_tokenizer_routes(Router& router, const OpenAiContextPtr& context) {
  const auto add = [&](const char* method, const char* path, const RouteTraits& traits,
                       Answer (*make)(const OpenAiContext&, const Request&, const PromptWork&)) {
    router.add(method, path, traits, [context, make](const ExchangePtr& x) {
      send_made(
          *context, x, lane_of(*context, x),
          [context, x, make](Lane lane) {
            return make(*context, x->request(), {lane, [x] { return x->disconnected(); }});
          },
          [] { return Headers(); });
    });
  };
  add("POST", "/tokenize", kWorks, tokenize);
  add("POST", "/_internal/tokenize", kWorks, tokenize);
  add("POST", "/detokenize", kWorks, detokenize);
  add("GET", "/tokenizer_info", kShows, tokenizer_info);
}

}  // namespace nereid::front
