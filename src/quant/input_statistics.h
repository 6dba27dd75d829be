// Calibration statistics of a product's input rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "quant/column_products.h"
#include "tensor/view.h"

namespace nereid::quant {

class InputStatistics {
 public:
  // `k` > 0: columns. `keep_products`: k * k * 4 bytes for column products; else magnitudes only.
  InputStatistics(int64_t k, bool keep_products);

  // Adds rows [rows, k], bf16 in host memory. InvalidArgument: other columns or type, or a number
  // that is not finite.
  Status add(const View& rows, ColumnProducts& products);

  // Enables drift statistics (two models with different inputs), see add_drift().
  void keep_drift() { drift_.resize(static_cast<size_t>(k_ * k_)); }
  bool keeps_drift() const { return !drift_.empty(); }
  // Adds rows `x` [rows, k] of the partially rounded model and `was` of the float model; bf16.
  // Errors as add().
  Status add_drift(const View& was, const View& x, ColumnProducts& products);

  int64_t k() const { return k_; }
  int64_t num_rows() const { return num_rows_; }
  // Mean |x| per column; 0 without rows.
  std::vector<double> mean_magnitudes() const;
  const std::vector<float>& largest_magnitudes() const { return largest_; }  // max |x|
  // (1 / rows) * sum of x^T x, [k, k], symmetric; empty: not kept.
  std::vector<double> mean_products() const;
  // (1 / rows) * sum of (was - x)^T x, [k, k]; empty: not kept.
  std::vector<double> mean_drift() const;

 private:
  const int64_t k_;
  int64_t num_rows_ = 0;
  std::vector<double> magnitudes_;
  std::vector<float> largest_;
  std::vector<float> products_;  // [k, k]
  std::vector<float> drift_;     // [k, k]
};

}  // namespace nereid::quant
