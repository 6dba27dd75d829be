// Step times without a scheduler.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"

namespace nereid::exec {

struct StepShape {
  int32_t batch = 1;           // rows
  int32_t context = 1;         // cached positions per row before the step
  int32_t tokens_per_row = 1;  // 1: decode; more: prefill
  int32_t prompt_tokens = 0;   // length of one more row, the start of a prompt; 0: none
  int32_t num_adapters = 0;    // loaded adapters; row i has adapter i % num_adapters; 0: none
  std::optional<kernels::SampleParams> sampling = {};  // sampling parameters of each row
};

// Limits of a device, see kernels/roofline.h; zero or absent: not known.
struct StepLimits {
  double read_bytes_per_s = 0;
  std::map<std::string, double> flops_per_s;  // by kernel
};

struct StepCost {
  double seconds = 0;           // median per step, with two steps in flight as in serving
  double profiled_seconds = 0;  // the same of the second pass
  std::vector<OpTime> ops;  // per step, slowest first; from a second pass with one call at a time

  // Bytes of weights, cached keys and values that a step reads.
  uint64_t bytes() const;
  // Report: a heading, a line per kind of call, and the time outside of calls. "% roof": the least
  // time that the limits allow; "% busy": least and most of the compute threads' work.
  std::string table(const StepLimits& limits = {}) const;
};

// Runs `num_steps` of a shape twice, plainly and with profiling. Cache contents and tokens are
// arbitrary; time does not depend on them. No step may be in flight. InvalidArgument: the shape
// exceeds the runner's limits.
StatusOr<StepCost> measure_steps(Runner& runner, const StepShape& shape, int32_t num_steps);

}  // namespace nereid::exec
