// Adapter slots and pages of the device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exec/adapter_pool.h"
#include "exec/step_message.h"
#include "nereid/request.h"
#include "nereid/stats.h"
#include "runtime/adapters/adapter.h"

namespace nereid::runtime {

// An adapter occupies a slot and consecutive pages. Its weights are loaded in parts, a bounded
// number per step; its sequences wait for the last part. Engine thread only.
class AdapterSlots {
 public:
  // `max_weights` per step: exec::max_load_weights().
  AdapterSlots(int32_t num_places, int32_t num_pages, int64_t max_weights)
      : places_(static_cast<size_t>(num_places)),
        num_pages_(num_pages),
        max_weights_(max_weights) {}

  // Binds an adapter to a sequence until close(); close() without open() does nothing.
  void open(RequestId id, std::shared_ptr<const Adapter> adapter);
  void close(RequestId id);
  bool empty() const { return adapters_.empty(); }  // no sequence has one

  // A sequence with memory, and its adapter's key. The scheduler guarantees slots and pages for all
  // of them together.
  struct Use {
    RequestId id = 0;
    uint64_t key = 0;
  };

  // Whether steps after those filled by advance() may use the adapter.
  bool is_loaded(uint64_t key) const;

  // Adds to the step loads for missing adapters of `running`, first come, first served; true: the
  // step has loads or moves. Adapters without a sequence in `running` are evicted, least recently
  // used first. If free pages are not consecutive, used ones are moved to the front, about as many
  // numbers per step as it may load, before the next load.
  bool advance(std::span<const Use> running, exec::StepMessage& step);

  // The slot of a sequence's loaded adapter; -1: no adapter.
  int32_t slot_of(RequestId id);

  // After a failed step: the loads of later steps may be lost, so all slots are emptied.
  void forget();

  // Adds the statistics of the adapter slots.
  void add_stats(AdapterStats& stats) const;

 private:
  struct Slot {
    uint64_t key = 0;  // 0: empty
    int64_t last_use = 0;
    int32_t first_page = 0, num_pages = 0;
    bool is_loaded = false;
  };
  // The adapter being loaded.
  struct Loading {
    std::shared_ptr<const Adapter> adapter;
    size_t place = 0;
    int64_t next_weight = 0;
  };

  std::shared_ptr<const Adapter> next_missing(std::span<const Use> running) const;
  bool find_room(const std::shared_ptr<const Adapter>& adapter, std::span<const Use> running,
                 exec::StepMessage& step);
  // Evicts the least recently used adapter that is not in `running`; false: none.
  bool evict(std::span<const Use> running);
  std::optional<int32_t> find_gap(int32_t num_pages) const;
  void close_gaps(int32_t num_pages, exec::StepMessage& step);
  void load_part(exec::StepMessage& step);

  std::vector<Slot> places_;
  const int32_t num_pages_;
  const int64_t max_weights_;
  absl::flat_hash_map<RequestId, std::shared_ptr<const Adapter>> adapters_;
  std::optional<Loading> loading_;
  int64_t num_uses_ = 0, num_loads_ = 0;
};

}  // namespace nereid::runtime
