// Error bodies; see error.h.
#include "front/openai/error.h"

#include "front/bridge/tensor.h"

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

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

}  // namespace

ApiError api_error(const Status& status) {
  return {http_status(status), std::string(message(status)), "", ""};
}

std::string openai_error_body(const ApiError& error) {
  const std::string_view type = error_type(error.status);
  const json::object nested = {{"message", error.message},
                               {"type", type},
                               {"param", text_or_null(error.param)},
                               {"code", text_or_null(error.code)}};
  return json::serialize(json::object{{"object", "error"},
                                      {"message", error.message},
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

}  // namespace nereid::front
