#include "server/memory/host_allocator.h"

#include <cstdlib>

#include "server/api/error.h"
#include "server/memory/client_memory.h"

namespace nereid::server {
namespace {

TRITONSERVER_Error* allocate_host(TRITONSERVER_ResponseAllocator*, const char*, size_t byte_size,
                                  TRITONSERVER_MemoryType, int64_t, void*, void** buffer,
                                  void** buffer_userp, TRITONSERVER_MemoryType* memory_type,
                                  int64_t* memory_type_id) {
  if (TRITONSERVER_Error* error = ClientMemory::hold(byte_size)) return error;
  *buffer = byte_size == 0 ? nullptr : std::malloc(byte_size);
  *buffer_userp = nullptr;
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  if (byte_size > 0 && *buffer == nullptr) {
    ClientMemory::release(byte_size);
    return to_error(resource_exhausted("out of memory for a tensor of {} bytes", byte_size));
  }
  return nullptr;
}

TRITONSERVER_Error* release_host(TRITONSERVER_ResponseAllocator*, void* buffer, void*,
                                 size_t byte_size, TRITONSERVER_MemoryType, int64_t) {
  std::free(buffer);
  ClientMemory::release(byte_size);
  return nullptr;
}

// The preferred memory is ignored: outputs are in main memory.
TRITONSERVER_Error* place_host(TRITONSERVER_ResponseAllocator*, void*, const char*, size_t*,
                               TRITONSERVER_MemoryType* memory_type, int64_t* memory_type_id) {
  *memory_type = TRITONSERVER_MEMORY_CPU;
  *memory_type_id = 0;
  return nullptr;
}

}  // namespace

ResponseAllocator* host_allocator() {
  static ResponseAllocator allocator = [] {
    ResponseAllocator a;
    a.alloc = allocate_host;
    a.release = release_host;
    a.query = place_host;
    return a;
  }();
  return &allocator;
}

}  // namespace nereid::server
