// Host cache of a model's adapters, by task id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "nereid/config.h"
#include "nereid/stats.h"
#include "runtime/adapters/adapter.h"

namespace nereid::runtime {

// LRU cache; adapters in use are not evicted. Thread-safe.
class AdapterCache {
 public:
  AdapterCache(AdapterBounds bounds, size_t max_bytes)
      : bounds_(std::move(bounds)), max_bytes_(max_bytes) {}

  // Loads an adapter that is never evicted. Errors as read_adapter(); InvalidArgument: the id is
  // taken; ResourceExhausted: no room beside the others.
  Status load(const LoraDirectory& directory);

  // Loads the adapters in the subdirectories of `folder`, named by task id in decimal; they may be
  // evicted. Errors as load(); InvalidArgument: other names, or an unreadable folder.
  Status prefetch(const std::filesystem::path& folder);

  // The adapter of a request, by id or from its tensors. InvalidArgument: the model has no adapter
  // support, the id is unknown (or evicted) and there is no folder, the id has other weights, or
  // wrong shapes; ResourceExhausted: no room beside adapters in use.
  StatusOr<std::shared_ptr<const Adapter>> find(const LoraConfig& lora);

  // Adds the statistics of the host cache.
  void add_stats(AdapterStats& stats) const;

 private:
  struct Entry {
    std::shared_ptr<const Adapter> adapter;
    int64_t last_use = 0;
    bool stays = false;
  };

  // Null: not cached.
  std::shared_ptr<const Adapter> use(uint64_t task_id);
  Status put(std::shared_ptr<const Adapter> adapter, bool stays);

  const AdapterBounds bounds_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;  // guards the rest
  absl::flat_hash_map<uint64_t, Entry> entries_;
  size_t bytes_ = 0;
  int64_t num_uses_ = 0, num_hits_ = 0, num_misses_ = 0, num_evictions_ = 0;
};

}  // namespace nereid::runtime
