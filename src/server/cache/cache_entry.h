// The objects behind the opaque types of tritoncache.h.
#pragma once

#include <string>
#include <vector>

#include "server/api/values.h"
#include "triton/core/tritoncache.h"

// Buffers of one cached response; the memory is owned by the cache or the core.
struct TRITONCACHE_CacheEntry {
  struct Buffer {
    void* base = nullptr;
    TRITONSERVER_BufferAttributes attributes;
  };
  std::vector<Buffer> buffers;
};

// The copy of TRITONCACHE_Copy: a lookup copies to `to`, an insertion from `from`.
struct TRITONCACHE_Allocator {
  std::string* to = nullptr;
  const std::string* from = nullptr;
  bool done = false;
};
