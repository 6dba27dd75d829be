#include "front/http/cors.h"

#include <algorithm>
#include <utility>

namespace nereid::front {
namespace {

bool is_origin(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == 0 || scheme == text.npos || text.size() == scheme + 3) return false;
  constexpr std::string_view kOthers = "-._:[]";
  const auto is_plain = [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || kOthers.find(c) != kOthers.npos;
  };
  const std::string_view host = text.substr(scheme + 3);
  return std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(scheme), is_plain) &&
         std::all_of(host.begin(), host.end(), is_plain);
}

}  // namespace

StatusOr<Cors> Cors::create(std::vector<std::string> origins) {
  Cors out;
  for (const std::string& origin : origins) {
    if (origin == "*") {
      out.allows_all_ = true;
    } else if (!is_origin(origin)) {
      return invalid_argument(
          "origin '{}' is neither * nor scheme://host or scheme://host:port in lower case", origin);
    }
  }
  out.origins_ = std::move(origins);
  return out;
}

bool Cors::allows(const std::string& origin) const {
  return allows_all_ || std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
}

void Cors::add_headers(const Request& request, Response& response) const {
  // Caches must not serve the answer for one origin to another.
  if (!allows_all_) response.headers.push_back({"Vary", "Origin"});
  const std::string* origin = find_header(request.headers, "Origin");
  if (origin == nullptr || !allows(*origin)) return;
  response.headers.push_back({"Access-Control-Allow-Origin", allows_all_ ? "*" : *origin});
  response.headers.push_back({"Access-Control-Expose-Headers", "Inference-Header-Content-Length"});
}

std::optional<Response> Cors::preflight(const Request& request) const {
  if (request.method != "OPTIONS" ||
      find_header(request.headers, "Access-Control-Request-Method") == nullptr) {
    return std::nullopt;
  }
  Response response;
  response.status = 204;
  const std::string* origin = find_header(request.headers, "Origin");
  if (origin == nullptr || !allows(*origin)) return response;
  response.headers.push_back({"Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS"});
  const std::string* headers = find_header(request.headers, "Access-Control-Request-Headers");
  if (headers != nullptr) response.headers.push_back({"Access-Control-Allow-Headers", *headers});
  response.headers.push_back({"Access-Control-Max-Age", "600"});
  return response;
}

}  // namespace nereid::front
