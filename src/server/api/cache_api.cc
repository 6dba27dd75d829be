// C API for caches: the entry objects that a cache fills and reads.
#include "base/copy_bytes.h"
#include "server/api/accessors.h"
#include "server/api/error.h"
#include "server/cache/cache_entry.h"

using namespace nereid;          // NOLINT: this file is the C face of what is in there
using namespace nereid::server;  // NOLINT

namespace {

TRITONSERVER_Error* check(const TRITONCACHE_CacheEntry* entry, size_t index) {
  if (entry == nullptr) return to_error(invalid_argument("entry was nullptr"));
  if (index < entry->buffers.size()) return nullptr;
  return to_error(invalid_argument("index {} is not below the entry's {} buffers", index,
                                   entry->buffers.size()));
}

}  // namespace

TRITONSERVER_Error* TRITONCACHE_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = TRITONCACHE_API_VERSION_MAJOR;
  *minor = TRITONCACHE_API_VERSION_MINOR;
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheEntryNew(TRITONCACHE_CacheEntry** entry) try {
  *entry = new TRITONCACHE_CacheEntry;
  return nullptr;
}
NEREID_CATCH

NEREID_DELETER(TRITONCACHE_CacheEntryDelete, TRITONCACHE_CacheEntry, x)

TRITONSERVER_Error* TRITONCACHE_CacheEntryBufferCount(TRITONCACHE_CacheEntry* entry,
                                                      size_t* count) try {
  if (entry == nullptr || count == nullptr) {
    return to_error(invalid_argument("entry or count was nullptr"));
  }
  *count = entry->buffers.size();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONCACHE_CacheEntryAddBuffer(
    TRITONCACHE_CacheEntry* entry, void* base,
    TRITONSERVER_BufferAttributes* buffer_attributes) try {
  if (entry == nullptr || base == nullptr || buffer_attributes == nullptr) {
    return to_error(invalid_argument("entry, base or buffer_attributes was nullptr"));
  }
  entry->buffers.push_back({base, *buffer_attributes});
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONCACHE_CacheEntryGetBuffer(
    TRITONCACHE_CacheEntry* entry, size_t index, void** base,
    TRITONSERVER_BufferAttributes* buffer_attributes) try {
  if (auto* error = check(entry, index)) return error;
  if (base == nullptr || buffer_attributes == nullptr) {
    return to_error(invalid_argument("base or buffer_attributes was nullptr"));
  }
  *base = entry->buffers[index].base;
  *buffer_attributes = entry->buffers[index].attributes;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONCACHE_CacheEntrySetBuffer(
    TRITONCACHE_CacheEntry* entry, size_t index, void* new_base,
    TRITONSERVER_BufferAttributes* buffer_attributes) try {
  if (auto* error = check(entry, index)) return error;
  if (new_base == nullptr) return to_error(invalid_argument("new_base was nullptr"));
  entry->buffers[index].base = new_base;
  if (buffer_attributes != nullptr) entry->buffers[index].attributes = *buffer_attributes;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONCACHE_Copy(TRITONCACHE_Allocator* allocator,
                                     TRITONCACHE_CacheEntry* entry) try {
  if (allocator == nullptr || entry == nullptr) {
    return to_error(invalid_argument("allocator or entry was nullptr"));
  }
  size_t total = 0;
  for (const auto& b : entry->buffers) {
    if (b.attributes.memory_type == TRITONSERVER_MEMORY_GPU) {
      return to_error(unsupported("cache entries in device memory are not supported"));
    }
    if (b.base == nullptr && b.attributes.byte_size > 0) {
      return to_error(invalid_argument("a buffer of the cache entry has no memory"));
    }
    total += b.attributes.byte_size;
  }
  if (allocator->to != nullptr) {
    allocator->to->clear();
    allocator->to->reserve(total);
    for (const auto& b : entry->buffers) {
      allocator->to->append(static_cast<const char*>(b.base), b.attributes.byte_size);
    }
  } else {
    if (total != allocator->from->size()) {
      return to_error(invalid_argument("the cache entry holds {} bytes, the response has {}", total,
                                       allocator->from->size()));
    }
    const char* from = allocator->from->data();
    for (auto& b : entry->buffers) {
      // Without a copy of its own the entry still refers to the core's bytes.
      if (b.base != from) copy_bytes(b.base, from, b.attributes.byte_size);
      from += b.attributes.byte_size;
    }
  }
  allocator->done = true;
  return nullptr;
}
NEREID_CATCH
