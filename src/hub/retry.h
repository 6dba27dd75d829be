// Attempts at a request, with growing pauses between them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/status.h"
#include "hub/client.h"
#include "hub/model_name.h"

namespace nereid::hub {

// One attempt's end.
struct Attempt {
  Status status;
  bool may_repeat = false;                        // later it may work
  std::optional<std::chrono::seconds> wait = {};  // as the hub asks for (Retry-After)
  bool has_progress = false;                      // it brought bytes: the count begins anew
};

// Calls `attempt` until it works, fails for good, or has failed settings.attempts times without
// bytes in between. The status is annotated with the number of attempts. Cancelled: meanwhile.
Status repeat(Shared& shared, const std::function<Attempt()>& attempt);

// The meaning of an answer: ok for 200 and 206, else an error that names the remedy: a token (401,
// 403), the right name (404), a later time (429, 5xx). `what`: "ORG/NAME: file 'x'".
Attempt judge(const Reply& reply, const HubSettings& settings, const std::string& what);

// Seconds of a Retry-After; a date counts as the longest wait. nullopt: none.
std::optional<std::chrono::seconds> retry_after(const std::string& text,
                                                const HubSettings& settings);

}  // namespace nereid::hub
