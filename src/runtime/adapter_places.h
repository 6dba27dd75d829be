// Which adapter is where on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exec/step_message.h"
#include "nereid/request.h"
#include "nereid/stats.h"
#include "runtime/adapter.h"

namespace nereid::runtime {

// An adapter is in a place, and in pages that lie side by side. For the engine thread alone.
class AdapterPlaces {
 public:
  AdapterPlaces(int32_t num_places, int32_t num_pages)
      : places_(static_cast<size_t>(num_places)), num_pages_(num_pages) {}

  // A sequence has the adapter from open() to close(); close() of one without does nothing.
  void open(RequestId id, std::shared_ptr<const Adapter> adapter);
  void close(RequestId id);

  // The place of a sequence's adapter, -1 without one. Where it is nowhere yet, `step` loads it:
  // those for whose key `is_running` is false give way, the one used longest ago first, and where
  // the pages that are free then do not lie side by side, `step` loads all the others anew, without
  // gaps. Those that run have places and pages beside it.
  int32_t place_of(RequestId id, const std::function<bool(uint64_t)>& is_running, exec::Step& step);

  // What was to be loaded may not have been.
  void forget();

  // Adds what there is to know of the places.
  void tell(AdapterStats& stats) const;

 private:
  struct Place {
    uint64_t key = 0;  // 0: nothing
    int64_t last_use = 0;
    int32_t first_page = 0, num_pages = 0;
  };

  // The one used longest ago of those that do not run gives way; false: they all run.
  bool evict(const std::function<bool(uint64_t)>& is_running);
  std::optional<int32_t> find_gap(int32_t num_pages) const;
  // Moves all to the front; the first page behind them.
  int32_t close_gaps(exec::Step& step);
  void load(const Adapter& adapter, const Place& place, exec::Step& step);

  std::vector<Place> places_;
  int32_t num_pages_;
  absl::flat_hash_map<RequestId, std::shared_ptr<const Adapter>> adapters_;
  int64_t num_uses_ = 0, num_loads_ = 0;
};

}  // namespace nereid::runtime
