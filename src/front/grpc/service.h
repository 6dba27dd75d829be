// The rpcs of the server: inference, control, health and reflection.
#pragma once

#include <functional>

#include "base/status.h"
#include "front/grpc/call.h"
#include "front/grpc/options.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

class Workers;

// All rpcs by path. `server` must outlive them; `stopping` makes health checks fail; `workers`
// parse large requests. InvalidArgument: an invalid pattern or restriction in the options.
StatusOr<MethodTable> make_methods(TRITONSERVER_Server* server, const GrpcOptions& options,
                                   std::function<bool()> stopping, Workers* workers = nullptr);

}  // namespace nereid::front
