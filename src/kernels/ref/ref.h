// The definition of every op: obvious loops in f32 (sums in f64) on host memory, every layout, one
// thread. Also registered as the kernels named "ref".
#pragma once

#include "kernels/api/ops.h"
#include "kernels/api/registry.h"

namespace nereid::kernels::ref {

void run(const Embed::Args& args);
void run(const Norm::Args& args);
void run(const Linear::Args& args);
void run(const Rope::Args& args);
void run(const Attention::Args& args);
void run(const Glu::Args& args);
void run(const Add::Args& args);
void run(const GatherRows::Args& args);
void run(const Sample::Args& args);

// Adds one CPU row named "ref" per op: can = always, ranked behind every other kernel.
void add_kernels(Registry& registry);

}  // namespace nereid::kernels::ref
