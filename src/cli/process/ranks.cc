#include "cli/process/ranks.h"

#include "cli/flags/flag_values.h"

namespace nereid::cli {
namespace {

struct Launcher {
  const char* size;
  const char* rank;
  const char* needs;  // set only in this launcher's processes; "" = the size suffices
};

// Shells inside a Slurm allocation have SLURM_NTASKS too; only srun's processes have a step.
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", ""},
    {"PMI_SIZE", "PMI_RANK", ""},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_ID"},
};

}  // namespace

Status check_ranks(const std::function<const char*(const char* name)>& environment) {
  const auto text = [&](const char* name) {
    const char* value = environment(name);
    return std::string(value == nullptr ? "" : value);
  };
  for (const auto& launcher : kLaunchers) {
    if (*launcher.needs != '\0' && text(launcher.needs).empty()) continue;
    const auto size = parse_integer(text(launcher.size), 0, kMaxInt);
    if (!size.ok() || *size < 2) continue;
    return unsupported(
        "this is process {} of {} ({}={}), but a model is served by 1 process: start the server "
        "once, without mpirun or with -n 1",
        text(launcher.rank), *size, launcher.size, *size);
  }
  return ok();
}

}  // namespace nereid::cli
