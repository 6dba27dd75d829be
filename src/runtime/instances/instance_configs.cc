#include "runtime/instances/instance_configs.h"

#include <algorithm>

#include "runtime/ranks.h"
#include "runtime/ranks/launched_job.h"
#include "tensor/cpu_probe.h"

namespace nereid::runtime {
namespace {

constexpr const char* kOrchestrator = "orchestrator";

// The ids of each instance. Only processes of several hosts may have several ranks.
Status check_participants(const ExecutorConfig& c) {
  std::vector<int32_t> all;
  for (const std::string& list : instance_lists(c.participant_ids)) {
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, read_participants(list));
    if (ids.empty())
      return invalid_argument("participant_ids: '{}' has an empty list", c.participant_ids);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  const bool is_orchestrator = c.process_mode == kOrchestrator;
  if (is_orchestrator && std::ranges::find(all, 0) != all.end())
    return invalid_argument(
        "participant_ids: '{}' has 0, the process that serves; with process_mode orchestrator "
        "allowed are the others, from 1 on",
        c.participant_ids);
  ASSIGN_OR_RETURN(const auto job, launched_job());
  if (job && job->hosts) return ok();
  std::ranges::sort(all);
  if (const auto twice = std::ranges::adjacent_find(all); twice != all.end())
    return invalid_argument("participant_ids: '{}' has {} twice; each rank has its own process",
                            c.participant_ids, *twice);
  return ok();
}

}  // namespace

std::vector<std::string> instance_lists(std::string_view text) {
  std::vector<std::string> lists;
  for (size_t begin = 0; !text.empty() && begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    lists.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lists;
}

std::vector<ExecutorConfig> instance_configs(const ExecutorConfig& config) {
  const int32_t count = std::max(config.num_instances, 1);
  const auto devices = instance_lists(config.devices);
  const auto participants = instance_lists(config.participant_ids);
  const auto num_lists = static_cast<int32_t>(std::max<size_t>(devices.size(), 1));
  const int32_t threads = config.num_threads > 0 ? config.num_threads : num_usable_cores();
  std::vector<ExecutorConfig> all(static_cast<size_t>(count), config);
  for (int32_t i = 0; i < count; ++i) {
    ExecutorConfig& own = all[static_cast<size_t>(i)];
    const auto of = [i](const std::vector<std::string>& lists) {
      return lists.empty() ? "" : lists[static_cast<size_t>(i) % lists.size()];
    };
    own.devices = of(devices);
    own.participant_ids = of(participants);
    // Instances i, i + num_lists ... have the same devices.
    own.num_instances = (count - 1 - i % num_lists) / num_lists + 1;
    own.kv_cache.host_cache_bytes /= count;
    // Launched processes have the cores that they are bound to.
    if (count > 1 && (participants.empty() || config.num_threads > 0))
      own.num_threads = std::max(threads * (i + 1) / count - threads * i / count, 1);
  }
  return all;
}

bool restarts_failed(const ExecutorConfig& config) {
  if (config.restart_failed == "true") return true;
  return config.restart_failed != "false" && config.process_mode == kOrchestrator &&
         !config.exit_on_device_failure;
}

Status check_instances(const ExecutorConfig& c) {
  for (const std::string& list : instance_lists(c.devices))
    RETURN_IF_ERROR(read_devices(list).status());
  RETURN_IF_ERROR(check_participants(c));
  if (c.restart_failed == "true" && c.exit_on_device_failure)
    return invalid_argument(
        "restart_failed: true excludes exit_on_device_failure, which ends the process instead");
  if (c.num_instances > 1 && c.kv_cache.event_buffer_size > 0)
    return invalid_argument(
        "kv_cache.event_buffer_size: {} is for one instance, since events do not name instances; "
        "num_instances is {}",
        c.kv_cache.event_buffer_size, c.num_instances);
  return ok();
}

}  // namespace nereid::runtime
