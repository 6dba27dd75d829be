// State of a runner's steps in flight.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/status.h"
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

}  // namespace nereid::exec
