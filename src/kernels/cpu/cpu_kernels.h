// The CPU's fast kernels.
#pragma once

#include "kernels/api/registry.h"

namespace nereid::kernels::cpu {

// The rows of an op; which of them can run is decided per device by `can`. Specialised for every op
// in the source of its launcher; one that stays with `ref` gives none.
template <class Op>
Table<Op> table();

}  // namespace nereid::kernels::cpu
