// Which kernels an engine is made with: those that the configuration names, and those that
// `deterministic` asks for.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/api/registry.h"
#include "nereid/config.h"
#include "tensor/device.h"

namespace nereid::runtime {

// "op:name" for each op of the choice. InvalidArgument: an op that does not exist (names of kernels
// are checked where they are selected), or one whose choice `deterministic` forbids.
StatusOr<std::vector<std::string>> forced_kernels_of(const ExecutorConfig& config,
                                                     const kernels::Registry& registry,
                                                     const DeviceInfo& device);

}  // namespace nereid::runtime
