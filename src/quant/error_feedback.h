// Error feedback: column-by-column rounding in which later columns compensate each column's error,
// so that products with calibration inputs change least. Sources: Frantar et al. 2022, "GPTQ:
// Accurate Post-Training Quantization for Generative Pre-trained Transformers"; coordinate descent
// afterwards: Behdin et al. 2023, "QuantEase: Optimization-based Quantization for Language Models".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/api/quantize.h"
#include "tensor/thread_pool.h"

namespace nereid::quant {

struct RoundedRows;  // rows being rounded

// Error propagation for all matrices with the same input.
class ErrorFeedback {
 public:
  // `products`: mean x^T x of the input, [k, k]. `damping` > 0: share of the mean diagonal added to
  // the diagonal; keeps columns rarely seen in calibration. `by_weight`: act order (columns with
  // large inputs first), else left to right. InvalidArgument: not positive definite.
  static StatusOr<ErrorFeedback> create(std::vector<double> products, int64_t k, double damping,
                                        bool by_weight, ThreadPool& pool);

  // For inputs of a partially rounded model: adds matrix * drift * (inverse products) to rows [n,
  // k] of a matrix, so that products approach the float model's. `drift` [k, k]:
  // InputStatistics::mean_drift(). Source: Li et al. 2025, "GPTAQ: Efficient Finetuning-Free
  // Quantization for Asymmetric Calibration".
  void follow(std::span<const double> drift, std::span<float> matrix, ThreadPool& pool) const;

  // Rounds rows [n, k] in a format supported by kernels::quantize(), row-major planes. Scales:
  // those of kernels::quantize(), or smaller (integers) or larger (f8e4m3) ones with less squared
  // error weighted by mean squared inputs; groups are in matrix order. Then coordinate descent over
  // integers and scales. InvalidArgument as kernels::quantize().
  Status round(const kernels::WeightFormat& format, std::span<const float> matrix, ThreadPool& pool,
               kernels::QuantizedPlanes& out) const;

 private:
  void spread_errors(RoundedRows& rows) const;
  void improve(RoundedRows& rows) const;

  int64_t k_ = 0;
  std::vector<int32_t> order_;   // column order
  std::vector<float> products_;  // [k, k], damped
  std::vector<double> weights_;  // diagonal of products_
  std::vector<double> spread_;   // [k, k] in column order: upper factor of the inverse products
};

// Value of (row, col) in row-major planes.
float value_of(const kernels::WeightFormat& format, const kernels::QuantizedPlanes& planes,
               int64_t n, int64_t k, int64_t row, int64_t col);

}  // namespace nereid::quant
