// The classification extension: a tensor of scores -> the names of its best classes.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "front/bridge/tensor.h"

namespace nereid::front {

// A BYTES tensor of "<score>:<index>[:<label>]", the `num` best classes of each row. `batched`: the
// first dimension counts rows; else there is one. InvalidArgument for types without an order.
StatusOr<Tensor> classify(const Tensor& t, uint64_t num, bool batched);

}  // namespace nereid::front
