// Chooses among the instances of a model for a request: which has its prefix, and room for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "nereid/request.h"

namespace nereid::runtime {

// Properties of a request by which an instance is chosen.
struct RouteKeys {
  // Some leading parts of the prompt, shortest first: of every number of whole blocks up to 32,
  // then at distances of a sixteenth.
  struct Prefix {
    uint64_t hash = 0;
    int32_t num_blocks = 0;
  };
  std::vector<Prefix> prefixes;
  int64_t num_blocks = 0;           // of the prompt, the last one may be partial
  std::optional<uint64_t> adapter;  // hash of its id; none: no adapter
  bool brings_weights = false;      // of the adapter
};

// `tokens_per_block`: 0: instances have no prefix cache.
RouteKeys route_keys(const Request& request, int64_t tokens_per_block);

// Load of an instance at the moment.
struct InstanceLoad {
  bool is_healthy = false;
  bool has_queue_place = false;
  int64_t num_open = 0, max_batch_size = 0;  // sequences that have not ended; in a step
  int64_t num_free_blocks = 0;               // of the KV cache
};

// Remembers which instances recent prompts and adapters went to. Not thread-safe.
class InstanceRouter {
 public:
  static constexpr size_t kMaxInstances = 64;
  static constexpr size_t kBytesPerEntry = 96;  // of a list's node and its place in the map

  explicit InstanceRouter(size_t max_bytes = size_t{8} << 20)
      : max_entries_(max_bytes / kBytesPerEntry) {}

  // The healthy instance for a request; none: all that are healthy are in `excluded` (bits).
  // Among those with a place in the queue (if any), of these among those with room in the batch
  // and in the KV cache (if any), the one that has the least to do before the request decodes:
  // blocks of its prompt that are not cached there, and kBlocksPerSequence for each open sequence.
  // Equal ones: more free blocks, then by turns. A request with an adapter that came with an
  // earlier request goes where that one went, if that is possible.
  std::optional<size_t> choose(const RouteKeys& keys, std::span<const InstanceLoad> instances,
                               uint64_t excluded = 0);

  // The request goes to `instance`, which will have its prefix and its adapter.
  void sent(const RouteKeys& keys, size_t instance);

  // The instance has accepted the adapter's id alone, or does not have the adapter after all.
  void has_adapter(const RouteKeys& keys, size_t instance);
  void lacks_adapter(const RouteKeys& keys, size_t instance);

  // The instance was opened again, and has nothing.
  void forget(size_t instance);

  size_t num_entries() const { return entries_.size(); }

 private:
  static constexpr int64_t kBlocksPerSequence = 4;

  struct Entry {
    uint64_t hash = 0;
    uint64_t instances = 0;  // bits
  };

  const Entry* find(uint64_t hash) const;
  void add(uint64_t hash, size_t instance);
  std::vector<int64_t> cached_blocks(const RouteKeys& keys, size_t num_instances) const;

  const size_t max_entries_;
  std::list<Entry> entries_;  // most recently used first
  absl::flat_hash_map<uint64_t, std::list<Entry>::iterator> index_;
  size_t next_ = 0;  // whose turn it is
};

}  // namespace nereid::runtime
