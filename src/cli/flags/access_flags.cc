#include "cli/flags/access_flags.h"

#include <utility>

#include "cli/flags/flag_values.h"
#include "front/http/cors.h"
#include "front/http/web_pages.h"

namespace nereid::cli {
namespace {

// Adds a group of restricted APIs; each API may be in one group only.
template <class Restriction, class Names>
Status check_groups(const std::vector<Restriction>& groups, Names names, const char* what) {
  std::vector<std::string> seen;
  for (const auto& group : groups) {
    for (const auto& name : group.*names) {
      for (const auto& other : seen) {
        if (name == other) {
          return invalid_argument(
              "restricted {} '{}' can not be specified in multiple config groups", what, name);
        }
      }
      seen.push_back(name);
    }
  }
  return ok();
}

}  // namespace

Status restrict_http(front::HttpOptions& options, const std::string& value) {
  ASSIGN_OR_RETURN(auto group, parse_restricted(value, "api"));
  options.restrictions.push_back(
      {std::move(group.apis), std::move(group.key), std::move(group.value)});
  return check_groups(options.restrictions, &front::HttpRestriction::apis, "api");
}

Status restrict_grpc(front::GrpcOptions& options, const std::string& value) {
  ASSIGN_OR_RETURN(auto group, parse_restricted(value, "protocol"));
  options.restrictions.push_back(
      {std::move(group.apis), std::move(group.key), std::move(group.value)});
  return check_groups(options.restrictions, &front::GrpcRestriction::protocols, "protocol");
}

Status add_cors_origin(front::HttpOptions& options, const std::string& value) {
  RETURN_IF_ERROR(front::Cors::create({value}).status());
  options.cors_origins.push_back(value);
  return ok();
}

Status add_allowed_host(front::HttpOptions& options, const std::string& value) {
  RETURN_IF_ERROR(front::AllowedHosts::check_name(value));
  options.allowed_hosts.push_back(value);
  return ok();
}

}  // namespace nereid::cli
