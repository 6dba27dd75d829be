// Routes that change how the server logs and traces.
#pragma once

#include <memory>

#include "front/http/router.h"
#include "front/trace/tracer.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

class Extensions;

// GET and POST /v2/logging.
void add_logging_routes(Router& router, std::shared_ptr<Extensions> extensions);

// GET and POST /v2/trace/setting and its form for one model. A trace file cannot be named over the
// network.
void add_trace_routes(Router& router, std::shared_ptr<Tracer> tracer);

}  // namespace nereid::front
