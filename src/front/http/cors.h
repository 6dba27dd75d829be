// Which web pages may read answers: cross-origin resource sharing, off unless origins are given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "front/http/message.h"

namespace nereid::front {

class Cors {
 public:
  // `origins` as browsers send them ("https://example.com:8443"), or "*" for all of them.
  // InvalidArgument names one that is neither.
  static StatusOr<Cors> create(std::vector<std::string> origins);

  // Adds what lets the page of `request`, if its origin is allowed, read `response`.
  void add_headers(const Request& request, Response& response) const;
  // Whether pages of that origin may use the server.
  bool allows(const std::string& origin) const;
  // The answer to a browser that asks whether a page may send a request; nothing for other
  // requests.
  std::optional<Response> preflight(const Request& request) const;

 private:
  std::vector<std::string> origins_;
  bool allows_all_ = false;
};

}  // namespace nereid::front
