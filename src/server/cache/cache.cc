// Loads and calls cache implementations; see cache.h.
#include "server/cache/cache.h"

#include <dlfcn.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "server/api/error.h"
#include "server/cache/cache_entry.h"
#include "server/symbols.h"

namespace nereid::server {
namespace {

template <class Fn>
Status require_symbol(void* handle, const char* symbol, const std::filesystem::path& path,
                      Fn& out) {
  find_symbol(handle, symbol, out);
  if (out != nullptr) return ok();
  return not_found("unable to find required entrypoint '{}' in {}", symbol, path.string());
}

StatusOr<CacheFunctions> load(const std::string& name, const std::filesystem::path& dir) {
  if (name.empty() || name.find('/') != std::string::npos || name.find("..") != std::string::npos) {
    return invalid_argument("cache '{}': not a name", name);
  }
  const auto path = dir / name / ("libtritoncache_" + name + ".so");
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return not_found("unable to find '{}' for cache. Searched: {}; built in is 'local'",
                     path.filename().string(), path.parent_path().string());
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return not_found("unable to load shared library: {}", dlerror());
  CacheFunctions out;
  RETURN_IF_ERROR(require_symbol(handle, "TRITONCACHE_CacheInitialize", path, out.initialize));
  RETURN_IF_ERROR(require_symbol(handle, "TRITONCACHE_CacheFinalize", path, out.finalize));
  RETURN_IF_ERROR(require_symbol(handle, "TRITONCACHE_CacheLookup", path, out.lookup));
  RETURN_IF_ERROR(require_symbol(handle, "TRITONCACHE_CacheInsert", path, out.insert));
  return out;
}

}  // namespace

StatusOr<std::unique_ptr<ResponseCache>> ResponseCache::open(const std::string& name,
                                                             const std::string& config,
                                                             const std::filesystem::path& dir) {
  CacheFunctions functions = local_cache_functions();
  if (name != "local") {
    ASSIGN_OR_RETURN(functions, load(name, dir));
  }
  std::unique_ptr<ResponseCache> cache(new ResponseCache(name, functions));
  RETURN_IF_ERROR(take(functions.initialize(&cache->cache_, config.c_str())));
  if (cache->cache_ == nullptr) {
    return internal_error("cache '{}' initialised without making a cache", name);
  }
  log_info("response cache '{}'{}", name, name == "local" ? " (built in)" : "");
  return cache;
}

ResponseCache::~ResponseCache() {
  if (cache_ == nullptr) return;
  if (Status s = take(functions_.finalize(cache_)); !s.ok()) {
    log_error("cache '{}': finalize: {}", name_, message(s));
  }
}

std::optional<std::string> ResponseCache::find(const std::string& key) {
  TRITONCACHE_CacheEntry entry;
  std::string bytes;
  TRITONCACHE_Allocator allocator;
  allocator.to = &bytes;
  const uint64_t start = now_ns();
  const Status status = take(functions_.lookup(cache_, key.c_str(), &entry, &allocator));
  {
    std::lock_guard lock(mutex_);
    ++totals_.num_lookups;
    if (status.ok() && allocator.done) ++totals_.num_hits;
    totals_.lookup_ns += now_ns() - start;
  }
  if (!status.ok()) {
    static LogLimit log;
    if (!absl::IsNotFound(status)) log.error("cache '{}': lookup: {}", name_, message(status));
    return std::nullopt;
  }
  if (!allocator.done) {
    static LogLimit log;
    log.error("cache '{}': lookup succeeded without TRITONCACHE_Copy", name_);
    return std::nullopt;
  }
  return bytes;
}

void ResponseCache::insert(const std::string& key, std::string bytes) {
  TRITONCACHE_CacheEntry entry;
  entry.buffers.push_back({bytes.data(), {TRITONSERVER_MEMORY_CPU, 0, bytes.size(), {}}});
  TRITONCACHE_Allocator allocator;
  allocator.from = &bytes;
  const uint64_t start = now_ns();
  const Status status = take(functions_.insert(cache_, key.c_str(), &entry, &allocator));
  {
    std::lock_guard lock(mutex_);
    totals_.insertion_ns += now_ns() - start;
  }
  // AlreadyExists: another request has inserted it meanwhile.
  if (!status.ok() && !absl::IsAlreadyExists(status)) {
    static LogLimit log;
    log.warn("cache '{}': insert: {}", name_, message(status));
  }
}

ResponseCache::Stats ResponseCache::stats() const {
  Stats out;
  {
    std::lock_guard lock(mutex_);
    out = totals_;
  }
  if (name_ == "local") add_local_cache_stats(cache_, out);
  return out;
}

}  // namespace nereid::server
