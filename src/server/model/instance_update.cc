// Changes of a loaded model's instances.
#include <algorithm>
#include <set>

#include "base/json.h"
#include "server/model/backend_call.h"
#include "server/model/backend_model.h"

namespace nereid::server {

std::vector<BackendModel::Place> BackendModel::places_of(const ModelConfig& config) {
  std::vector<Place> out;
  for (const auto& group : config.groups) {
    for (int32_t i = 0; i < group.count; ++i) {
      for (const int32_t device : group.devices()) out.push_back({group, i, device});
    }
  }
  return out;
}

// Compares everything but the names of group and instance.
bool BackendModel::is_at(const Instance& instance, const Place& place,
                         const ServerOptions& options) {
  const InstanceGroup &is = instance.group, &wanted = place.group;
  return !instance.is_leaving && is.kind == wanted.kind && instance.device == place.device &&
         instance.host_policy.text == host_policy_json(wanted, place.device, options) &&
         is.profiles == wanted.profiles && is.secondary_devices == wanted.secondary_devices &&
         is.limits == wanted.limits;
}

// Fixed: with sequences, which are bound to an instance; with passive instances, which wait for the
// model's end; and with execution on callers' threads, which search for an idle instance.
bool BackendModel::has_fixed_instances() const {
  return config().sequences || may_run_here_ || num_updates_.load() >= kMostUpdates ||
         std::ranges::any_of(config().groups, &InstanceGroup::is_passive);
}

void BackendModel::let_go(Instance& instance) {
  {
    const std::lock_guard lock(instances_mutex_);
    instance.is_leaving = true;
  }
  queue_->let_go(instance.index);
}

// Removes instances marked to go whose thread ends within `patience`; one that executes longer
// stays until the next update or the model's end.
void BackendModel::remove_gone(std::chrono::milliseconds patience) {
  const auto is_gone = [&](Instance& instance) {
    if (!instance.is_leaving) return false;
    if (!instance.thread.joinable()) return true;
    if (instance.is_over.wait_for(patience) != std::future_status::ready) return false;
    instance.thread.join();
    return true;
  };
  for (auto it = instances_.begin(); it != instances_.end();) {
    const auto here = it++;
    if (!is_gone(*here)) continue;
    const std::lock_guard lock(instances_mutex_);
    instances_.erase(here);
  }
}

Status BackendModel::update_instances(const ModelConfig& wanted, const ServerOptions& options) {
  constexpr std::chrono::milliseconds kPatience(5000);
  const std::lock_guard updating(update_mutex_);
  if (is_unloading_.load()) return unavailable("the model unloads");
  ASSIGN_OR_RETURN(ModelConfig placed, adopt_preferred_groups(wanted, backend_->preferred_groups));
  ModelConfig changed = config();
  changed.groups = placed.groups;
  ASSIGN_OR_RETURN(json::value shown, parse_json(changed.json));
  ASSIGN_OR_RETURN(const json::value given, parse_json(placed.json));
  shown.as_object()["instance_group"] = given.at("instance_group");
  changed.json = json::serialize(shown);

  std::vector<Instance*> old;
  for (Instance& instance : instances_)
    if (!instance.is_leaving) old.push_back(&instance);
  std::set<Instance*> staying;
  std::vector<Place> missing;
  for (const Place& place : places_of(changed)) {
    const auto same = std::ranges::find_if(old, [&](Instance* instance) {
      return !staying.contains(instance) && is_at(*instance, place, options);
    });
    if (same == old.end())
      missing.push_back(place);
    else
      staying.insert(*same);
  }
  Status status = start_instances(missing, options);
  const bool is_done = status.ok();
  for (Instance& instance : instances_) {
    const bool is_old = std::ranges::find(old, &instance) != old.end();
    if (is_done ? is_old && !staying.contains(&instance) : !is_old) let_go(instance);
  }
  if (is_done && changed.json != config().json) {
    set_config(std::move(changed));
    ++num_updates_;
  }
  remove_gone(kPatience);
  return status;
}

}  // namespace nereid::server
