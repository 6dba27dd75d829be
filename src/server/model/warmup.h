// Requests that a model instance answers before it serves.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "server/model/model.h"

namespace nereid::server {

// Runs every warm-up sample of the model's configuration: `execute` gets the requests of one
// execution, validated and armed, and hands them to the backend. Waits for their ends. An error
// names the sample, or the file that is missing.
Status run_warmup(const std::shared_ptr<Model>& model,
                  const std::function<void(std::vector<InferenceRequest*>)>& execute);

}  // namespace nereid::server
