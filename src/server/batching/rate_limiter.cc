#include "server/batching/rate_limiter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nereid::server {

class RateLimiter::InstanceGate : public Gate {
 public:
  InstanceGate(RateLimiter& limiter, Demands demands, uint32_t priority)
      : limiter_(limiter), demands_(std::move(demands)), priority_(priority) {}

  ~InstanceGate() override {
    std::lock_guard lock(limiter_.mutex_);
    std::erase(limiter_.instances_, this);
  }

  void enter() override {
    std::unique_lock lock(limiter_.mutex_);
    give_back();
    limiter_.waiting_.push_back(this);
    limiter_.admit();
    limiter_.admitted_.wait(lock, [&] { return is_inside_; });
  }

  void leave() override {
    std::lock_guard lock(limiter_.mutex_);
    give_back();
    limiter_.admit();
  }

  bool is_inside() const override { return is_inside_; }

  // The smallest rank goes first: an instance of priority p gets 1/p of the turns of
  // one of priority 1.
  uint64_t rank() const { return (num_turns_ + 1) * priority_; }

 private:
  friend class RateLimiter;
  void give_back() {
    if (!std::exchange(is_inside_, false)) return;
    for (const auto& [key, count] : demands_) limiter_.used_[key] -= count;
  }

  RateLimiter& limiter_;
  const Demands demands_;
  const uint32_t priority_;
  uint64_t num_turns_ = 0;
  bool is_inside_ = false;
};

RateLimiter::~RateLimiter() { NEREID_CHECK(instances_.empty()); }

uint64_t RateLimiter::set_capacity(const Key& key) const {
  const auto& [device, name] = key;
  uint64_t out = 0;
  if (device == kGlobal) {
    for (const auto& [set, count] : set_)
      if (set.second == name) out = std::max(out, count);
    return out;
  }
  auto it = set_.find(key);
  if (it == set_.end()) it = set_.find({kEveryDevice, name});
  return it == set_.end() ? 0 : it->second;
}

uint64_t RateLimiter::capacity(const Key& key) const {
  if (!set_.empty()) return set_capacity(key);
  uint64_t largest = 0;
  for (const InstanceGate* instance : instances_) {
    const auto it = instance->demands_.find(key);
    if (it != instance->demands_.end()) largest = std::max(largest, it->second);
  }
  return largest;
}

Status RateLimiter::check(const Demands& demands) const {
  for (const auto& [key, count] : demands) {
    const auto& name = key.second;
    const bool is_global = key.first == kGlobal;
    const auto other_kind = [&](const Demands& d) {
      return std::any_of(d.begin(), d.end(), [&](const auto& row) {
        return row.first.second == name && (row.first.first == kGlobal) != is_global;
      });
    };
    if (other_kind(demands) ||
        std::any_of(instances_.begin(), instances_.end(),
                    [&](const auto* instance) { return other_kind(instance->demands_); })) {
      return invalid_argument(
          "Resource \"{}\" is present as both global and device-specific resource in the model "
          "configuration.",
          name);
    }
    const uint64_t set = set_.empty() ? count : set_capacity(key);
    if (set >= count) continue;
    return invalid_argument(
        "Resource count for \"{}\" is limited to {} which will prevent scheduling of one or more "
        "model instances, the minimum required count is {}",
        name, set, count);
  }
  return ok();
}

StatusOr<std::unique_ptr<Gate>> RateLimiter::add_instance(const RateLimits& limits, int device) {
  Demands demands;
  for (const auto& r : limits.resources) {
    demands[{r.is_global ? kGlobal : device, r.name}] += r.count;
  }
  std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(check(demands));
  auto gate = std::make_unique<InstanceGate>(*this, std::move(demands), limits.priority);
  // A new instance starts with the others' number of turns, so that it does not make
  // up for their past.
  for (const InstanceGate* instance : instances_) {
    gate->num_turns_ =
        std::max(gate->num_turns_, instance->num_turns_ * instance->priority_ / gate->priority_);
  }
  instances_.push_back(gate.get());
  return gate;
}

void RateLimiter::admit() {
  std::vector<InstanceGate*> order(waiting_.begin(), waiting_.end());
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->rank(), a->priority_) < std::pair(b->rank(), b->priority_);
  });
  // The missing resources of a waiting instance are reserved for it, so that smaller
  // demands cannot starve it.
  Demands taken = used_;
  bool any = false;
  for (InstanceGate* instance : order) {
    const auto fits = [&](const auto& row) {
      const auto it = taken.find(row.first);
      return (it == taken.end() ? 0 : it->second) + row.second <= capacity(row.first);
    };
    const bool may_go = std::all_of(instance->demands_.begin(), instance->demands_.end(), fits);
    for (const auto& [key, count] : instance->demands_) taken[key] += count;
    if (!may_go) continue;
    for (const auto& [key, count] : instance->demands_) used_[key] += count;
    ++instance->num_turns_;
    instance->is_inside_ = true;
    waiting_.remove(instance);
    any = true;
  }
  if (any) admitted_.notify_all();
}

}  // namespace nereid::server
