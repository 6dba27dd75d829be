// The CUDA rows of every op's table.
#pragma once

#include "kernels/api/registry.h"

namespace nereid::kernels::cuda {

void add_kernels(Registry& registry);

}  // namespace nereid::kernels::cuda
