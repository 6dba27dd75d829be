// What keeps web pages of other origins from using a server that a browser can reach: the names
// that it answers to (a page may give its own name the server's address: DNS rebinding), and the
// origin of requests that change something.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "front/http/cors.h"
#include "front/http/message.h"
#include "front/http/protection.h"

namespace nereid::front {

// A host's name or address in lower case, without port, brackets and the root's dot, addresses in
// their shortest form; "" for what is none.
std::string plain_host(std::string_view authority);

class AllowedHosts {
 public:
  // `listens_on`: the address of the port. `names` as plain hosts, or "*". On an address of this
  // machine alone: localhost, its loopback addresses, names without a dot, `listens_on` and
  // `names`; on another one any host, unless there are names. InvalidArgument: one is no host.
  static StatusOr<AllowedHosts> create(const std::string& listens_on,
                                       const std::vector<std::string>& names);

  // InvalidArgument: `name` is neither a host without port nor "*".
  static Status check_name(const std::string& name);

  bool allows(std::string_view authority) const;
  // "localhost, 127.0.0.1, [::1] and x".
  const std::string& text() const { return text_; }

 private:
  bool allows_all_ = false;
  std::vector<std::string> hosts_;  // plain
  std::string text_;
};

// Why a request may not be answered because of the page or the name that it comes by; "": it may.
std::string page_refusal(const Request& request, const Cors& cors, const AllowedHosts& hosts,
                         Cost cost);

}  // namespace nereid::front
