// Which adapter is where on the device.
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
#include "runtime/adapter.h"

namespace nereid::runtime {

// An adapter is in a place, and in pages that lie side by side. Its weights come in parts, a
// bounded number with each step; sequences wait until all are there. For the engine thread alone.
class AdapterPlaces {
 public:
  // `max_weights`: of a step, see exec::max_load_weights().
  AdapterPlaces(int32_t num_places, int32_t num_pages, int64_t max_weights)
      : places_(static_cast<size_t>(num_places)),
        num_pages_(num_pages),
        max_weights_(max_weights) {}

  // A sequence has the adapter from open() to close(); close() of one without does nothing.
  void open(RequestId id, std::shared_ptr<const Adapter> adapter);
  void close(RequestId id);
  bool empty() const { return adapters_.empty(); }  // no sequence has one

  // A sequence that holds memory and the key of its adapter. For all of them together there are
  // places and pages.
  struct Use {
    RequestId id = 0;
    uint64_t key = 0;
  };

  // Whether steps behind those that advance() has filled may have rows with the adapter.
  bool is_there(uint64_t key) const;

  // Adds to the step what it does for the adapters that are not there, first come first served;
  // true when that is anything. Adapters that no sequence of `running` has give way, the one used
  // longest ago first. Where the pages that are free then do not lie side by side, those in use
  // move towards the front, about as many numbers in a step as it may load, before the next one is
  // loaded.
  bool advance(std::span<const Use> running, exec::Step& step);

  // The place of a sequence's adapter, which is there; -1 without one.
  int32_t place_of(RequestId id);

  // The steps since the last that is known to be done may not have been executed.
  void forget();

  // Adds what there is to know of the places.
  void tell(AdapterStats& stats) const;

 private:
  struct Place {
    uint64_t key = 0;  // 0: nothing
    int64_t last_use = 0;
    int32_t first_page = 0, num_pages = 0;
    bool is_there = false;
  };
  // The one whose weights come.
  struct Loading {
    std::shared_ptr<const Adapter> adapter;
    size_t place = 0;
    int64_t next_weight = 0;
  };

  std::shared_ptr<const Adapter> next_missing(std::span<const Use> running) const;
  bool find_room(const std::shared_ptr<const Adapter>& adapter, std::span<const Use> running,
                 exec::Step& step);
  // The one used longest ago of those that do not run gives way; false: they all run.
  bool evict(std::span<const Use> running);
  std::optional<int32_t> find_gap(int32_t num_pages) const;
  void close_gaps(int32_t num_pages, exec::Step& step);
  void load_part(exec::Step& step);

  std::vector<Place> places_;
  const int32_t num_pages_;
  const int64_t max_weights_;
  absl::flat_hash_map<RequestId, std::shared_ptr<const Adapter>> adapters_;
  std::optional<Loading> loading_;
  int64_t num_uses_ = 0, num_loads_ = 0;
};

}  // namespace nereid::runtime
