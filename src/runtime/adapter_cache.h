// The adapters of a model in host memory, by task id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "nereid/config.h"
#include "nereid/stats.h"
#include "runtime/adapter.h"

namespace nereid::runtime {

// Evicts the adapter that was named longest ago, but none that is in use. For any thread.
class AdapterCache {
 public:
  AdapterCache(AdapterBounds bounds, size_t max_bytes)
      : bounds_(std::move(bounds)), max_bytes_(max_bytes) {}

  // Takes in one that stays. Errors as read_adapter(); InvalidArgument: the id is taken;
  // ResourceExhausted: it does not fit beside the others.
  Status load(const LoraDirectory& directory);

  // Takes in those of a folder with directories, each named by its task id in decimal; they may be
  // evicted. Errors as load(); InvalidArgument: another name, or the folder cannot be read.
  Status prefetch(const std::filesystem::path& folder);

  // What a request names or brings along. InvalidArgument: the model takes none, the id is unknown
  // (or has been evicted) and there is no folder, other weights have it, or the weights are
  // ill-shaped; ResourceExhausted: it does not fit beside those in use.
  StatusOr<std::shared_ptr<const Adapter>> find(const LoraConfig& lora);

  // Adds what there is to know of the host cache.
  void tell(AdapterStats& stats) const;

 private:
  struct Entry {
    std::shared_ptr<const Adapter> adapter;
    int64_t last_use = 0;
    bool stays = false;
  };

  // Null: it is not there.
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
