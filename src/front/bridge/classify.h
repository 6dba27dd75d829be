// The classification extension: a tensor of scores -> the names of its best classes.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "front/bridge/held_memory.h"
#include "front/bridge/tensor.h"

namespace nereid::front {

struct Classes {
  Tensor tensor;
  std::unique_ptr<HeldMemory> held;  // of its bytes
};

// A BYTES tensor of "<score>:<index>[:<label>]", the `num` best classes of each row. `batched`: the
// first dimension counts rows; else there is one. InvalidArgument for types without an order;
// Unavailable where the server has no room for the texts.
StatusOr<Classes> classify(const Tensor& t, uint64_t num, bool batched);

}  // namespace nereid::front
