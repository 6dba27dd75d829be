// Memory that the core and backends hold for requests, counted by the owner of the front
// ends: see NEREID_ServerCountMemory.
#pragma once

#include <cstddef>

#include "nereid/server.h"

namespace nereid::server {

// One counter for the process, since an allocator names no server. Any thread.
struct ClientMemory {
  static void count_with(NEREID_HoldMemoryFn_t hold, NEREID_ReleaseMemoryFn_t release, void* userp);
  // Counts bytes before they are allocated, if a counter is set. Null: accepted.
  static TRITONSERVER_Error* hold(size_t num_bytes);
  static void release(size_t num_bytes);
};

}  // namespace nereid::server
