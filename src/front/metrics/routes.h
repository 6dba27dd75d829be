// The /metrics page of the metrics listener.
#pragma once

#include <functional>
#include <string>

#include "front/http/router.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// GET /metrics and /metrics/: the server's families, then process metrics, then `extra()`.
void add_metrics_routes(Router& router, TRITONSERVER_Server* server,
                        std::function<std::string()> extra);

}  // namespace nereid::front
