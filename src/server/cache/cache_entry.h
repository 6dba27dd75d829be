// What the opaque types of tritoncache.h point at.
#pragma once

#include <string>
#include <vector>

#include "server/api/values.h"
#include "triton/core/tritoncache.h"

// Buffers of one cached response; the memory is the cache's or the core's.
struct TRITONCACHE_CacheEntry {
  struct Buffer {
    void* base = nullptr;
    TRITONSERVER_BufferAttributes attributes;
  };
  std::vector<Buffer> buffers;
};

// Where TRITONCACHE_Copy copies: a lookup's to `to`, an insertion's from `from`.
struct TRITONCACHE_Allocator {
  std::string* to = nullptr;
  const std::string* from = nullptr;
  bool done = false;
};
