// How many processes of this command a launcher started.
#pragma once

#include <functional>

#include "base/status.h"

namespace nereid::cli {

// Unimplemented, with both numbers, when mpirun or srun started more than one process: a model
// is served by one. `environment` is getenv or stands for it.
Status check_ranks(const std::function<const char*(const char* name)>& environment);

}  // namespace nereid::cli
