// A cache for tests: keeps everything in a map, counts its calls. Setting "fail" = initialize,
// lookup or insert makes that call fail; "nocopy" makes lookups omit
// TRITONCACHE_Copy, "cut" the second half.
#include <map>
#include <mutex>
#include <string>

#include "triton/core/tritoncache.h"

namespace {

struct TestCache {
  std::mutex mutex;
  std::map<std::string, std::string> entries;
  std::string config;

  bool says(const char* text) const { return config.find(text) != std::string::npos; }
};

TestCache* of(TRITONCACHE_Cache* cache) { return reinterpret_cast<TestCache*>(cache); }

TRITONSERVER_Error* failure(const char* text) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, text);
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONCACHE_CacheInitialize(TRITONCACHE_Cache** cache, const char* config) {
  auto* made = new TestCache;
  made->config = config;
  if (made->says("\"fail\":\"initialize\"")) {
    delete made;
    return failure("told to fail");
  }
  *cache = reinterpret_cast<TRITONCACHE_Cache*>(made);
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheFinalize(TRITONCACHE_Cache* cache) {
  delete of(cache);
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheLookup(TRITONCACHE_Cache* cache, const char* key,
                                            TRITONCACHE_CacheEntry* entry,
                                            TRITONCACHE_Allocator* allocator) {
  TestCache& self = *of(cache);
  std::lock_guard lock(self.mutex);
  const auto it = self.entries.find(key);
  if (it == self.entries.end()) {
    return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "not there");
  }
  if (self.says("\"fail\":\"lookup\"")) return failure("told to fail");
  if (self.says("\"fail\":\"nocopy\"")) return nullptr;
  // Two buffers, as a cache may use.
  const size_t half = it->second.size() / 2;
  for (size_t begin : {size_t{0}, half}) {
    TRITONSERVER_BufferAttributes* attributes = nullptr;
    TRITONSERVER_BufferAttributesNew(&attributes);
    TRITONSERVER_BufferAttributesSetMemoryType(attributes, TRITONSERVER_MEMORY_CPU);
    TRITONSERVER_BufferAttributesSetByteSize(attributes,
                                             begin == 0 ? half : it->second.size() - half);
    TRITONCACHE_CacheEntryAddBuffer(entry, it->second.data() + begin, attributes);
    TRITONSERVER_BufferAttributesDelete(attributes);
    if (self.says("\"fail\":\"cut\"")) break;
  }
  return TRITONCACHE_Copy(allocator, entry);
}

TRITONSERVER_Error* TRITONCACHE_CacheInsert(TRITONCACHE_Cache* cache, const char* key,
                                            TRITONCACHE_CacheEntry* entry,
                                            TRITONCACHE_Allocator* allocator) {
  TestCache& self = *of(cache);
  if (self.says("\"fail\":\"insert\"")) return failure("told to fail");
  size_t count = 0;
  TRITONCACHE_CacheEntryBufferCount(entry, &count);
  if (count != 1) return failure("expected one buffer");
  TRITONSERVER_BufferAttributes* attributes = nullptr;
  TRITONSERVER_BufferAttributesNew(&attributes);
  void* base = nullptr;
  TRITONCACHE_CacheEntryGetBuffer(entry, 0, &base, attributes);
  size_t size = 0;
  TRITONSERVER_BufferAttributesByteSize(attributes, &size);
  TRITONSERVER_BufferAttributesDelete(attributes);
  std::string bytes(size, '\0');
  TRITONCACHE_CacheEntrySetBuffer(entry, 0, bytes.data(), nullptr);
  if (TRITONSERVER_Error* error = TRITONCACHE_Copy(allocator, entry)) return error;
  std::lock_guard lock(self.mutex);
  self.entries[key] = std::move(bytes);
  return nullptr;
}

}  // extern "C"
