// f8e4m3 weights with group scales: predicates, and conversion for products of many rows.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/api/ops.h"

namespace nereid::kernels::cuda {

// With scales per row, and per group of columns.
inline bool has_f8_rows(const WeightFormat& f) {
  return f.scheme == Scheme::kFloat8 && f.group == 0;
}
inline bool has_f8_groups(const WeightFormat& f) {
  return f.scheme == Scheme::kFloat8 && f.group > 0;
}

// Writes rows [row0, row0 + rows) of group-scaled weights as bf16 to `to` [rows, k]; k % 8 == 0.
cudaError_t launch_widen(const WeightView& weight, int64_t row0, int64_t rows, void* to,
                         cudaStream_t stream);

}  // namespace nereid::kernels::cuda
