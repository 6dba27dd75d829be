// Files behind URLs of clients: hosts are those that the operator names, addresses public.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hub/address.h"

namespace nereid::front {

struct MediaLimits {
  size_t max_bytes = size_t{32} << 20;
  long max_seconds = 10;  // of all hops together
  int max_redirects = 4;
};

struct FetchOptions {
  // Called with the bytes that are about to be held; an error ends the transfer.
  std::function<Status(size_t bytes)> hold = {};
  std::function<bool()> is_unwanted = {};  // true ends the transfer
};

// The numeric addresses of a host; not empty.
using Resolve = std::function<StatusOr<std::vector<std::string>>(const std::string& host)>;
StatusOr<std::vector<std::string>> resolve_by_system(const std::string& host);

// Any thread.
class MediaFetcher {
 public:
  // `domains`: hosts that may be asked, as "example.com" or "example.com:8443"; empty: none.
  // `farthest`: addresses beyond it are refused; tests allow kLoopback.
  explicit MediaFetcher(std::vector<std::string> domains, Resolve resolve = resolve_by_system,
                        hub::Reach farthest = hub::Reach::kPublic, MediaLimits limits = {});

  // The body of an answer 200 to GET. Blocks the caller. A host is resolved once for each hop: all
  // of its addresses are checked, and the connection goes to one of these. No proxy is used.
  // InvalidArgument: another scheme, a user's name, a host or port that is not allowed, an address
  // that is not public, a redirect to any of these or from https to http, too many redirects, too
  // many bytes, another status, a failed or slow transfer; Cancelled; errors of `hold`.
  StatusOr<std::string> fetch(const std::string& url, const FetchOptions& options = {}) const;

 private:
  const std::vector<std::string> domains_;  // in small letters
  const Resolve resolve_;
  const hub::Reach farthest_;
  const MediaLimits limits_;
};

// InvalidArgument: a domain is no host name, or its port no number.
Status check_media_domain(const std::string& domain);

}  // namespace nereid::front
