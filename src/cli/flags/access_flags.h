// Flags for access to the ports, shared by `tritonserver` and `nereid serve`. Each function parses
// one flag's value; InvalidArgument names the fault.
#pragma once

#include <string>

#include "base/status.h"
#include "front/grpc/options.h"
#include "front/server.h"

namespace nereid::cli {

// Parses "API,..:KEY=VALUE"; an API may be in one group only.
Status restrict_http(front::HttpOptions& options, const std::string& value);
Status restrict_grpc(front::GrpcOptions& options, const std::string& value);

Status add_cors_origin(front::HttpOptions& options, const std::string& value);
Status add_allowed_host(front::HttpOptions& options, const std::string& value);

}  // namespace nereid::cli
