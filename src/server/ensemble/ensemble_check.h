// Checks of ensembles' data flows.
#pragma once

#include "base/status.h"
#include "server/config/model_config.h"

namespace nereid::server {

// Checks the graph alone: every step is complete, every tensor has one writer, every input and
// output is connected, no cycle. InvalidArgument.
Status check_ensemble_graph(const ModelConfig& ensemble);

// Checks that both ends of every tensor agree in datatype and shape, and batch sizes fit. `models`
// is parallel to ensemble.steps.
Status check_ensemble_tensors(const ModelConfig& ensemble,
                              const std::vector<const ModelConfig*>& models);

}  // namespace nereid::server
