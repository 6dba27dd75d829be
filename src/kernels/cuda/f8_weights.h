// Weights of f8e4m3 with scales of groups: what tells them, and how products of many rows read
// them.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/api/ops.h"

namespace nereid::kernels::cuda {

// With scales of whole rows, and of groups of columns.
inline bool has_f8_rows(const WeightFormat& f) {
  return f.scheme == Scheme::kFloat8 && f.group == 0;
}
inline bool has_f8_groups(const WeightFormat& f) {
  return f.scheme == Scheme::kFloat8 && f.group > 0;
}

// Writes rows [row0, row0 + rows) of groups as bf16 to `to` [rows, k]; k is a multiple of 8.
cudaError_t launch_widen(const WeightView& weight, int64_t row0, int64_t rows, void* to,
                         cudaStream_t stream);

}  // namespace nereid::kernels::cuda
