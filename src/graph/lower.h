// From a compiled graph to the engine's plan.
#pragma once

#include "base/status.h"
#include "graph/ir.h"
#include "io/plan.h"
#include "tensor/device.h"

namespace nereid::graph {

// Needs a graph that went through choose_kernels and plan_memory; row i of graph.weights becomes
// row i of the plan's table, placed in the blob without checksums. The result passes
// io::check_plan() (Internal when not).
StatusOr<io::Plan> lower(const Graph& graph, const DeviceInfo& device);

// "avx512_bf16", "sm90", ...: what a plan's kernels were chosen for.
std::string target_of(const DeviceInfo& device);

}  // namespace nereid::graph
