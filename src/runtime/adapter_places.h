// Which adapter is where on the device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "exec/step_message.h"
#include "nereid/request.h"
#include "nereid/stats.h"
#include "runtime/adapter.h"

namespace nereid::runtime {

// For the engine thread alone.
class AdapterPlaces {
 public:
  explicit AdapterPlaces(int32_t num_places) : places_(static_cast<size_t>(num_places)) {}

  // A sequence has the adapter from open() to close(); close() of one without does nothing.
  void open(RequestId id, std::shared_ptr<const Adapter> adapter);
  void close(RequestId id);

  // The place of a sequence's adapter, -1 without one. Where it is nowhere yet, `step` loads it in
  // place of the one used longest ago among those for whose key `is_running` is false; there is
  // one.
  int32_t place_of(RequestId id, const std::function<bool(uint64_t)>& is_running, exec::Step& step);

  // What was to be loaded may not have been.
  void forget();

  // Adds what there is to know of the places.
  void tell(AdapterStats& stats) const;

 private:
  struct Place {
    uint64_t key = 0;  // 0: nothing
    int64_t last_use = 0;
  };

  std::vector<Place> places_;
  absl::flat_hash_map<RequestId, std::shared_ptr<const Adapter>> adapters_;
  int64_t num_uses_ = 0, num_loads_ = 0;
};

}  // namespace nereid::runtime
