// Requests to a hub: redirects by rules, the token for the hub alone, bounded answers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "hub/address.h"
#include "hub/checksum.h"
#include "hub/curl.h"
#include "hub/settings.h"
#include "hub/urls.h"

namespace nereid::hub {

// State that all clients of one pull share.
struct Shared {
  HubSettings settings;
  const std::atomic<bool>& is_cancelled;
  std::atomic<bool> has_failed = false;                // another download did: the others stop
  std::atomic<Reach> endpoint_reach = Reach::kPublic;  // seen when the endpoint is connected
};

struct Request {
  std::string url;
  bool head = false;
  int64_t from = 0;  // first byte wanted
  // Called before the first byte of an answer 200 or 206 and with each piece; an error ends the
  // request. `begin`: where the piece of the file begins, `length`: of this answer. Without
  // on_body the body is kept in the reply.
  std::function<Status(int status, std::optional<int64_t> begin, std::optional<int64_t> length)>
      on_begin;
  std::function<Status(std::string_view)> on_body;
  int64_t max_body = 0;  // of a body that is kept, in bytes
};

struct Reply {
  int status = 0;
  std::string body;                  // as far as it is kept; of errors at most 4 KiB
  std::string error_code;            // X-Error-Code
  std::string retry_after;           // Retry-After
  std::string commit;                // X-Repo-Commit, of the hub itself
  std::optional<Checksum> checksum;  // X-Linked-Etag or ETag, of the hub itself
  std::optional<int64_t> size;       // X-Linked-Size or Content-Length, of the hub itself
};

class Client {
 public:
  Client(const Curl& curl, Shared& shared);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Sends the request and follows at most eight redirects (a HEAD: only those that stay at the
  // hub). Unavailable, DeadlineExceeded: may work later; Cancelled; InvalidArgument: a redirect or
  // an answer that is refused, by name; else the error of a callback.
  StatusOr<Reply> send(const Request& request);

 private:
  struct Hop;
  Status perform(const Request& request, const std::string& url, Hop& hop);
  std::optional<Reach> plain_reach(const std::string& url) const;
  Status check_host(const std::string& url) const;
  bool may_send_token(const std::string& url) const;

  const Curl& curl_;
  const Urls urls_;
  Shared& shared_;
  CURL* const handle_;
};

// Whether the environment names a proxy, through which connections go to places unknown.
bool has_proxy();

}  // namespace nereid::hub
