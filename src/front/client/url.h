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

// InvalidArgument for any text but [http[s]://]HOST[:PORT][/PATH], with a port in [1, 65535].
StatusOr<Url> parse_url(std::string_view text);

// The value of the header Host: the port stands in it where it is not the scheme's usual one.
std::string host_header(const Url& url);

}  // namespace nereid::front
