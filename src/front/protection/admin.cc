#include "front/protection/admin.h"

namespace nereid::front {

std::string_view admin_refusal(Access access, const AdminRules& rules, const AdminCaller& caller) {
  if (access != Access::kModels && access != Access::kSettings) return "";
  if (caller.has_admin_key || caller.has_secret) return "";
  const Peers peers = access == Access::kModels ? rules.models : rules.settings;
  if (caller.needs_key || peers == Peers::kNone)
    return "this is for administrators: send a key of --admin-key, or of a line of --api-key-file "
           "that says 'admin'";
  if (peers == Peers::kAny || caller.is_on_loopback) return "";
  return "without keys this is for callers on the server's own machine: start the server with "
         "--admin-key and send the key";
}

}  // namespace nereid::front
