// Lowering of a compiled graph to a plan.
#pragma once

#include "base/status.h"
#include "graph/ir.h"
#include "io/plan.h"
#include "tensor/device.h"

namespace nereid::graph {

// Precondition: choose_kernels and plan_memory have run. Weight i becomes row i of the plan's
// table, with a place in the blob, no checksum. Internal: the result fails io::check_plan().
StatusOr<io::Plan> lower(const Graph& graph, const DeviceInfo& device);

// "avx512_bf16", "sm90", ...: the target that kernels are chosen for.
std::string target_of(const DeviceInfo& device);

}  // namespace nereid::graph
