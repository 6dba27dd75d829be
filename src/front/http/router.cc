// Pattern matching on the raw path; see router.h.
#include "front/http/router.h"

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "base/log_limit.h"
#include "front/http/budget_memory.h"

namespace nereid::front {
namespace {

// The text up to the next slash; `path` keeps what follows it. Paths begin with '/'.
std::string_view take_segment(std::string_view& path) {
  path.remove_prefix(1);
  const size_t end = std::min(path.find('/'), path.size());
  std::string_view segment = path.substr(0, end);
  path.remove_prefix(end);
  return segment;
}

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Router::Router(ErrorPage error_page) : error_page_(std::move(error_page)) {}

void Router::add(std::string_view method, std::string_view pattern, Handler handler) {
  NEREID_CHECK(!pattern.empty() && pattern[0] == '/');
  Route route{std::string(method), {}, {}, {}, std::move(handler)};
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

bool Router::match(const Route& route, std::string_view path, Request& request) {
  if (!path.starts_with(route.prefix) || !path.ends_with(route.suffix)) return false;
  request.params.clear();
  for (const Segment& segment : route.segments) {
    if (path.empty() || path[0] != '/') return false;
    if (segment.kind == Segment::Kind::kRest) {
      if (path.size() == 1) return false;
      request.params.emplace_back(segment.text, path.substr(1));
      return true;
    }
    const std::string_view text = take_segment(path);
    if (segment.kind == Segment::Kind::kLiteral) {
      if (text != segment.text) return false;
      continue;
    }
    if (segment.kind == Segment::Kind::kOne ? text.empty() : !all_digits(text)) return false;
    request.params.emplace_back(segment.text, text);
  }
  return path.empty();
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

void Router::handle(const ExchangePtr& exchange) const {
  Request& request = exchange->request();
  if (guard_) {
    if (auto refused = guard_(request)) {
      exchange->send(*std::move(refused));
      return;
    }
  }
  const std::string_view wanted =
      request.method == "HEAD" ? std::string_view("GET") : request.method;
  for (const Route& route : routes_) {
    if (route.method != wanted || !match(route, request.path, request)) continue;
    try {
      route.handler(exchange);
    } catch (const std::bad_alloc& e) {
      exchange->send(error_page_(request, 503, shortage(e)));
    } catch (const std::exception& e) {
      static LogLimit log;
      log.error("{} {}: {}", request.method, request.path, e.what());
      exchange->send(error_page_(request, 500, "internal error"));
    }
    return;
  }
  std::string allow;
  for (const Route& route : routes_) {
    if (!match(route, request.path, request)) continue;
    const std::string methods = route.method == "GET" ? "GET, HEAD" : route.method;
    if (allow.find(methods) != std::string::npos) continue;  // several patterns match the path
    if (!allow.empty()) allow += ", ";
    allow += methods;
  }
  if (allow.empty()) {
    exchange->send(error_page_(request, 404, "Not Found"));
    return;
  }
  Response response;
  if (request.method == "OPTIONS") {
    response.status = 204;
  } else {
    response = error_page_(request, 405, "Method Not Allowed");
  }
  response.headers.push_back({"Allow", allow + ", OPTIONS"});
  exchange->send(std::move(response));
}

}  // namespace nereid::front
