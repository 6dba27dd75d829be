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
    const auto is_free = [](const Place& p) { return p.key == 0; };
    while ((place = std::ranges::find_if(places_, is_free)) == places_.end())
      NEREID_CHECK(evict(is_running));
    std::optional<int32_t> page;
    while (!(page = find_gap(adapter.num_pages)) && evict(is_running)) continue;
    if (!page) page = close_gaps(step);
    NEREID_CHECK(*page <= num_pages_ - adapter.num_pages);
    *place = {.key = adapter.key, .first_page = *page, .num_pages = adapter.num_pages};
    load(adapter, *place, step);
  }
  place->last_use = ++num_uses_;
  return static_cast<int32_t>(place - places_.begin());
}

bool AdapterPlaces::evict(const std::function<bool(uint64_t)>& is_running) {
  Place* victim = nullptr;
  for (Place& p : places_)
    if (p.key != 0 && !is_running(p.key) && (!victim || p.last_use < victim->last_use)) victim = &p;
  if (!victim) return false;
  *victim = {};
  return true;
}

std::optional<int32_t> AdapterPlaces::find_gap(int32_t num_pages) const {
  std::vector<std::pair<int32_t, int32_t>> held;  // first and end
  for (const Place& p : places_)
    if (p.key != 0) held.emplace_back(p.first_page, p.first_page + p.num_pages);
  std::ranges::sort(held);
  held.emplace_back(num_pages_, num_pages_);
  int32_t begin = 0;
  for (const auto& [first, end] : held) {
    if (first - begin >= num_pages) return begin;
    begin = end;
  }
  return std::nullopt;
}

int32_t AdapterPlaces::close_gaps(exec::Step& step) {
  int32_t next = 0;
  for (Place& place : places_) {
    if (place.key == 0) continue;
    const auto of_place = [&](const auto& open) { return open.second->key == place.key; };
    const auto open = std::ranges::find_if(adapters_, of_place);
    if (open == adapters_.end()) {  // no step will name it any more
      place = {};
      continue;
    }
    place.first_page = std::exchange(next, next + place.num_pages);
    load(*open->second, place, step);
  }
  return next;
}

void AdapterPlaces::load(const Adapter& adapter, const Place& place, exec::Step& step) {
  ++num_loads_;
  step.adapter_loads.push_back({static_cast<int32_t>(&place - places_.data()),
                                static_cast<int32_t>(adapter.matrices.size()), place.first_page});
  step.adapter_matrices.insert(step.adapter_matrices.end(), adapter.matrices.begin(),
                               adapter.matrices.end());
  step.adapter_weights.insert(step.adapter_weights.end(), adapter.weights.begin(),
                              adapter.weights.end());
}

void AdapterPlaces::tell(AdapterStats& stats) const {
  stats.num_places = std::ssize(places_);
  stats.num_places_used = std::ranges::count_if(places_, [](const Place& p) { return p.key != 0; });
  stats.num_pages = num_pages_;
  for (const Place& p : places_) stats.num_pages_used += p.key != 0 ? p.num_pages : 0;
  stats.num_loads = num_loads_;
}

void AdapterPlaces::forget() { std::ranges::fill(places_, Place()); }

}  // namespace nereid::runtime
