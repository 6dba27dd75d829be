// Who may use the routes of a port, and errors in the shapes of its APIs.
#pragma once

#include <string_view>

#include "base/status.h"
#include "front/http/router.h"
#include "front/server.h"

namespace nereid::front {

// What a client of that API reads as an error. 429 and 503 have Retry-After.
Response error_in_shape(ErrorShape shape, int status, std::string_view message);

// Sets guard and last headers of the API's port. InvalidArgument: an origin, a host or an API is
// not valid.
Status set_access(const HttpOptions& options, Router& router);

// The guard of the port of metrics, which listens on `host`: nothing but the names that it answers
// to.
Status set_metrics_access(const HttpOptions& options, const std::string& host, Router& router);

}  // namespace nereid::front
