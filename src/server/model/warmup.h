// Requests that a model instance answers before it serves.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "server/model/model.h"

namespace nereid::server {

struct WarmupSteps {
  // Adds to a valid request what it has beside its client's inputs (of a sequence).
  std::function<void(InferenceRequest&)> complete;
  // Gets the requests of one execution, armed, and hands them to the backend.
  std::function<void(std::vector<InferenceRequest*>)> execute;
};

// Runs every warm-up sample of the model's configuration on the instance of that name and waits for
// its end. Data that a sample has for a control or a state of a sequence takes the place of the
// batcher's. An error names the sample, or the file that is missing.
Status run_warmup(const std::shared_ptr<Model>& model, const std::string& instance,
                  const WarmupSteps& steps);

}  // namespace nereid::server
