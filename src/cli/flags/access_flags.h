// Flags about who may use the ports, of `tritonserver` and `nereid serve` alike. Each function
// takes one flag's value; InvalidArgument says what is wrong with it.
#pragma once

#include <string>

#include "base/status.h"
#include "front/grpc/options.h"
#include "front/server.h"

namespace nereid::cli {

// "API,..:KEY=VALUE"; an API may be in one group only.
Status restrict_http(front::HttpOptions& options, const std::string& value);
Status restrict_grpc(front::GrpcOptions& options, const std::string& value);

Status add_cors_origin(front::HttpOptions& options, const std::string& value);
Status add_allowed_host(front::HttpOptions& options, const std::string& value);

}  // namespace nereid::cli
