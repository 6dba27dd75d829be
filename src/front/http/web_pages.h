// Protection of a server that a browser can reach against web pages of other origins: a check of
// the Host header (a page may resolve its own name to the server's address: DNS rebinding), and of
// the Origin of requests that change something.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "front/http/cors.h"
#include "front/http/message.h"
#include "front/protection/protection.h"

namespace nereid::front {

// A host's name or address in lower case, without port, brackets and the root's dot, addresses in
// their shortest form; "" for invalid text.
std::string plain_host(std::string_view authority);

class AllowedHosts {
 public:
  // `listens_on`: the address of the port. `names`: plain hosts, or "*". Allowed on a loopback
  // address: localhost, loopback addresses, names without a dot, `listens_on` and `names`; on
  // another one any host, unless there are names. InvalidArgument: an invalid host.
  static StatusOr<AllowedHosts> create(const std::string& listens_on,
                                       const std::vector<std::string>& names);

  // InvalidArgument: `name` is neither a host without port nor "*".
  static Status check_name(const std::string& name);

  bool allows(std::string_view authority) const;
  // For errors: "localhost, 127.0.0.1, [::1] and x".
  const std::string& text() const { return text_; }

 private:
  bool allows_all_ = false;
  std::vector<std::string> hosts_;  // plain hosts
  std::string text_;
};

// The reason to refuse a request because of its Origin or Host; "": none.
std::string page_refusal(const Request& request, const Cors& cors, const AllowedHosts& hosts,
                         Cost cost);

}  // namespace nereid::front
