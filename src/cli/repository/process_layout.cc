#include "cli/repository/process_layout.h"

#include <vector>

#include "base/gpus.h"
#include "convert/compile.h"
#include "convert/engine_dir.h"
#include "kernels/open.h"
#include "runtime/engine_limits.h"
#include "runtime/instances/instance_configs.h"
#include "runtime/model_instance.h"
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

// Ranks that the model has files for, where that is another number.
std::string built_text(const io::Mapping& mapping, const io::Mapping& built) {
  if (mapping.tp == 0 || built.is_single() || built.world() == mapping.world()) return "";
  return fmt::format(" of a model that is built for {}", built.world());
}

// Whether the model can be divided so: compiles the first rank's part of a checkpoint, since
// engines are divided already.
Status check_division(const std::filesystem::path& model_dir, const ExecutorConfig& config,
                      const io::Mapping& mapping, const kernels::OpenedDevice& device) {
  std::error_code error;
  if (mapping.tp == 0 || mapping.is_single() ||
      !std::filesystem::exists(model_dir / "config.json", error) ||
      std::filesystem::exists(model_dir / "rank0.engine", error))
    return ok();
  ASSIGN_OR_RETURN(convert::BuildOptions build, runtime::build_options(model_dir, config, device));
  build.compile.mapping = mapping;
  return convert::compile_model(model_dir, device.registry, device.device->info(), build.compile)
      .status();
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
Status open_instance(const std::filesystem::path& model_dir, const ExecutorConfig& config,
                     const io::Mapping& mapping, std::vector<std::string>& ids) {
  ASSIGN_OR_RETURN(const auto devices,
                   runtime::open_devices(config, mapping.tp == 0 ? 1 : mapping.world()));
  for (const auto& opened : devices) {
    const std::string id = opened.device->info().id();
    if (ids.empty() || ids.back() != id) ids.push_back(id);
  }
  return check_division(model_dir, config, mapping, devices[0]);
}

Status open_instances(const std::filesystem::path& model_dir,
                      const std::vector<ExecutorConfig>& instances, const io::Mapping& mapping,
                      std::vector<std::string>& ids) {
  for (const ExecutorConfig& instance : instances) {
    RETURN_IF_ERROR(open_instance(model_dir, instance, mapping, ids));
    RETURN_IF_ERROR(runtime::launched_participants(instance, mapping).status());
  }
  return ok();
}

Status describe(const std::filesystem::path& model_dir, ExecutorConfig& config, std::string& text) {
  RETURN_IF_ERROR(runtime::apply_engine_limits(model_dir, config).status());
  RETURN_IF_ERROR(runtime::check_config(config));
  ASSIGN_OR_RETURN(const io::Mapping mapping, runtime::mapping_of(model_dir, config));
  const std::vector<ExecutorConfig> instances = runtime::instance_configs(config);
  text = ranks_text(mapping);
  if (const auto built = convert::built_mapping(model_dir); built.ok())
    text += built_text(mapping, *built);
  if (instances.size() > 1) text = fmt::format("{} instances of {}", instances.size(), text);
  text += ", " + processes_text(config, mapping);
  std::vector<std::string> ids;
  const Status status = open_instances(model_dir, instances, mapping, ids);
  if (!ids.empty())
    text += fmt::format(", on {}", fmt::join(ids, ", "));
  else
    text += fmt::format(", on {}, which is not there",
                        config.devices.empty() ? config.device : config.devices);
  return status;
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
