// The rpcs of the server: inference, control, health and reflection.
#pragma once

#include <functional>

#include "base/status.h"
#include "front/grpc/call.h"
#include "front/grpc/options.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

class Workers;

// All rpcs by path. `server` must outlive them; `stopping` tells health checks; `workers` read
// large requests. InvalidArgument when a pattern or restriction of the options is not valid.
StatusOr<MethodTable> make_methods(TRITONSERVER_Server* server, const GrpcOptions& options,
                                   std::function<bool()> stopping, Workers* workers = nullptr);

}  // namespace nereid::front
