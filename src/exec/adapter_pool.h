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

// Most loads and moves together, and most weights, that a message may have: host memory in which
// they are staged is taken at the start.
inline constexpr int32_t kMaxAdapterChanges = 16;
int64_t max_load_weights(const RunnerLimits& limits);

// Numbers that the matrices of an adapter take, aligned; `matrices` have modules that there are.
int64_t adapter_numbers(std::span<const io::AdapterModule> modules,
                        std::span<const AdapterMatrix> matrices);
// Pages of `page_numbers` that so many numbers fill: at least one, since a place without pages
// holds nothing.
int64_t adapter_pages(int64_t numbers, int64_t page_numbers);

// Called on the engine thread, but for load() and run().
class AdapterPool {
 public:
  // `limits` have passed check_limits(), and so they have everywhere below.
  static StatusOr<AdapterPool> create(std::span<const io::AdapterModule> modules,
                                      const RunnerLimits& limits, Device& device);

  // Bytes on the device of all pages and tables.
  static size_t bytes(std::span<const io::AdapterModule> modules, const RunnerLimits& limits);
  // Bytes of host memory for what messages bring.
  static size_t staging_bytes(std::span<const io::AdapterModule> modules,
                              const RunnerLimits& limits);

  // InvalidArgument when a load or a move of the step is invalid, or a row's adapter is in no
  // place.
  Status check(const StepView& step) const;

  // Takes the loads and moves of a step that has passed check(); `area`, below RunnerLimits::depth,
  // must not be that of a step in flight. Takes no memory of the device.
  void stage(const StepView& step, int32_t area);

  // The step is on its way: what it loads is there for later ones.
  void keep(const StepView& step);

  // Whether a staged step brings weights, which load() copies, and whether its rows need them.
  bool has_loads(int32_t area) const;
  bool needs_loads(int32_t area) const;

  // On a stream of its own, once for each staged step that has_loads(), behind all steps before it:
  // pages that it writes may have been read by them.
  Status load(int32_t area, Stream& stream) const;

  // On the stream of steps, once for each staged step, before its rows are computed and behind
  // load() of those before it; of its own where needs_loads().
  Status run(int32_t area, Stream& stream) const;

  // What kernels look up adapters in.
  void add_to(kernels::StepView& step) const;

 private:
  struct Upload {
    size_t to = 0, offset = 0, bytes = 0;  // `to`: in weights_
  };
  struct Move {
    size_t to = 0, from = 0, bytes = 0;  // in weights_; the pieces do not overlap
  };
  struct Area {
    Buffer staging;  // host: weights of the step's loads, then tables
    std::vector<Move> moves;
    std::vector<Upload> uploads;  // of weights
    std::vector<Upload> tables;   // into table_
    bool needs_loads = false;
  };

  struct Pages {
    int32_t first = 0, count = 0;
    int64_t end() const { return int64_t{first} + count; }
    bool overlap(const Pages& other) const { return other.first < end() && first < other.end(); }
    bool operator==(const Pages&) const = default;
  };
  // What is in a place. No pages: nothing.
  struct Held {
    Pages pages;
    int64_t num_loaded = 0;  // weights
    bool is_whole = false;
  };
  // A load with what belongs to it.
  struct LoadParts {
    std::span<const AdapterMatrix> matrices;
    Pages pages;
    int64_t num_weights = 0;  // of the whole adapter
  };

  Status check(const AdapterMatrix& matrix, int32_t former) const;
  // Takes one load off the front of `matrices`, and its numbers off the `weights` that are left.
  StatusOr<LoadParts> take(const AdapterLoad& load, std::span<const AdapterMatrix>& matrices,
                           size_t& weights) const;
  // What the places hold behind the step's loads and moves.
  Status change(const StepView& step, std::vector<Held>& held) const;
  Status move(const AdapterMove& move, std::vector<Held>& held) const;
  Status load(const AdapterLoad& load, const LoadParts& parts, std::vector<Held>& held) const;
  void stage_move(const AdapterMove& move, Area& area);
  void stage_load(const AdapterLoad& load, std::span<const AdapterMatrix> matrices, size_t from,
                  Area& area);
  void stage_table(int32_t adapter, std::span<const AdapterMatrix> matrices, int32_t first_page,
                   Area& area);
  int64_t num_weights(const AdapterMatrix& matrix) const;
  size_t table_bytes() const { return modules_.size() * sizeof(kernels::AdapterMatrix); }

  RunnerLimits limits_;
  std::vector<io::AdapterModule> modules_;
  std::vector<Held> held_;                            // by place
  std::vector<std::vector<AdapterMatrix>> matrices_;  // by place
  Buffer weights_;           // bf16 [num_adapter_pages, adapter_page_numbers]
  Buffer table_;             // kernels::AdapterMatrix [num_adapters, modules]
  std::vector<Area> areas_;  // [depth]
};

}  // namespace nereid::exec
