// Speed of bare steps, without scheduler: what kernels and step overhead allow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"

namespace nereid::exec {

struct StepShape {
  int32_t batch = 1;           // rows
  int32_t context = 1;         // cached positions of each row before the step
  int32_t tokens_per_row = 1;  // 1 = decoding, more = prefill
  int32_t prompt_tokens = 0;   // of one more row, the start of a prompt; 0: there is none
  int32_t num_adapters = 0;  // that have been loaded; row i has the (i % num_adapters)-th; 0: none
  std::optional<kernels::SampleParams> sampling = {};  // each row draws a token like this
};

struct StepCost {
  double seconds = 0;  // median of one step, two in flight as when serving
  std::vector<OpTime>
      ops;  // per step, slowest first; measured in a second pass, one call at a time

  // Weights and cached keys and values that a step has to read.
  uint64_t bytes() const;
  // A line for each kind of call, under a heading.
  std::string table() const;
};

// Runs `num_steps` of a shape twice: plainly, then with profiling. The cache holds whatever is in
// it, the tokens are made up; the time does not depend on either. InvalidArgument when the shape is
// beyond the runner's limits. No step may be in flight.
StatusOr<StepCost> measure_steps(Runner& runner, const StepShape& shape, int32_t num_steps);

}  // namespace nereid::exec
