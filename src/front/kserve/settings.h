// Routes for the server's log and trace settings.
#pragma once

#include <memory>

#include "front/http/router.h"
#include "front/trace/tracer.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

class Extensions;

// GET and POST /v2/logging.
void add_logging_routes(Router& router, std::shared_ptr<Extensions> extensions);

// GET and POST /v2/trace/setting, and the same for one model. A trace file cannot be
// set over the network.
void add_trace_routes(Router& router, std::shared_ptr<Tracer> tracer);

}  // namespace nereid::front
