// The model repository extension: index, load, unload.
#pragma once

#include "front/http/router.h"
#include "triton/core/tritonserver.h"

namespace nereid::front {

// Loads and unloads run on threads of their own: they may take minutes.
void add_repository_routes(Router& router, TRITONSERVER_Server* server);

}  // namespace nereid::front
