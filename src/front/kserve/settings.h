// Routes that change how the server logs and traces.
#pragma once

#include <memory>

#include "front/http/router.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

class Extensions;

// GET and POST /v2/logging.
void add_logging_routes(Router& router, std::shared_ptr<Extensions> extensions);

// GET and POST /v2/trace/setting and its form for one model. A trace file cannot be named over the
// network, and the server has none from its start: trace levels other than OFF are refused.
void add_trace_routes(Router& router, TRITONSERVER_Server* server);

}  // namespace nereid::front
