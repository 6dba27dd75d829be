// Rounding of a matrix column by column, each column's error made up for by the columns that are
// still to be rounded, so that products with rows like those of the calibration change least.
// Sources: Frantar et al. 2022, "GPTQ: Accurate Post-Training Quantization for Generative
// Pre-trained Transformers"; of what comes behind it (coordinate descent) Behdin et al. 2023,
// "QuantEase: Optimization-based Quantization for Language Models".
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/api/quantize.h"
#include "tensor/thread_pool.h"

namespace nereid::quant {

struct RoundedRows;  // some rows while they are rounded

// How a column's error is spread, for all matrices that read the same input.
class ErrorFeedback {
 public:
  // `products`: mean x^T x of the input, [k, k]. `damping`, above 0: a share of the mean of the
  // diagonal that is added to it, so that columns which calibration hardly saw keep their numbers.
  // `by_weight`: columns with large inputs are rounded first (act order), else from left to right.
  // InvalidArgument when the matrix is not positive definite even so.
  static StatusOr<ErrorFeedback> create(std::vector<double> products, int64_t k, double damping,
                                        bool by_weight, ThreadPool& pool);

  // Where the input is that of a model that is rounded up to here: adds to rows [n, k] of a matrix
  // what brings their product with it nearest to the float model's: matrix * drift * (inverse
  // products). `drift` [k, k]: InputStatistics::mean_drift().
  // Source: Li et al. 2025, "GPTAQ: Efficient Finetuning-Free Quantization for Asymmetric
  // Calibration".
  void follow(std::span<const double> drift, std::span<float> matrix, ThreadPool& pool) const;

  // Rows [n, k] in a format for which kernels::quantize() is defined, row-major planes. Scales are
  // those of kernels::quantize(), or smaller ones of integers and larger ones of f8e4m3 numbers
  // where the squared errors of the group, weighted by the inputs' squares, get smaller; groups
  // stay those of the columns' order in the matrix. Integers are then changed one by one, and
  // scales, as long as that brings the products nearer. InvalidArgument as kernels::quantize().
  Status round(const kernels::WeightFormat& format, std::span<const float> matrix, ThreadPool& pool,
               kernels::QuantizedPlanes& out) const;

 private:
  void spread_errors(RoundedRows& rows) const;
  void improve(RoundedRows& rows) const;

  int64_t k_ = 0;
  std::vector<int32_t> order_;   // of the columns
  std::vector<float> products_;  // [k, k], damped
  std::vector<double> weights_;  // diagonal of the products, by column
  std::vector<double> spread_;   // [k, k] in that order: upper factor of the inverse products
};

// What (row, col) of row-major planes stands for.
float value_of(const kernels::WeightFormat& format, const kernels::QuantizedPlanes& planes,
               int64_t n, int64_t k, int64_t row, int64_t col);

}  // namespace nereid::quant
