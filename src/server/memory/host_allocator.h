// Output buffers in plain host memory, for requests that the core itself makes.
#pragma once

#include "server/request/request.h"

namespace nereid::server {

// Shared by all; never destroyed.
ResponseAllocator* host_allocator();

}  // namespace nereid::server
