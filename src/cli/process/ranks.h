// The number of processes that a launcher started for this command.
#pragma once

#include <functional>

#include "base/status.h"

namespace nereid::cli {

// Unimplemented, with both numbers, when mpirun or srun started more than one process: one process
// serves a model. `environment` is getenv or a test's replacement.
Status check_ranks(const std::function<const char*(const char* name)>& environment);

}  // namespace nereid::cli
