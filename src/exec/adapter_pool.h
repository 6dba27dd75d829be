// The adapters that a device holds: as many places as the limits say, each large enough for any
// adapter of the model, filled by what messages of steps bring along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "exec/runner.h"
#include "exec/step_message.h"
#include "io/plan.h"
#include "kernels/api/op.h"
#include "tensor/device.h"

namespace nereid::exec {

// Called on the engine thread, but for run().
class AdapterPool {
 public:
  // `limits` have passed check_limits(), and so they have everywhere below.
  static StatusOr<AdapterPool> create(std::span<const io::AdapterModule> modules,
                                      const RunnerLimits& limits, Device& device);

  // Of all places on the device.
  static size_t bytes(std::span<const io::AdapterModule> modules, const RunnerLimits& limits);

  // InvalidArgument when a load of the step is no good, or a row's adapter has never been loaded.
  Status check(const StepView& step) const;

  // Takes the loads of a step that has passed check(); `area`, below RunnerLimits::depth, must not
  // be that of a step in flight. ResourceExhausted: there is no memory to hand them over in, and
  // nothing has changed.
  Status stage(const StepView& step, int32_t area);

  // The step is on its way: what it loads is there for later ones.
  void keep(const StepView& step);

  // On the stream, once for each staged step, before its rows are computed.
  Status run(int32_t area, Stream& stream) const;

  // What kernels look up adapters in.
  void add_to(kernels::StepView& step) const;

 private:
  struct Upload {
    size_t to = 0, offset = 0, bytes = 0;  // `to`: in weights_
  };
  struct Area {
    Buffer staging;               // host: weights of the step's loads, then tables
    std::vector<Upload> uploads;  // of weights
    std::vector<Upload> tables;   // into table_
  };

  Status check(const AdapterMatrix& matrix, int32_t former) const;
  size_t num_weights(const AdapterMatrix& matrix) const;
  size_t table_bytes() const { return modules_.size() * sizeof(kernels::AdapterMatrix); }

  Device* device_ = nullptr;
  RunnerLimits limits_;
  std::vector<io::AdapterModule> modules_;
  std::vector<int64_t> begins_;  // of each module's matrices in a place, in elements; then all
  std::vector<bool> loaded_;     // by place
  Buffer weights_;               // bf16 [num_adapters, begins_.back()]
  Buffer table_;                 // kernels::AdapterMatrix [num_adapters, modules]
  std::vector<Area> areas_;      // [depth]
};

}  // namespace nereid::exec
