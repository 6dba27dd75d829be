// Factors of a product's columns, taken out of its input: those that make the rounded product
// differ least, and those that make the input easy to round. Source of the first: Lin et al. 2023,
// "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration".
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
  // Columns i and i + repeat * j (j < times) within each run of repeat * times share a factor, as
  // those of query heads that read one value head do; 1 and 1: each has its own.
  int64_t repeat = 1, times = 1;
};

// Hands the matrices that read the same input, each [n, k], to `use`, one after the other; the
// first error ends it.
using ForEachMatrix =
    std::function<Status(const std::function<Status(std::span<const float>)>& use)>;

// A factor for each of k columns: mean magnitude ^ r, divided by their geometric middle, for the r
// in 0, 0.05, ..., 1 with which the matrices, multiplied by them and rounded plainly, differ least
// in their products with the input: sum of d (x^T x) d^T. `products` is that mean x^T x; all 1 when
// nothing is better than no factors. Errors of the matrices, and as kernels::quantize().
StatusOr<std::vector<float>> search_scales(const ScaleSearch& search, const ForEachMatrix& matrices,
                                           int64_t k, std::span<const double> magnitudes,
                                           std::span<const double> products, ThreadPool& pool);

// A factor for each of k columns that divides what is hard to round between input and weight:
// (largest magnitude of the input) ^ strength / (largest of the matrices) ^ (1 - strength), 0 to 1;
// 1 where either is zero. Source: Xiao et al. 2023, "SmoothQuant: Accurate and Efficient
// Post-Training Quantization for Large Language Models".
StatusOr<std::vector<float>> smoothing_factors(const ScaleSearch& search,
                                               const ForEachMatrix& matrices,
                                               std::span<const float> largest, double strength);

}  // namespace nereid::quant
