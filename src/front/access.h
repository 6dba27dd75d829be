// Access to the routes of a port, and errors in the shapes of its APIs.
#pragma once

#include <string_view>

#include "base/status.h"
#include "front/http/router.h"
#include "front/server.h"

namespace nereid::front {

// An error body as clients of that API parse it. 429 and 503 have Retry-After.
Response error_in_shape(ErrorShape shape, int status, std::string_view message);

// Sets guard and final headers of the API port. InvalidArgument: an invalid origin, host or API.
Status set_access(const HttpOptions& options, Router& router);

// The guard of the metrics port, which listens on `host`: checks only the Host header.
Status set_metrics_access(const HttpOptions& options, const std::string& host, Router& router);

}  // namespace nereid::front
