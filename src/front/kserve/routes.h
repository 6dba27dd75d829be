// KServe v2 routes: health, metadata, configuration, generate and generate_stream.
#pragma once

#include <functional>

#include "base/status.h"
#include "front/http/router.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// `draining` turns readiness and liveness into 503 "Server exiting". `server` must outlive the
// router.
void add_kserve_routes(Router& router, TRITONSERVER_Server* server, std::function<bool()> draining);

// {"error": "..."} with the status that belongs to the error's code (503 has Retry-After).
Response kserve_error(const Status& status);
Response kserve_error(int status, std::string_view message);

}  // namespace nereid::front
