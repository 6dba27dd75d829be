// The /metrics page, on the metrics listener and beside the API.
#pragma once

#include <functional>
#include <string>

#include "front/http/router.h"
#include "front/http/workers.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// GET /metrics and /metrics/: the server's families, then process metrics, then `extra()`; made on
// a worker, since a page of many models takes milliseconds.
void add_metrics_routes(Router& router, TRITONSERVER_Server* server, Workers& workers,
                        std::function<std::string()> extra);

}  // namespace nereid::front
