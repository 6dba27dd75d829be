// State of a runner's steps in flight, and the guard of their work.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "exec/exchange.h"
#include "exec/step_data.h"
#include "tensor/device.h"

namespace nereid::exec {

// Resources of a step in flight.
struct StepInFlight {
  Buffer step_data;                            // written by launch(), copied to the device
  Buffer host_embeddings, embeddings;          // host, and device copy
  size_t embedding_bytes = 0;                  // of the step; 0: none, or their memory is missing
  std::vector<std::shared_ptr<Event>> copies;  // block copies and adapter loads
  StepData step;
  std::unique_ptr<Event> used;  // reused event of an earlier step
  bool in_use = false;
  // A step with masks is submitted in two parts, by launch() and draw().
  bool waits_for_masks = false;
  std::unique_ptr<Event> forward;       // of the first part, once the second is submitted
  std::unique_ptr<Event> used_forward;  // reused event of an earlier step
  Status drawn;                         // error of draw()
  // The drawing rank's slot tokens go to the other tensor ranks behind its sampling.
  bool broadcasts = false;
};

// Ends the exchange with other ranks if work of a step does not succeed, or throws.
class StepGuard {
 public:
  StepGuard(const Exchange& exchange, const std::string& rank) : exchange_(exchange), rank_(rank) {}
  ~StepGuard() {
    if (!is_done_) exchange_.abort(internal_error("{}: a step ended with an exception", rank_));
  }
  // The error of the rank that failed first, with its name.
  Status done(Status status) {
    is_done_ = true;
    if (status.ok()) return status;
    if (!exchange_.failure().ok())
      status = exchange_.failure();
    else if (!rank_.empty())
      status = annotate(status, rank_);
    exchange_.abort(status);
    return status;
  }

 private:
  const Exchange& exchange_;
  const std::string& rank_;
  bool is_done_ = false;
};

}  // namespace nereid::exec
