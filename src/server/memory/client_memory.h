// Memory that the core and backends take for requests of clients, counted by whoever runs the front
// ends: see NEREID_ServerCountMemory.
#pragma once

#include <cstddef>

#include "nereid/server.h"

namespace nereid::server {

// One for the process, because an allocator names no server. Any thread.
struct ClientMemory {
  static void count_with(NEREID_HoldMemoryFn_t hold, NEREID_ReleaseMemoryFn_t release, void* userp);
  // Null: counted, if anybody counts.
  static TRITONSERVER_Error* hold(size_t num_bytes);
  static void release(size_t num_bytes);
};

}  // namespace nereid::server
