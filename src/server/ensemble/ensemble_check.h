// Checks of an ensemble's data flow that need no other model's configuration.
#pragma once

#include "base/status.h"
#include "server/config/model_config.h"

namespace nereid::server {

// Every step is complete, every tensor has one writer, every input and output is connected, no
// cycle. InvalidArgument.
Status check_ensemble_graph(const ModelConfig& ensemble);

// Both ends of every tensor agree on datatype and shape; batch sizes fit. `models` is parallel to
// ensemble.steps.
Status check_ensemble_tensors(const ModelConfig& ensemble,
                              const std::vector<const ModelConfig*>& models);

}  // namespace nereid::server
