// Column factors moved from a product's input to its matrix: AWQ (least change of the product;
// source: Lin et al. 2023, "AWQ: Activation-aware Weight Quantization for LLM Compression and
// Acceleration") and SmoothQuant (balanced rounding of input and matrix).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/api/weight_format.h"
#include "tensor/thread_pool.h"

namespace nereid::quant {

struct ScaleSearch {
  kernels::WeightFormat format;
  // Columns i and i + repeat * j (j < times) in each run of repeat * times share a factor (query
  // heads with a common value head); 1 and 1: no sharing.
  int64_t repeat = 1, times = 1;
};

// Passes the matrices [n, k] of an input to `use` one by one; stops at the first error.
using ForEachMatrix =
    std::function<Status(const std::function<Status(std::span<const float>)>& use)>;

// AWQ factors of k columns: f(r) = mean magnitude ^ r / geometric mean, for the r in 0, 0.05, ...,
// 1 with the least sum of d (x^T x) d^T, d: error of plain rounding of matrix * f. `products`: mean
// x^T x. All 1 if no r is better than none. Errors of the matrices, and as kernels::quantize().
StatusOr<std::vector<float>> search_scales(const ScaleSearch& search, const ForEachMatrix& matrices,
                                           int64_t k, std::span<const double> magnitudes,
                                           std::span<const double> products, ThreadPool& pool);

// SmoothQuant factors of k columns: (max |input|) ^ strength / (max |weight|) ^ (1 - strength),
// strength in [0, 1]; 1 where either is 0. Source: Xiao et al. 2023, "SmoothQuant: Accurate and
// Efficient Post-Training Quantization for Large Language Models".
StatusOr<std::vector<float>> smoothing_factors(const ScaleSearch& search,
                                               const ForEachMatrix& matrices,
                                               std::span<const float> largest, double strength);

}  // namespace nereid::quant
