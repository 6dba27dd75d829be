// Kernels forced by the configuration or by `deterministic`.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/api/registry.h"
#include "nereid/config.h"
#include "tensor/device.h"

namespace nereid::runtime {

// "op:name" for each forced op. InvalidArgument: an unknown op (kernel names are checked where they
// are selected), or an op that `deterministic` fixes.
StatusOr<std::vector<std::string>> forced_kernels_of(const ExecutorConfig& config,
                                                     const kernels::Registry& registry,
                                                     const DeviceInfo& device);

}  // namespace nereid::runtime
