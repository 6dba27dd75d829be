// What calibration keeps of the rows that a product reads.
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
  // Of rows of `k` columns, 0 < k. Products of columns take k * k * 4 bytes; without them only the
  // columns' magnitudes are kept.
  InputStatistics(int64_t k, bool keep_products);

  // Adds rows [rows, k] in host memory, bf16. InvalidArgument: other columns or type, or a number
  // that is not finite.
  Status add(const View& rows, ColumnProducts& products);

  // What is kept besides of two models whose products read different rows, see add_drift().
  void keep_drift() { drift_.resize(static_cast<size_t>(k_ * k_)); }
  bool keeps_drift() const { return !drift_.empty(); }
  // Adds the rows x [rows, k] of a model that is rounded up to here, where the float model has
  // `was`; bf16. Errors as add().
  Status add_drift(const View& was, const View& x, ColumnProducts& products);

  int64_t k() const { return k_; }
  int64_t num_rows() const { return num_rows_; }
  // Of each column, over all rows; 0 without rows.
  std::vector<double> mean_magnitudes() const;
  const std::vector<float>& largest_magnitudes() const { return largest_; }  // likewise
  // (1 / rows) * sum of x^T x, [k, k], both halves; empty where it is not kept.
  std::vector<double> mean_products() const;
  // (1 / rows) * sum of (was - x)^T x, [k, k]; empty where it is not kept.
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
