// Pattern matching on the raw path; see router.h.
#include "front/http/router.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "base/check.h"
#include "base/log_limit.h"
#include "front/protection/budget_memory.h"

namespace nereid::front {
namespace {

// Returns the text up to the next slash and removes it from `path`. Paths begin with '/'.
std::string_view take_segment(std::string_view& path) {
  path.remove_prefix(1);
  const size_t end = std::min(path.find('/'), path.size());
  std::string_view segment = path.substr(0, end);
  path.remove_prefix(end);
  return segment;
}

// A GET handler also serves HEAD.
std::string_view handled_method(std::string_view method) {
  return method == "HEAD" ? std::string_view("GET") : method;
}

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Router::Router(ErrorPage error_page) : error_page_(std::move(error_page)) {}

void Router::add(std::string_view method, std::string_view pattern, const RouteTraits& traits,
                 Handler handler) {
  NEREID_CHECK(!pattern.empty() && pattern[0] == '/');
  Route route{{std::string(method), std::string(pattern), traits}, {}, {}, {}, std::move(handler)};
  route.prefix = pattern.substr(0, pattern.find('{'));
  if (const size_t last = pattern.rfind('}'); last != std::string_view::npos) {
    route.suffix = pattern.substr(last + 1);
  }
  for (std::string_view rest = pattern; !rest.empty();) {
    std::string_view text = take_segment(rest);
    Segment::Kind kind = Segment::Kind::kLiteral;
    if (text.size() > 2 && text.front() == '{' && text.back() == '}') {
      text = text.substr(1, text.size() - 2);
      kind = Segment::Kind::kOne;
      if (text.back() == '*') {
        NEREID_CHECK(rest.empty());
        text.remove_suffix(1);
        kind = Segment::Kind::kRest;
      } else if (text.ends_with(":digits")) {
        text.remove_suffix(7);
        kind = Segment::Kind::kDigits;
      }
    }
    route.segments.push_back({kind, std::string(text)});
  }
  routes_.push_back(std::move(route));
}

bool Router::match(const Route& route, std::string_view path, Params& params) {
  if (!path.starts_with(route.prefix) || !path.ends_with(route.suffix)) return false;
  params.clear();
  for (const Segment& segment : route.segments) {
    if (path.empty() || path[0] != '/') return false;
    if (segment.kind == Segment::Kind::kRest) {
      if (path.size() == 1) return false;
      params.emplace_back(segment.text, path.substr(1));
      return true;
    }
    const std::string_view text = take_segment(path);
    if (segment.kind == Segment::Kind::kLiteral) {
      if (text != segment.text) return false;
      continue;
    }
    if (segment.kind == Segment::Kind::kOne ? text.empty() : !all_digits(text)) return false;
    params.emplace_back(segment.text, text);
  }
  return path.empty();
}

size_t Router::num_common(const Route& route, std::string_view path) {
  size_t num = 0;
  for (const Segment& segment : route.segments) {
    if (path.empty() || path[0] != '/') break;
    const std::string_view text = take_segment(path);
    if (segment.kind == Segment::Kind::kLiteral && text != segment.text) break;
    if (segment.kind == Segment::Kind::kDigits && !all_digits(text)) break;
    ++num;
  }
  return num;
}

const Router::Route* Router::find(const Request& request, Params& params, Target& target) const {
  const std::string_view wanted = handled_method(request.method), path = request.path;
  const Route* of_path = nullptr;
  for (const Route& route : routes_) {
    if ((of_path && route.entry.method != wanted) || !match(route, path, params)) continue;
    target.has_path = true;
    target.has_handler = route.entry.method == wanted;
    if (target.has_handler) return &route;
    of_path = &route;
  }
  params.clear();
  if (of_path) return of_path;
  const Route* nearest = nullptr;
  size_t most = 0;
  for (const Route& route : routes_) {
    const size_t num = num_common(route, path);
    const bool is_nearer =
        num > most || (nearest && num == most && route.segments.size() < nearest->segments.size());
    if (is_nearer) most = num, nearest = &route;
  }
  return nearest;
}

bool Router::has_large_bodies(const Request& request) const {
  Params params;
  Target target;
  const Route* const route = find(request, params, target);
  return target.has_handler && route->entry.traits.has_large_bodies;
}

ErrorShape Router::shape_for(const Request& request, const Route* route) {
  if (!route) return ErrorShape::kKserve;
  const ErrorShape shape = route->entry.traits.errors;
  // Anthropic's clients send this header with every request.
  const bool is_anthropic =
      shape == ErrorShape::kOpenAi && find_header(request.headers, "anthropic-version") != nullptr;
  return is_anthropic ? ErrorShape::kAnthropic : shape;
}

Response Router::error_page(const Request& request, int status, std::string_view message) const {
  Params params;
  Target target;
  const Route* const route = find(request, params, target);
  return error_page_(shape_for(request, route), status, message);
}

std::vector<Router::Entry> Router::entries() const {
  std::vector<Entry> out;
  for (const Route& route : routes_) out.push_back(route.entry);
  return out;
}

void Router::finish(const Request& request, Response& response) const {
  constexpr size_t kLongest = 256;
  for (const char* name : {"X-Request-Id", "traceparent"}) {
    const std::string* value = find_header(request.headers, name);
    if (value != nullptr && !value->empty() && value->size() <= kLongest) {
      response.headers.push_back({name, *value});
    }
  }
  if (finish_) finish_(request, response);
}

bool Router::has_path(std::string_view path) const {
  Params params;
  return std::ranges::any_of(routes_, [&](const Route& route) {
    return route.entry.pattern.find('*') == std::string::npos && match(route, path, params);
  });
}

// Clients append their paths to a base URL: one that is too short lacks /v1, one that is too long
// has it, or a whole path, twice.
std::string Router::advice(std::string_view path) const {
  constexpr size_t kLongest = 256;
  constexpr std::string_view kBase = "/v1";
  if (path.size() > kLongest || path.starts_with("/v2/") || !path.starts_with('/')) return "";
  for (std::string_view rest = path; !rest.empty(); take_segment(rest)) {
    for (const std::string& meant : {std::string(rest), std::string(kBase).append(rest)}) {
      if (rest == "/" || meant == path || !has_path(meant)) continue;
      const bool has_base = meant.starts_with(std::string(kBase) + "/");
      // The Anthropic client adds /v1 by itself.
      const bool adds_base = meant.starts_with("/v1/messages") || !has_base;
      return fmt::format(": did you mean {}? The client's base URL is the address of the server{}",
                         meant, adds_base ? "" : fmt::format(" followed by {}", kBase));
    }
  }
  return "";
}

// 405 for a known path, else 404.
Response Router::refuse_method(const Request& request) const {
  std::string allow;
  Params params;
  for (const Route& route : routes_) {
    if (!match(route, request.path, params)) continue;
    const std::string methods = route.entry.method == "GET" ? "GET, HEAD" : route.entry.method;
    if (allow.find(methods) != std::string::npos) continue;  // several patterns match the path
    if (!allow.empty()) allow += ", ";
    allow += methods;
  }
  if (allow.empty()) return error_page(request, 404, "Not Found" + advice(request.path));
  Response response;
  if (request.method == "OPTIONS") {
    response.status = 204;
  } else {
    response = error_page(request, 405, "Method Not Allowed");
  }
  response.headers.push_back({"Allow", allow + ", OPTIONS"});
  return response;
}

void Router::handle(const ExchangePtr& exchange) const {
  Request& request = exchange->request();
  Target target;
  const Route* const route = find(request, request.params, target);
  if (route) target.traits = &route->entry.traits;
  target.errors = shape_for(request, route);
  if (guard_) {
    if (auto refused = guard_(request, target)) {
      exchange->send(*std::move(refused));
      return;
    }
  }
  if (!target.has_handler) return exchange->send(refuse_method(request));
  try {
    route->handler(exchange);
  } catch (const std::bad_alloc& e) {
    exchange->send(error_page(request, 503, shortage(e)));
  } catch (const std::exception& e) {
    static LogLimit log;
    log.error("{} {}: {}", request.method, request.path, e.what());
    exchange->send(error_page(request, 500, "internal error"));
  }
}

}  // namespace nereid::front
