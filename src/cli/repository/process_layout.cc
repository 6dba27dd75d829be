#include "cli/repository/process_layout.h"

#include <vector>

#include "base/gpus.h"
#include "kernels/open.h"
#include "runtime/engine_limits.h"
#include "runtime/instances/instance_configs.h"
#include "runtime/ranks.h"
#include "runtime/ranks/launched_job.h"
#include "runtime/requests/request_check.h"
#include "tensor/cpu_probe.h"

namespace nereid::cli {
namespace {

std::string ranks_text(const io::Mapping& mapping) {
  if (mapping.tp == 0) return "as few ranks as the model fits on (tensor_parallel auto)";
  if (mapping.is_single()) return "1 rank";
  std::string text = fmt::format("{} ranks (tensor_parallel {}", mapping.world(), mapping.tp);
  if (mapping.pp > 1) text += fmt::format(", pipeline_parallel {}", mapping.pp);
  if (mapping.ep > 1) text += fmt::format(", expert_parallel {}", mapping.ep);
  return text + ")";
}

// Where the ranks of the instances run.
std::string processes_text(const ExecutorConfig& config, const io::Mapping& mapping) {
  const bool is_orchestrator = config.process_mode == "orchestrator";
  if (is_orchestrator && config.participant_ids.empty())
    return "orchestrator mode: processes that the server starts";
  if (!config.participant_ids.empty())
    return fmt::format("{} mode: launched processes {}", config.process_mode,
                       config.participant_ids);
  if (const auto job = runtime::launched_job(); job.ok() && *job)
    return fmt::format("leader mode: launched processes 0 to {}", (*job)->size - 1);
  if (config.rank_processes && !mapping.is_single())
    return "leader mode: the server's process and others that it starts";
  return mapping.is_single() ? "in the server's process" : "threads of the server's process";
}

// Adds the devices of an instance's ranks to `ids`.
Status open_instance(const ExecutorConfig& config, const io::Mapping& mapping,
                     std::vector<std::string>& ids) {
  ASSIGN_OR_RETURN(const auto devices,
                   runtime::open_devices(config, mapping.tp == 0 ? 1 : mapping.world()));
  for (const auto& opened : devices) {
    const std::string id = opened.device->info().id();
    if (ids.empty() || ids.back() != id) ids.push_back(id);
  }
  return ok();
}

Status describe(const std::filesystem::path& model_dir, ExecutorConfig& config, std::string& text) {
  RETURN_IF_ERROR(runtime::apply_engine_limits(model_dir, config).status());
  RETURN_IF_ERROR(runtime::check_config(config));
  ASSIGN_OR_RETURN(const io::Mapping mapping, runtime::mapping_of(model_dir, config));
  const std::vector<ExecutorConfig> instances = runtime::instance_configs(config);
  text = ranks_text(mapping);
  if (instances.size() > 1) text = fmt::format("{} instances of {}", instances.size(), text);
  text += ", " + processes_text(config, mapping);
  std::vector<std::string> ids;
  for (const ExecutorConfig& instance : instances) {
    RETURN_IF_ERROR(runtime::launched_participants(instance, mapping).status());
    RETURN_IF_ERROR(open_instance(instance, mapping, ids));
  }
  text += fmt::format(", on {}", fmt::join(ids, ", "));
  return ok();
}

}  // namespace

ProcessLayout process_layout(const std::filesystem::path& model_dir, ExecutorConfig config) {
  ProcessLayout layout;
  layout.fault = describe(model_dir, config, layout.text);
  return layout;
}

std::string machine_line() {
  const int cores = num_usable_cores();
  std::string line = fmt::format("machine: {} {}", cores, cores == 1 ? "core" : "cores");
  const std::vector<Gpu> gpus = visible_gpus();
  for (size_t i = 0; i < gpus.size(); ++i)
    line += fmt::format(", cuda:{} {} ({})", i, gpus[i].name, gpus[i].uuid);
  if (gpus.empty()) line += ", no GPU";
  if (const auto job = runtime::launched_job(); job.ok() && *job)
    line += ", " + runtime::text_of(**job);
  return line;
}

}  // namespace nereid::cli
