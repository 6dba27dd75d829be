// The local response cache: what models answered, by what they were asked, least recently used out
// first.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/request.h"
#include "server/response.h"

namespace nereid::server {

struct CachedOutput {
  std::string name;
  TRITONSERVER_DataType datatype = TRITONSERVER_TYPE_INVALID;
  std::vector<int64_t> shape;
  std::string bytes;
};

struct CachedResponse {
  std::vector<CachedOutput> outputs;
  std::vector<TRITONSERVER_Parameter> parameters;
  size_t byte_size() const;
};

class ResponseCache {
 public:
  // 128 bits: an accidental collision is out of the question.
  using Key = std::pair<uint64_t, uint64_t>;

  // Totals since the start, and what is in the cache now.
  struct Stats {
    uint64_t max_bytes = 0, num_bytes = 0, num_entries = 0;
    uint64_t num_lookups = 0, num_hits = 0, num_evictions = 0, lookup_ns = 0, insertion_ns = 0;
  };

  explicit ResponseCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  Stats stats() const;
  std::shared_ptr<const CachedResponse> find(const Key& key);
  // Larger than the cache: not kept.
  void insert(const Key& key, std::shared_ptr<const CachedResponse> response);

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const CachedResponse> response;
  };
  struct Hash {
    size_t operator()(const Key& key) const { return key.first; }
  };

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  size_t num_bytes_ = 0;
  Stats totals_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator, Hash> index_;
};

// Answers `request`, which was accepted, from the cache: true, and it is released. Otherwise its
// response, if it is one without error, will be kept when it comes.
bool answer_from_cache(ResponseCache& cache, InferenceRequest* request,
                       const std::shared_ptr<ResponseContext>& context);

}  // namespace nereid::server
