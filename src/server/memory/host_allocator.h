// Output buffers in host memory, for requests that the core itself makes.
#pragma once

#include "server/request/request.h"

namespace nereid::server {

// The only instance; never destroyed.
ResponseAllocator* host_allocator();

}  // namespace nereid::server
