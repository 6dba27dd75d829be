// Processes that mpirun or srun started with this command: one serves, the others work for it.
#pragma once

#include <memory>
#include <optional>

#include "base/status.h"
#include "runtime/ranks/launched_group.h"

namespace nereid::cli {

// A launched process above 0: runs ranks until process 0 ends; the exit code, with which the
// process must end. No value: it is none. Errors: launched_job(), launched_hosts().
StatusOr<std::optional<int>> serve_if_launched_above_0();

// To be called with checked flags, before ports are opened and models loaded, and with SIGTERM
// blocked. Started alone: null. Process 0: the group, which ends with the object. Others: runs
// ranks until process 0 ends, and then ends this process. Errors: those of
// serve_if_launched_above_0() and runtime::lead_hosts().
StatusOr<std::unique_ptr<runtime::LaunchedGroup>> join_launched_processes();

}  // namespace nereid::cli
