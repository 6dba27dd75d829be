// Routes: method and path pattern to protection and handler, with 404, 405 + Allow, HEAD and
// OPTIONS in one place.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "front/http/message.h"
#include "front/protection/protection.h"

namespace nereid::front {

// Builds the error answer for a request without a handler.
using ErrorPage = std::function<Response(ErrorShape shape, int status, std::string_view message)>;

// The route of a request, for a guard.
struct Target {
  // Traits of the route, else of one with that path, else of the nearest. Null: none is near.
  const RouteTraits* traits = nullptr;
  bool has_path = false;     // the path matches
  bool has_handler = false;  // path and method match: its handler would run
  ErrorShape errors = ErrorShape::kKserve;
};

// Returns a refusal, or nullopt for a request that may reach its handler, which may get a permit.
using Guard = std::function<std::optional<Response>(Request& request, const Target& target)>;

// Adds headers to an answer before it is sent.
using Finish = std::function<void(const Request& request, Response& response)>;

class Router {
 public:
  explicit Router(ErrorPage error_page);

  // Called before every request, whatever its method and path.
  void set_guard(Guard guard) { guard_ = std::move(guard); }
  // Applied to every answer, errors of the transport included.
  void set_finish(Finish finish) { finish_ = std::move(finish); }
  // Adds the final headers: request ids for tracing, and those of set_finish().
  void finish(const Request& request, Response& response) const;

  // Pattern segments: literal text, {name} (one non-empty segment), {name:digits} (decimal digits
  // only), {name*} (the non-empty rest, slashes included; last segment only). Patterns are tried in
  // the order added, and are our own: a malformed one is a CHECK.
  void add(std::string_view method, std::string_view pattern, const RouteTraits& traits,
           Handler handler);

  // Runs the handler or answers 404 / 405 / OPTIONS. A GET handler also serves HEAD (the transport
  // drops the body). Exceptions of handlers become a 500.
  void handle(const ExchangePtr& exchange) const;

  // An error in the shape of the request's route, or of the shortest route that shares most leading
  // segments with it; where APIs share paths, the client's headers decide. Also for 413, 431 and
  // 400 of the transport, whose request may have an empty path.
  Response error_page(const Request& request, int status, std::string_view message) const;

  // Whether the request's handler takes large bodies (RouteTraits).
  bool has_large_bodies(const Request& request) const;

  // A route as it was added.
  struct Entry {
    std::string method, pattern;
    RouteTraits traits;
  };
  std::vector<Entry> entries() const;

 private:
  struct Segment {
    enum class Kind { kLiteral, kOne, kDigits, kRest } kind;
    std::string text;  // literal text or parameter name
  };
  struct Route {
    Entry entry;
    std::string prefix, suffix;  // literal ends of the pattern, which rule out most routes
    std::vector<Segment> segments;
    Handler handler;
  };
  using Params = std::vector<std::pair<std::string, std::string>>;

  static bool match(const Route& route, std::string_view path, Params& params);
  // Number of leading segments common to `path` and the route.
  static size_t num_common(const Route& route, std::string_view path);
  // The route of the request, with its parameters; else one with its path, else the
  // nearest one. Null: none.
  const Route* find(const Request& request, Params& params, Target& target) const;
  static ErrorShape shape_for(const Request& request, const Route* route);
  bool has_path(std::string_view path) const;
  // The text added to a 404: the base URL or path that the client probably meant; "" if unknown.
  std::string advice(std::string_view path) const;
  Response refuse_method(const Request& request) const;

  ErrorPage error_page_;
  Guard guard_;
  Finish finish_;
  std::vector<Route> routes_;
};

}  // namespace nereid::front
