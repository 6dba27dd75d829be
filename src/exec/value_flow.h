// Which call reads what which other call wrote, by the memory that values share.
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
    size_t call = 0;  // number of calls: it is a result of the plan
    io::ValueId id = io::kNone;
  };
  // Of what the call writes to the value `id`.
  const std::vector<Read>& reads_of(size_t call, io::ValueId id) const;
  // The call that wrote all of `id` as `call` reads it, as a value of the same id; kNone: there is
  // none, or several calls did.
  int32_t writer_of(size_t call, io::ValueId id) const;
  // How many calls write to the value as `id`.
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
