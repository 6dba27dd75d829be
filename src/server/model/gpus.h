// GPUs for model instances.
#pragma once

#include "server/config/model_config.h"
#include "server/metrics/nvml.h"

namespace nereid::server {

// The driver's GPUs of at least `min_capability`, with CUDA's numbers. `visible` is the
// text of CUDA_VISIBLE_DEVICES: numbers, UUIDs or prefixes of them, up to the first that
// does not exist; null: all.
UsableGpus usable_gpus(const Nvml* nvml, double min_capability, const char* visible);

}  // namespace nereid::server
