// LoRA adapters on the device: a fixed number of adapter slots that share pages of memory, filled
// by loads in step messages.
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

// Maximum of loads + moves, and of weights, in a message: staging memory is allocated at start.
inline constexpr int32_t kMaxAdapterChanges = 16;
int64_t max_load_weights(const RunnerLimits& limits);

// Aligned size of an adapter's matrices in bf16 numbers; their modules must exist.
int64_t adapter_numbers(std::span<const io::AdapterModule> modules,
                        std::span<const LoraMatrixInfo> matrices);
// Pages for `numbers`: at least 1, because an adapter slot without pages is empty.
int64_t adapter_pages(int64_t numbers, int64_t page_numbers);

// Called on the engine thread, except load() and run().
class AdapterPool {
 public:
  // Precondition here and below: `limits` passed check_limits(). `parts`: what a rank of several
  // has of the modules; each part is a module of its kernels' tables.
  static StatusOr<AdapterPool> create(std::span<const io::AdapterModule> modules,
                                      const RunnerLimits& limits, Device& device,
                                      std::span<const io::ModulePart> parts = {},
                                      bool has_parts = false);

  // Device bytes of pages and tables.
  static size_t bytes(std::span<const io::AdapterModule> modules, const RunnerLimits& limits);
  // Host bytes for staged loads.
  static size_t staging_bytes(std::span<const io::AdapterModule> modules,
                              const RunnerLimits& limits);

  // InvalidArgument: an invalid load or move, or a row's adapter that is not loaded.
  Status check(const StepMessageView& step) const;

  // Stages the loads and moves of a checked step in `area` < RunnerLimits::depth, which no step in
  // flight uses. Allocates no device memory.
  void stage(const StepMessageView& step, int32_t area);

  // Applies the loads and moves of a launched step to the pool's state.
  void keep(const StepMessageView& step);

  // has_loads(): the staged step has weights for load(); needs_loads(): its own rows use them.
  bool has_loads(int32_t area) const;
  bool needs_loads(int32_t area) const;

  // Copies the weights of a staged step with has_loads() on the load stream, once, after all
  // earlier steps, which may read the overwritten pages.
  Status load(int32_t area, Stream& stream) const;

  // Applies moves and tables on the step stream, once per staged step, before its rows and after
  // load() of earlier steps (with needs_loads(): also of this step).
  Status run(int32_t area, Stream& stream) const;

  int32_t num_parts() const { return static_cast<int32_t>(parts_.size()); }  // entries of a table

  // Sets the adapter tables and weights that kernels read.
  void add_to(kernels::BatchView& step) const;

 private:
  struct Upload {
    size_t to = 0, offset = 0, bytes = 0;  // `to`: byte offset in weights_
  };
  struct Move {
    size_t to = 0, from = 0, bytes = 0;  // byte offsets in weights_; without overlap
  };
  struct Area {
    Buffer staging;  // host: the step's weights, then tables
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
  // Contents of an adapter slot. No pages: empty.
  struct Held {
    Pages pages;
    int64_t num_loaded = 0;  // weights
    bool is_whole = false;
  };
  // A load with its matrices.
  struct LoadParts {
    std::span<const LoraMatrixInfo> matrices;
    Pages pages;
    int64_t num_weights = 0;  // of the whole adapter
  };

  Status check(const LoraMatrixInfo& matrix, int32_t former) const;
  // Removes one load's matrices from the front of `matrices`, and its count from `weights`.
  StatusOr<LoadParts> take(const AdapterLoad& load, std::span<const LoraMatrixInfo>& matrices,
                           size_t& weights) const;
  // State of the adapter slots after the step's loads and moves.
  Status change(const StepMessageView& step, std::vector<Held>& held) const;
  Status move(const AdapterMove& move, std::vector<Held>& held) const;
  Status load(const AdapterLoad& load, const LoadParts& parts, std::vector<Held>& held) const;
  void stage_move(const AdapterMove& move, Area& area);
  void stage_load(const AdapterLoad& load, std::span<const LoraMatrixInfo> matrices, size_t from,
                  Area& area);
  void stage_table(int32_t adapter, std::span<const LoraMatrixInfo> matrices, int32_t first_page,
                   Area& area);
  int64_t num_weights(const LoraMatrixInfo& matrix) const;
  // Moves the staged weights [begin, end) of a matrix, which begin at `at`, to the front so that
  // only the rank's columns are left.
  struct KeptWeights {
    int64_t begin = 0, count = 0;  // of the rank's weights of the matrix
  };
  KeptWeights keep_columns(const LoraMatrixInfo& matrix, int64_t begin, int64_t end,
                           BF16* at) const;
  size_t table_bytes() const { return modules_.size() * sizeof(kernels::LoraMatrix); }

  RunnerLimits limits_;
  std::vector<io::AdapterModule> modules_;
  std::vector<io::ModulePart> parts_;
  std::vector<int32_t> part_of_;                       // by module; -1: on other ranks
  std::vector<Held> held_;                             // by adapter slot
  std::vector<std::vector<LoraMatrixInfo>> matrices_;  // by adapter slot
  Buffer weights_;           // bf16 [num_adapter_pages, adapter_page_numbers]
  Buffer table_;             // kernels::LoraMatrix [num_adapters, modules]
  std::vector<Area> areas_;  // [depth]
};

}  // namespace nereid::exec
