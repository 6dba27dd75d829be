#include "runtime/adapter_places.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nereid::runtime {

void AdapterPlaces::open(RequestId id, std::shared_ptr<const Adapter> adapter) {
  adapters_[id] = std::move(adapter);
}

void AdapterPlaces::close(RequestId id) {
  if (!adapters_.empty()) adapters_.erase(id);
}

int32_t AdapterPlaces::place_of(RequestId id, const std::function<bool(uint64_t)>& is_running,
                                exec::Step& step) {
  if (adapters_.empty()) return -1;
  const auto found = adapters_.find(id);
  if (found == adapters_.end()) return -1;
  const Adapter& adapter = *found->second;
  auto place = std::ranges::find(places_, adapter.key, &Place::key);
  if (place == places_.end()) {
    for (auto it = places_.begin(); it != places_.end(); ++it)
      if ((it->key == 0 || !is_running(it->key)) &&
          (place == places_.end() || it->last_use < place->last_use))
        place = it;
    NEREID_CHECK(place != places_.end());
    place->key = adapter.key;
    ++num_loads_;
    const auto index = static_cast<int32_t>(place - places_.begin());
    step.adapter_loads.push_back({index, static_cast<int32_t>(adapter.matrices.size())});
    step.adapter_matrices.insert(step.adapter_matrices.end(), adapter.matrices.begin(),
                                 adapter.matrices.end());
    step.adapter_weights.insert(step.adapter_weights.end(), adapter.weights.begin(),
                                adapter.weights.end());
  }
  place->last_use = ++num_uses_;
  return static_cast<int32_t>(place - places_.begin());
}

void AdapterPlaces::tell(AdapterStats& stats) const {
  stats.num_places = std::ssize(places_);
  stats.num_places_used = std::ranges::count_if(places_, [](const Place& p) { return p.key != 0; });
  stats.num_loads = num_loads_;
}

void AdapterPlaces::forget() { std::ranges::fill(places_, Place()); }

}  // namespace nereid::runtime
