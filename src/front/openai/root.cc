// GET /: the web page for browsers, a word on where the APIs are for programs.
#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "front/openai/error.h"
#include "front/openai/handlers.h"
#include "front/page/page.h"

namespace nereid::front {
namespace {

// For clients without /v1 in their base URL.
Response base_url_page(const Request& request) {
  constexpr size_t kLongest = 255;
  const std::string* host = find_header(request.headers, "Host");
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' ||
           c == '-' || c == ':' || c == '[' || c == ']';
  };
  const bool is_said = host && host->size() <= kLongest && std::ranges::all_of(*host, is_plain);
  const std::string url = is_said ? "http://" + *host : "http://HOST:PORT";
  return openai_error(
      {404,
       fmt::format("nothing is at /: the base URL of OpenAI clients is {0}/v1, that "
                   "of Anthropic and KServe clients {0}",
                   url),
       "", ""});
}

// As where there is no route.
Response not_found() { return json_response(R"({"error":"Not Found"})", 404); }

}  // namespace

void add_root_route(Router& router, const OpenAiOptions& options) {
  if (!options.web_page && !options.ollama && !options.shows_base_url) return;
  // Browsers open an address without a key, and the page has nothing that needs one.
  const bool needs_key = options.ollama && !options.web_page;
  const bool is_openai = options.shows_base_url && !options.ollama;
  const RouteTraits traits = {Api::kInference, needs_key ? Access::kCallers : Access::kAnybody,
                              Cost::kNothing,
                              is_openai ? ErrorShape::kOpenAi : ErrorShape::kKserve};
  router.add("GET", "/", traits, [options](const ExchangePtr& x) {
    if (options.web_page && wants_page(x->request())) return x->send(page_response(x->request()));
    // Ollama's clients probe a server with this route.
    Response other = options.ollama
                         ? Response{200, "text/plain; charset=utf-8", {}, "Ollama is running"}
                     : options.shows_base_url ? base_url_page(x->request())
                                              : not_found();
    if (options.web_page) other.headers.push_back({"Vary", "Accept"});
    x->send(std::move(other));
  });
}

}  // namespace nereid::front
