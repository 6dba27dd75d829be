// The classification extension: from a tensor of scores to the names of its best classes.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "front/bridge/held_memory.h"
#include "front/bridge/tensor.h"

namespace nereid::front {

struct Classes {
  Tensor tensor;
  std::unique_ptr<HeldMemory> held;  // memory of its bytes, counted
};

// A BYTES tensor of "<score>:<index>[:<label>]", the `num` best classes of each row. `batched`: the
// first dimension counts rows; else there is one row. InvalidArgument for types without an order;
// Unavailable: the memory budget is full.
StatusOr<Classes> classify(const Tensor& t, uint64_t num, bool batched);

}  // namespace nereid::front
