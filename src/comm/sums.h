// Sums over ranks in the order of communicator.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace nereid::comm {

// out [count] = sum of parts[r] [count], f32 or bf16, along the balanced pairwise tree. `out` does
// not overlap the parts.
void sum_parts(std::span<const std::byte* const> parts, int64_t count, DType type, std::byte* out);

}  // namespace nereid::comm
