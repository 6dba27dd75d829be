// Warm-up: requests that an instance executes before the model serves.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/model/model.h"

namespace nereid::server {

struct WarmupSteps {
  // Adds the core's inputs (controls and states of a sequence) to a valid request.
  std::function<void(InferenceRequest&)> complete;
  // Hands the armed requests of one execution to the backend.
  std::function<void(std::vector<InferenceRequest*>)> execute;
};

// Runs every warm-up sample of the model's configuration on the named instance and waits for the
// end. Data of a sample for a control or state replaces the batcher's. An error names the sample,
// or the missing file.
Status run_warmup(const std::shared_ptr<Model>& model, const std::string& instance,
                  const WarmupSteps& steps);

}  // namespace nereid::server
