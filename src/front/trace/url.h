// The parts of an http:// or https:// URL.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::front {

struct Url {
  bool is_tls = false;
  std::string host;          // without the brackets of an IPv6 address
  std::string port = "80";   // 443 with TLS
  std::string target = "/";  // path and query
};

// InvalidArgument for any text but http[s]://HOST[:PORT][/PATH].
StatusOr<Url> parse_url(std::string_view text);

}  // namespace nereid::front
