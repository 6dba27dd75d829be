// Routes: method and path pattern -> handler, with 404, 405 + Allow, HEAD and OPTIONS in one place.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "front/http/message.h"

namespace nereid::front {

// Builds the error answer for a request that no handler sees (also 413, 431, 400 from the
// transport, whose request may have an empty path).
using ErrorPage =
    std::function<Response(const Request& request, int status, std::string_view message)>;

// The answer to a request that may not reach its handler; nothing for one that may, which may be
// given a permit.
using Guard = std::function<std::optional<Response>(Request& request)>;

// Adds headers to an answer before it is sent.
using Finish = std::function<void(const Request& request, Response& response)>;

class Router {
 public:
  explicit Router(ErrorPage error_page);

  // Asked before every request, whatever its method and path.
  void set_guard(Guard guard) { guard_ = std::move(guard); }
  // Applied to every answer, errors of the transport included.
  void set_finish(Finish finish) { finish_ = std::move(finish); }
  // The last headers: what the client traces its request by, and those of set_finish().
  void finish(const Request& request, Response& response) const;

  // Pattern segments: literal text, {name} (one non-empty segment), {name:digits} (decimal digits
  // only), {name*} (the non-empty rest, slashes included; last segment only). Patterns are tried in
  // the order added, and are our own: a malformed one is a CHECK.
  void add(std::string_view method, std::string_view pattern, Handler handler);

  // Runs the handler or answers 404 / 405 / OPTIONS. A GET handler also serves HEAD (the transport
  // drops the body). Exceptions of handlers become a 500.
  void handle(const ExchangePtr& exchange) const;

  const ErrorPage& error_page() const { return error_page_; }

 private:
  struct Segment {
    enum class Kind { kLiteral, kOne, kDigits, kRest } kind;
    std::string text;  // literal text or parameter name
  };
  struct Route {
    std::string method;
    std::string prefix, suffix;  // literal ends of the pattern, which tell most routes apart
    std::vector<Segment> segments;
    Handler handler;
  };

  static bool match(const Route& route, std::string_view path, Request& request);

  ErrorPage error_page_;
  Guard guard_;
  Finish finish_;
  std::vector<Route> routes_;
};

}  // namespace nereid::front
