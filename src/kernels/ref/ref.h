// Definition of every op: plain loops in f32 (sums in f64) on host memory, all layouts, one thread.
// Also registered as the kernels named "ref".
#pragma once

#include "kernels/api/ops.h"
#include "kernels/api/registry.h"

namespace nereid::kernels::ref {

// Rotates the first `cols` columns of a head, see Rope in ops.h.
void rotate(float* head, const float* angles, int64_t cols, bool interleaved);

// Adds one CPU row named "ref" for each op except FusedLinear: can = always, ranked last.
// FusedLinear does not speed up CPU steps and would change bits.
void add_kernels(Registry& registry);

}  // namespace nereid::kernels::ref
