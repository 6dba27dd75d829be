// Access to routes and rpcs for administrators (Access::kModels, kSettings).
#pragma once

#include <cstdint>
#include <string_view>

#include "front/protection/protection.h"

namespace nereid::front {

// Origins of calls that need no key, on a server without keys.
enum class Peers : uint8_t { kNone, kLoopback, kAny };

struct AdminRules {
  Peers models = Peers::kLoopback;
  Peers settings = Peers::kNone;
};

// Properties of a caller that has passed the check of keys.
struct AdminCaller {
  bool has_admin_key = false;
  bool has_secret = false;  // of the restricted API that the route belongs to
  bool needs_key = false;   // the server has keys of either kind
  bool is_on_loopback = false;
};

// The reason why the caller may not use the route, with advice; "" when it may.
std::string_view admin_refusal(Access access, const AdminRules& rules, const AdminCaller& caller);

}  // namespace nereid::front
