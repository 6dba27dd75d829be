// Optimised kernels of the CPU.
#pragma once

#include "kernels/api/registry.h"

namespace nereid::kernels::cpu {

// Rows of an op; `can` decides per device. Specialised in its launcher's source; empty: `ref` only.
template <class Op>
Table<Op> table();

}  // namespace nereid::kernels::cpu
