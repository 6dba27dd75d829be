#include "front/openai/error.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.h"
#include "front/bridge/tensor.h"
#include "text/unicode/utf8.h"

namespace nereid::front {
namespace {

std::string_view error_type(int status) {
  switch (status) {
    case 401:
    case 403:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

// FastAPI's type of a schema fault, by our code; "" for other faults.
std::string_view schema_fault(std::string_view code) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"invalid_json", "json_invalid"},
      {"invalid_type", "type_error"},
      {"invalid_value", "value_error"},
      {"missing_required_parameter", "missing"},
      {"unknown_parameter", "extra_forbidden"}};
  for (const auto& [ours, theirs] : kNames)
    if (code == ours) return theirs;
  return "";
}

// "messages[0].role" as ["body", "messages", 0, "role"].
json::array place_of(std::string_view param) {
  json::array out = {"body"};
  while (!param.empty()) {
    const size_t end = std::min(param.find_first_of(".[]"), param.size());
    const std::string_view step = param.substr(0, end);
    int64_t index = 0;
    const auto [stop, error] = std::from_chars(step.data(), step.data() + step.size(), index);
    if (error == std::errc() && stop == step.data() + step.size())
      out.push_back(index);
    else if (!step.empty())
      out.push_back(json::string(step));
    param.remove_prefix(std::min(end + 1, param.size()));
  }
  return out;
}

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text::repair_utf8(text));
}

}  // namespace

std::string said(const ApiError& error) { return text::repair_utf8(error.message); }

ApiError api_error(const Status& status) {
  return {http_status(status), std::string(message(status)), "", ""};
}

std::string openai_error_body(const ApiError& error) {
  const std::string_view type = error_type(error.status);
  const std::string message = said(error);
  const json::object nested = {{"message", message},
                               {"type", type},
                               {"param", text_or_null(error.param)},
                               {"code", text_or_null(error.code)}};
  return json::serialize(json::object{{"object", "error"},
                                      {"message", message},
                                      {"type", type},
                                      {"param", text_or_null(error.param)},
                                      {"code", error.status},
                                      {"error", nested}});
}

Response openai_error(const ApiError& error) {
  Response response{error.status, "application/json", {}, openai_error_body(error)};
  if (error.status == 503 || error.status == 429) {
    response.headers.push_back({"Retry-After", "1"});
  }
  return response;
}

Response fastapi_error(ApiError error) {
  const std::string_view fault = error.status == 400 ? schema_fault(error.code) : "";
  const std::string message = said(error);
  json::value detail = json::string(message);
  if (!fault.empty()) {
    error.status = 422;
    detail = json::array{json::object{
        {"type", fault}, {"loc", place_of(text::repair_utf8(error.param))}, {"msg", message}}};
  }
  Response response = openai_error(error);
  response.body.back() = ',';
  response.body += "\"detail\":" + json::serialize(detail) + "}";
  return response;
}

}  // namespace nereid::front
