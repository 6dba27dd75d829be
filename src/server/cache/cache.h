// A response cache behind the TRITONCACHE API: a shared object, or the built-in "local".
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.h"
#include "triton/core/tritoncache.h"

namespace nereid::server {

// Functions of a cache implementation.
struct CacheFunctions {
  decltype(&TRITONCACHE_CacheInitialize) initialize = nullptr;
  decltype(&TRITONCACHE_CacheFinalize) finalize = nullptr;
  decltype(&TRITONCACHE_CacheLookup) lookup = nullptr;
  decltype(&TRITONCACHE_CacheInsert) insert = nullptr;
};

// The built-in cache: byte strings by key in host memory with LRU eviction; "size" of its
// configuration is the capacity in bytes.
const CacheFunctions& local_cache_functions();

class ResponseCache {
 public:
  // Totals since start, and the present contents. Bytes, entries and evictions are those of the
  // built-in cache; 0 for others.
  struct Stats {
    uint64_t max_bytes = 0, num_bytes = 0, num_entries = 0;
    uint64_t num_lookups = 0, num_hits = 0, num_evictions = 0, lookup_ns = 0, insertion_ns = 0;
  };

  // Opens "local", or <dir>/<name>/libtritoncache_<name>.so, which stays loaded. `config` is a JSON
  // object of strings.
  static StatusOr<std::unique_ptr<ResponseCache>> open(const std::string& name,
                                                       const std::string& config,
                                                       const std::filesystem::path& dir);
  ~ResponseCache();
  ResponseCache(const ResponseCache&) = delete;
  ResponseCache& operator=(const ResponseCache&) = delete;

  const std::string& name() const { return name_; }
  // nullopt: not found. Errors of the cache are logged and count as that. Thread safe if
  // the implementation is.
  std::optional<std::string> find(const std::string& key);
  void insert(const std::string& key, std::string bytes);
  Stats stats() const;

 private:
  ResponseCache(std::string name, const CacheFunctions& functions)
      : name_(std::move(name)), functions_(functions) {}

  const std::string name_;
  const CacheFunctions functions_;
  TRITONCACHE_Cache* cache_ = nullptr;
  mutable std::mutex mutex_;
  Stats totals_;
};

// Fills in the statistics of the built-in cache.
void add_local_cache_stats(TRITONCACHE_Cache* cache, ResponseCache::Stats& stats);

}  // namespace nereid::server
