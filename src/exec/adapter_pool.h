// The adapters that a device holds: as many places as the limits say, which share pages of memory,
// filled by what messages of steps bring along.
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

// Numbers that the matrices of an adapter take, aligned; `matrices` have modules that there are.
int64_t adapter_numbers(std::span<const io::AdapterModule> modules,
                        std::span<const AdapterMatrix> matrices);
// Pages of `page_numbers` that so many numbers fill: at least one, since a place without pages
// holds nothing.
int64_t adapter_pages(int64_t numbers, int64_t page_numbers);

// Called on the engine thread, but for run().
class AdapterPool {
 public:
  // `limits` have passed check_limits(), and so they have everywhere below.
  static StatusOr<AdapterPool> create(std::span<const io::AdapterModule> modules,
                                      const RunnerLimits& limits, Device& device);

  // Bytes on the device of all pages and tables.
  static size_t bytes(std::span<const io::AdapterModule> modules, const RunnerLimits& limits);

  // InvalidArgument when a load of the step is invalid, or a row's adapter is in no place.
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

  struct Pages {
    int32_t first = 0, count = 0;
    int64_t end() const { return int64_t{first} + count; }
  };

  Status check(const AdapterMatrix& matrix, int32_t former) const;
  // Takes one load off the front of `matrices`, and its numbers off the `weights` that are left.
  // Returns the pages that it needs.
  StatusOr<Pages> take(const AdapterLoad& load, std::span<const AdapterMatrix>& matrices,
                       size_t& weights) const;
  // The matrices of a load that has passed take() are in its pages, and nothing else is.
  static void hold(int32_t adapter, const Pages& pages, std::vector<Pages>& held);
  size_t num_weights(const AdapterMatrix& matrix) const;
  size_t table_bytes() const { return modules_.size() * sizeof(kernels::AdapterMatrix); }

  Device* device_ = nullptr;
  RunnerLimits limits_;
  std::vector<io::AdapterModule> modules_;
  std::vector<Pages> held_;  // by place; no pages: it holds nothing
  Buffer weights_;           // bf16 [num_adapter_pages, adapter_page_numbers]
  Buffer table_;             // kernels::AdapterMatrix [num_adapters, modules]
  std::vector<Area> areas_;  // [depth]
};

}  // namespace nereid::exec
