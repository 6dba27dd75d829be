// Data flow between a plan's calls, derived from overlaps of their values' memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/plan.h"

namespace nereid::exec {

class ValueFlow {
 public:
  explicit ValueFlow(const io::Plan& plan);

  struct Read {
    size_t call = 0;  // call index; number of calls: a result of the plan
    io::ValueId id = io::kNone;
  };
  // Readers of the bytes that `call` writes to `id`.
  const std::vector<Read>& reads_of(size_t call, io::ValueId id) const;
  // The only call that wrote `id` as read by `call`, under the same id; kNone: none, or several.
  int32_t writer_of(size_t call, io::ValueId id) const;
  // Number of calls that write to `id`.
  int32_t num_writes(io::ValueId id) const { return num_writes_[static_cast<size_t>(id)]; }

 private:
  struct Written {
    io::ValueId id = io::kNone;
    std::vector<Read> reads;
  };
  struct Source {
    io::ValueId id = io::kNone;
    int32_t writer = io::kNone;
  };
  void add_read(const io::Plan& plan, size_t call, io::ValueId id);

  std::vector<std::vector<Written>> writes_;  // by call
  std::vector<std::vector<Source>> sources_;  // by call
  std::vector<int32_t> num_writes_;           // by value
};

}  // namespace nereid::exec
