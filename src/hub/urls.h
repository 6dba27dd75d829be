// Parts of URLs, and the rules of redirects.
#pragma once

#include <string>

#include "base/status.h"
#include "hub/curl.h"

namespace nereid::hub {

class Urls {
 public:
  explicit Urls(const Curl& curl) : curl_(curl) {}

  StatusOr<std::string> host_of(const std::string& url) const;
  // "https://host:443": equal for URLs of one server.
  StatusOr<std::string> origin_of(const std::string& url) const;
  // The URL that the header Location leads to. InvalidArgument, with both places: no http or
  // https, from https to http, a user's name in it, no URL.
  StatusOr<std::string> redirected(const std::string& from, const std::string& location) const;

 private:
  StatusOr<std::string> part_of(const std::string& url, CURLUPart part) const;
  const Curl& curl_;
};

}  // namespace nereid::hub
