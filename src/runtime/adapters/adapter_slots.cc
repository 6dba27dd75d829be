#include "runtime/adapters/adapter_slots.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nereid::runtime {
namespace {

bool is_used(std::span<const AdapterSlots::Use> running, uint64_t key) {
  return std::ranges::find(running, key, &AdapterSlots::Use::key) != running.end();
}

}  // namespace

void AdapterSlots::open(RequestId id, std::shared_ptr<const Adapter> adapter) {
  adapters_[id] = std::move(adapter);
}

void AdapterSlots::close(RequestId id) {
  if (!adapters_.empty()) adapters_.erase(id);
}

bool AdapterSlots::is_loaded(uint64_t key) const {
  const auto place = std::ranges::find(places_, key, &Slot::key);
  return place != places_.end() && place->is_loaded;
}

int32_t AdapterSlots::slot_of(RequestId id) {
  if (adapters_.empty()) return -1;
  const auto found = adapters_.find(id);
  if (found == adapters_.end()) return -1;
  const auto place = std::ranges::find(places_, found->second->key, &Slot::key);
  NEREID_CHECK(place != places_.end() && place->is_loaded);
  place->last_use = ++num_uses_;
  return static_cast<int32_t>(place - places_.begin());
}

bool AdapterSlots::advance(std::span<const Use> running, exec::StepMessage& step) {
  if (loading_ && !is_used(running, loading_->adapter->key)) {
    places_[loading_->place] = {};
    loading_.reset();
  }
  while (std::ssize(step.adapter_loads) < exec::kMaxAdapterChanges &&
         std::ssize(step.adapter_weights) < max_weights_) {
    if (!loading_) {
      const std::shared_ptr<const Adapter> adapter = next_missing(running);
      if (!adapter || !find_room(adapter, running, step)) break;
    }
    load_part(step);
  }
  return !step.adapter_loads.empty() || !step.adapter_moves.empty();
}

// The first sequence in order whose adapter is in no adapter slot. Null: none.
std::shared_ptr<const Adapter> AdapterSlots::next_missing(std::span<const Use> running) const {
  for (const Use& use : running) {
    if (std::ranges::find(places_, use.key, &Slot::key) != places_.end()) continue;
    const auto found = adapters_.find(use.id);
    if (found != adapters_.end()) return found->second;
  }
  return nullptr;
}

// False: the adapter must wait; the step moves pages to make room, unless it has loads.
bool AdapterSlots::find_room(const std::shared_ptr<const Adapter>& adapter,
                             std::span<const Use> running, exec::StepMessage& step) {
  const auto is_free = [](const Slot& p) { return p.key == 0; };
  auto place = std::ranges::find_if(places_, is_free);
  for (; place == places_.end(); place = std::ranges::find_if(places_, is_free))
    NEREID_CHECK(evict(running));
  std::optional<int32_t> page;
  while (!(page = find_gap(adapter->num_pages)) && evict(running)) continue;
  if (!page) {
    if (step.adapter_loads.empty()) close_gaps(adapter->num_pages, step);
    return false;
  }
  place = std::ranges::find_if(places_, is_free);
  *place = {.key = adapter->key, .first_page = *page, .num_pages = adapter->num_pages};
  loading_.emplace(Loading{adapter, static_cast<size_t>(place - places_.begin())});
  return true;
}

bool AdapterSlots::evict(std::span<const Use> running) {
  Slot* victim = nullptr;
  for (Slot& p : places_)
    if (p.key != 0 && !is_used(running, p.key) && (!victim || p.last_use < victim->last_use))
      victim = &p;
  if (!victim) return false;
  *victim = {};
  return true;
}

std::optional<int32_t> AdapterSlots::find_gap(int32_t num_pages) const {
  std::vector<std::pair<int32_t, int32_t>> held;  // [first, end)
  for (const Slot& p : places_)
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

// Moves adapters to the front, in page order, until a gap remains or the step's limits are reached.
void AdapterSlots::close_gaps(int32_t num_pages, exec::StepMessage& step) {
  std::vector<Slot*> held;
  for (Slot& place : places_)
    if (place.key != 0) held.push_back(&place);
  std::ranges::sort(held, {}, &Slot::first_page);
  int32_t begin = 0;
  int64_t num_weights = 0;
  for (Slot* const place : held) {
    if (place->first_page != begin) {
      if (num_weights >= max_weights_ || std::ssize(step.adapter_moves) == exec::kMaxAdapterChanges)
        return;
      step.adapter_moves.push_back({static_cast<int32_t>(place - places_.data()), begin});
      place->first_page = begin;
      const auto of_key = [&](const auto& open) { return open.second->key == place->key; };
      const auto open = std::ranges::find_if(adapters_, of_key);
      if (open != adapters_.end()) num_weights += std::ssize(open->second->weights);
      if (find_gap(num_pages)) return;
    }
    begin = place->first_page + place->num_pages;
  }
  NEREID_CHECK(find_gap(num_pages));
}

void AdapterSlots::load_part(exec::StepMessage& step) {
  const Adapter& adapter = *loading_->adapter;
  Slot& place = places_[loading_->place];
  const int64_t room = max_weights_ - std::ssize(step.adapter_weights);
  const int64_t first = loading_->next_weight;
  const int64_t count = std::min(room, std::ssize(adapter.weights) - first);
  step.adapter_loads.push_back({.adapter = static_cast<int32_t>(loading_->place),
                                .num_matrices = static_cast<int32_t>(adapter.matrices.size()),
                                .first_page = place.first_page,
                                .num_weights = static_cast<int32_t>(count),
                                .first_weight = first});
  step.adapter_matrices.insert(step.adapter_matrices.end(), adapter.matrices.begin(),
                               adapter.matrices.end());
  const auto weights = adapter.weights.begin() + first;
  step.adapter_weights.insert(step.adapter_weights.end(), weights, weights + count);
  loading_->next_weight += count;
  if (loading_->next_weight < std::ssize(adapter.weights)) return;
  place.is_loaded = true;
  place.last_use = ++num_uses_;
  ++num_loads_;
  loading_.reset();
}

void AdapterSlots::add_stats(AdapterStats& stats) const {
  stats.num_places = std::ssize(places_);
  stats.num_places_used = std::ranges::count_if(places_, [](const Slot& p) { return p.key != 0; });
  stats.num_pages = num_pages_;
  for (const Slot& p : places_) stats.num_pages_used += p.key != 0 ? p.num_pages : 0;
  stats.num_loads = num_loads_;
}

void AdapterSlots::forget() {
  std::ranges::fill(places_, Slot());
  loading_.reset();
}

}  // namespace nereid::runtime
