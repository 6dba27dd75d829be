// Cross-origin resource sharing: which web pages may read answers; off unless origins are given.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "front/http/message.h"

namespace nereid::front {

class Cors {
 public:
  // `origins` as browsers send them ("https://example.com:8443"), or "*" for all. InvalidArgument
  // names one that is neither.
  static StatusOr<Cors> create(std::vector<std::string> origins);

  // Adds the headers that let the page of `request` read `response`, if its origin is allowed.
  void add_headers(const Request& request, Response& response) const;
  // Whether pages of that origin may use the server.
  bool allows(const std::string& origin) const;
  // The response to a preflight request; nullopt for other requests.
  std::optional<Response> preflight(const Request& request) const;

 private:
  std::vector<std::string> origins_;
  bool allows_all_ = false;
};

}  // namespace nereid::front
