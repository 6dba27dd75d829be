// Processes that mpirun or srun started with this command: one serves, the others work for it.
#pragma once

#include <memory>

#include "base/status.h"
#include "runtime/ranks/launched_group.h"

namespace nereid::cli {

// To be called with checked flags, before ports are opened and models loaded, and with SIGTERM
// blocked. Started alone: null. Process 0: the group, which ends with the object. Others: runs
// ranks until process 0 ends, and then ends this process. Errors: those of runtime::launched_job().
StatusOr<std::unique_ptr<runtime::LaunchedGroup>> join_launched_processes();

}  // namespace nereid::cli
