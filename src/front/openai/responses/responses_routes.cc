// /v1/responses: created by the chat handler; stored ones are read and deleted.
#include <algorithm>
#include <charconv>
#include <utility>

#include "front/http/json_text.h"
#include "front/openai/handlers.h"
#include "front/openai/requests/chat_prompt.h"
#include "front/openai/requests/request_fields.h"
#include "front/openai/responses/responses.h"
#include "front/openai/responses/responses_request.h"
#include "front/protection/api_keys.h"

namespace nereid::front {
namespace {

OwnerResponses own_responses(const OpenAiContext& context, const Request& http) {
  const std::string_view key = shown_key(http);
  return {context.responses, key.empty() ? "" : ApiKeys::fingerprint(key)};
}

using ReadResult = std::variant<Translated, ApiError>;

ReadResult read_create(const OpenAiContext& context, const Request& http) {
  const auto root =
      parse_body(http.body, memory_for_json(context.budget, http.body.size()), kExactOfChats);
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  OwnerResponses kept = own_responses(context, http);
  std::string id_end = random_id("");
  auto request = read_responses_request(std::get<json::object>(root), kept, id_end);
  if (auto* error = std::get_if<ApiError>(&request)) return std::move(*error);
  auto& read = std::get<ResponsesRequest>(request);
  CommonOptions common;
  common.unknown = std::move(read.unknown);
  if (auto error = refuse_unknown(context, common)) return *std::move(error);
  Translated out;
  out.body = std::exchange(read.chat, {});
  out.rules.drops_messages = read.drops_messages;
  out.translation = responses_translation(std::move(read), std::move(kept), std::move(id_end));
  out.headers = warnings(common);
  return out;
}

void start_chat(const OpenAiContextPtr& context, const ExchangePtr& x, Translated request) {
  const ContextRules rules = request.rules;
  handle_chat(context, translated_exchange(x, std::move(request)), rules);
}

void create_response(const OpenAiContextPtr& context, const ExchangePtr& x) {
  const std::string& body = x->request().body;
  // Stored conversations can be long.
  const bool is_quick =
      body.size() <= kQuickPromptBytes && context->responses->bytes() <= kQuickPromptBytes;
  context->workers.run(
      x, is_quick,
      [context, x] { return std::make_shared<ReadResult>(read_create(*context, x->request())); },
      [context, x](const std::shared_ptr<ReadResult>& result) {
        if (const auto* error = std::get_if<ApiError>(&*result))
          x->send(openai_error(*error));
        else
          start_chat(context, x, std::get<Translated>(std::move(*result)));
      });
}

using Counted = std::variant<Response, ApiError>;

// The number of tokens of a request's prompt.
Counted count_input(const OpenAiContext& context, const ExchangePtr& x, Lane lane) {
  ReadResult request = read_create(context, x->request());
  if (auto* error = std::get_if<ApiError>(&request)) return std::move(*error);
  auto& read = std::get<Translated>(request);
  const auto count =
      count_chat_tokens(context, read.body, {lane, [x] { return x->disconnected(); }});
  if (const auto* error = std::get_if<ApiError>(&count)) return responses_error(*error);
  Response out = json_response(json_text(json::object{{"object", "response.input_tokens"},
                                                      {"input_tokens", std::get<int64_t>(count)}}));
  out.headers = std::move(read.headers);
  return out;
}

void count_response_input(const OpenAiContextPtr& context, const ExchangePtr& x) {
  context->workers.run(
      x, context->responses->bytes() <= kQuickPromptBytes ? lane_of(*context, x) : Lane::kWorker,
      [context, x](Lane lane) { return count_input(*context, x, lane); },
      [x](Counted result) {
        const auto* const error = std::get_if<ApiError>(&result);
        x->send(error ? openai_error(*error) : std::get<Response>(std::move(result)));
      });
}

ApiError not_found(std::string_view id) {
  return {404, fmt::format("no response '{}' is kept", id.substr(0, 100)), "response_id",
          "response_not_found"};
}

// The value of `name` in a query; "" without one.
std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equal = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equal) == name) return pair.substr(std::min(equal + 1, pair.size()));
  }
  return {};
}

std::variant<json::object, ApiError> list_items(const StoredResponse& response,
                                                std::string_view query) {
  constexpr int kDefault = 20, kMost = 100;
  int limit = kDefault;
  if (const std::string_view text = query_value(query, "limit"); !text.empty()) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
    if (error != std::errc() || end != text.data() + text.size() || limit < 1 || limit > kMost)
      return ApiError{
          400, fmt::format("'limit': '{}' is not in [1, {}]", text.substr(0, 40), kMost), "limit"};
  }
  const std::string_view order = query_value(query, "order");
  if (!order.empty() && order != "asc" && order != "desc")
    return ApiError{400, "'order': expected asc or desc", "order"};
  auto parsed = parse_json(response.items);
  json::array items = parsed.ok() && parsed->is_array() ? parsed->get_array() : json::array();
  if (order != "asc") std::reverse(items.begin(), items.end());
  const auto id_of = [](const json::value& item) { return text_member(item.as_object(), "id"); };
  size_t first = 0;
  if (const std::string_view after = query_value(query, "after"); !after.empty()) {
    while (first < items.size() && id_of(items[first]) != after) ++first;
    first = std::min(first + 1, items.size());
  }
  const size_t end = std::min(items.size(), first + static_cast<size_t>(limit));
  json::array data(items.begin() + static_cast<std::ptrdiff_t>(first),
                   items.begin() + static_cast<std::ptrdiff_t>(end));
  json::object out = {{"object", "list"}, {"first_id", nullptr}, {"last_id", nullptr}};
  if (!data.empty()) out["first_id"] = id_of(data.front()), out["last_id"] = id_of(data.back());
  out["has_more"] = end < items.size();
  out["data"] = std::move(data);
  return out;
}

using KeptAnswer = Response (*)(const OwnerResponses& kept, std::string_view id,
                                const StoredResponse& response, std::string_view query);

Response show_kept(const OwnerResponses&, std::string_view, const StoredResponse& response,
                   std::string_view query) {
  if (query_value(query, "stream") == "true")
    return openai_error({400, "'stream': a kept response is not streamed again", "stream",
                         "unsupported_parameter"});
  return json_response(response.object);
}

Response show_kept_items(const OwnerResponses&, std::string_view, const StoredResponse& response,
                         std::string_view query) {
  const auto list = list_items(response, query);
  if (const auto* error = std::get_if<ApiError>(&list)) return openai_error(*error);
  return json_response(json_text(std::get<json::object>(list)));
}

Response remove_kept(const OwnerResponses& kept, std::string_view id, const StoredResponse&,
                     std::string_view) {
  kept.store->erase(kept.owner, id);
  return json_response(
      json_text(json::object{{"id", id}, {"object", "response"}, {"deleted", true}}));
}

Response cancel_kept(const OwnerResponses&, std::string_view, const StoredResponse&,
                     std::string_view) {
  return openai_error({400,
                       "only responses in the background can be cancelled, and this server makes "
                       "none",
                       "response_id", "unsupported_parameter"});
}

// Adds a route for one stored response.
void add_kept(Router& router, const OpenAiContextPtr& context, const char* method, const char* path,
              const RouteTraits& traits, KeptAnswer answer) {
  const auto make = [context, answer](const Request& http) {
    const std::string id(http.param("id"));
    if (!context->responses->is_on())
      return openai_error({501, "this server keeps no responses: --response-store-bytes is 0", "",
                           "not_supported"});
    if (!id.starts_with("resp"))
      return openai_error(
          {400, "the id of a response begins with 'resp'", "response_id", "invalid_id"});
    const OwnerResponses kept = own_responses(*context, http);
    const StoredResponsePtr response = kept.get(id);
    return response ? answer(kept, id, *response, http.query) : openai_error(not_found(id));
  };
  router.add(method, path, traits, [context, make](const ExchangePtr& x) {
    const bool is_quick = context->responses->bytes() <= kQuickPromptBytes;
    context->workers.run(
        x, is_quick, [make, x] { return make(x->request()); },
        [x](Response response) { x->send(std::move(response)); });
  });
}

}  // namespace

void add_responses_routes(Router& router, const OpenAiContextPtr& context) {
  router.add("POST", "/v1/responses", kComputes,
             [context](const ExchangePtr& x) { create_response(context, x); });
  router.add("POST", "/v1/responses/input_tokens", kWorks,
             [context](const ExchangePtr& x) { count_response_input(context, x); });
  add_kept(router, context, "GET", "/v1/responses/{id}", kShows, show_kept);
  add_kept(router, context, "DELETE", "/v1/responses/{id}", kShows, remove_kept);
  add_kept(router, context, "GET", "/v1/responses/{id}/input_items", kShows, show_kept_items);
  add_kept(router, context, "POST", "/v1/responses/{id}/cancel", kWorks, cancel_kept);
}

}  // namespace nereid::front
