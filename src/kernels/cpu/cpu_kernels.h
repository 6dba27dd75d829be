// The CPU's fast kernels.
#pragma once

#include "kernels/api/registry.h"

namespace nereid::kernels::cpu {

// Adds the rows of every op; which of them can run is decided per device by `can`.
void add_kernels(Registry& registry);

}  // namespace nereid::kernels::cpu
