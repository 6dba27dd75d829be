// The built-in cache: byte strings in host memory, LRU eviction; see cache.h.
#include <charconv>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "server/api/error.h"
#include "server/cache/cache.h"
#include "server/cache/cache_entry.h"

namespace nereid::server {
namespace {

constexpr size_t kEntryOverhead = 256;  // bytes of bookkeeping per entry, estimated

class LocalCache {
 public:
  explicit LocalCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Copies under the lock, which keeps the entry alive.
  Status lookup(const std::string& key, TRITONCACHE_CacheEntry* entry,
                TRITONCACHE_Allocator* allocator) {
    std::lock_guard lock(mutex_);
    const auto it = index_.find(key);
    if (it == index_.end()) return not_found("key not found in cache");
    entries_.splice(entries_.begin(), entries_, it->second);
    std::string& bytes = it->second->bytes;
    entry->buffers.push_back({bytes.data(), {TRITONSERVER_MEMORY_CPU, 0, bytes.size(), {}}});
    return copy(allocator, entry);
  }

  Status insert(const std::string& key, TRITONCACHE_CacheEntry* entry,
                TRITONCACHE_Allocator* allocator) {
    size_t size = 0;
    for (const auto& b : entry->buffers) size += b.attributes.byte_size;
    const size_t charge = size + key.size() + kEntryOverhead;
    std::lock_guard lock(mutex_);
    if (index_.contains(key)) return already_exists("key is in the cache already");
    if (size > max_bytes_ || charge > max_bytes_) return ok();  // too large to be cached
    Entry made{key, std::string(size, '\0'), charge};
    size_t at = 0;
    for (auto& b : entry->buffers) {
      b.base = made.bytes.data() + at;
      at += b.attributes.byte_size;
    }
    RETURN_IF_ERROR(copy(allocator, entry));
    while (num_bytes_ + charge > max_bytes_) {
      ++num_evictions_;
      num_bytes_ -= entries_.back().charge;
      index_.erase(entries_.back().key);
      entries_.pop_back();
    }
    num_bytes_ += charge;
    entries_.push_front(std::move(made));
    index_[key] = entries_.begin();
    return ok();
  }

  void add_stats(ResponseCache::Stats& stats) {
    std::lock_guard lock(mutex_);
    stats.max_bytes = max_bytes_;
    stats.num_bytes = num_bytes_;
    stats.num_entries = entries_.size();
    stats.num_evictions = num_evictions_;
  }

 private:
  struct Entry {
    std::string key, bytes;
    size_t charge;
  };

  static Status copy(TRITONCACHE_Allocator* allocator, TRITONCACHE_CacheEntry* entry) {
    TRITONSERVER_Error* error = TRITONCACHE_Copy(allocator, entry);
    Status status = to_status(error);
    free_error(error);
    return status;
  }

  const size_t max_bytes_;
  std::mutex mutex_;
  size_t num_bytes_ = 0;
  uint64_t num_evictions_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
};

TRITONSERVER_Error* initialize(TRITONCACHE_Cache** cache, const char* config) {
  const auto parsed = parse_json(config);
  const json::value* size =
      !parsed.ok() || !parsed->is_object() ? nullptr : parsed->get_object().if_contains("size");
  const std::string text =
      size != nullptr && size->is_string() ? std::string(size->get_string()) : std::string();
  size_t bytes = 0;
  const char* end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, bytes);
  if (number.ec != std::errc() || number.ptr != end) {
    return to_error(invalid_argument(
        "cache 'local': \"size\" must be a number of bytes as a string, got {}", config));
  }
  for (const auto& member : parsed->get_object()) {
    if (member.key() == "size") continue;
    return to_error(invalid_argument("cache 'local': unknown setting '{}', allowed is 'size'",
                                     std::string_view(member.key())));
  }
  *cache = reinterpret_cast<TRITONCACHE_Cache*>(new LocalCache(bytes));
  return nullptr;
}

TRITONSERVER_Error* finalize(TRITONCACHE_Cache* cache) {
  delete reinterpret_cast<LocalCache*>(cache);
  return nullptr;
}

TRITONSERVER_Error* lookup(TRITONCACHE_Cache* cache, const char* key, TRITONCACHE_CacheEntry* entry,
                           TRITONCACHE_Allocator* allocator) {
  return to_error(reinterpret_cast<LocalCache*>(cache)->lookup(key, entry, allocator));
}

TRITONSERVER_Error* insert(TRITONCACHE_Cache* cache, const char* key, TRITONCACHE_CacheEntry* entry,
                           TRITONCACHE_Allocator* allocator) {
  return to_error(reinterpret_cast<LocalCache*>(cache)->insert(key, entry, allocator));
}

}  // namespace

void add_local_cache_stats(TRITONCACHE_Cache* cache, ResponseCache::Stats& stats) {
  reinterpret_cast<LocalCache*>(cache)->add_stats(stats);
}

const CacheFunctions& local_cache_functions() {
  static const CacheFunctions functions{initialize, finalize, lookup, insert};
  return functions;
}

}  // namespace nereid::server
