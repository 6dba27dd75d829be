#include "quant/input_statistics.h"

#include <algorithm>
#include <cmath>

namespace nereid::quant {
InputStatistics::InputStatistics(int64_t k, bool keep_products)
    : k_(k), magnitudes_(static_cast<size_t>(k)), largest_(static_cast<size_t>(k)) {
  if (keep_products) products_.resize(static_cast<size_t>(k * k));
}

Status InputStatistics::add(const View& rows, ColumnProducts& products) {
  if (rows.cols != k_ || rows.dtype != DType::kBF16)
    return invalid_argument("calibration: rows of {} {}, wanted are {} bf16", rows.cols,
                            nereid::name_of(rows.dtype), k_);
  for (int64_t row = 0; row < rows.rows; ++row) {
    const auto* const from = static_cast<const BF16*>(rows.data) + row * rows.stride;
    for (int64_t col = 0; col < k_; ++col) {
      const float x = to_float(from[col]);
      if (!std::isfinite(x))
        return invalid_argument("calibration: a product reads a number that is not finite");
      magnitudes_[static_cast<size_t>(col)] += std::fabs(x);
      largest_[static_cast<size_t>(col)] =
          std::max(largest_[static_cast<size_t>(col)], std::fabs(x));
    }
  }
  num_rows_ += rows.rows;
  return products_.empty() ? ok() : products.add(rows, rows, products_);
}

Status InputStatistics::add_drift(const View& was, const View& x, ColumnProducts& products) {
  RETURN_IF_ERROR(add(x, products));
  std::vector<BF16> off;
  for (int64_t row = 0; row < x.rows; ++row)
    for (int64_t col = 0; col < k_; ++col)
      off.push_back(to_bf16(to_float(static_cast<const BF16*>(was.data)[row * was.stride + col]) -
                            to_float(static_cast<const BF16*>(x.data)[row * x.stride + col])));
  return products.add(View::matrix(off.data(), DType::kBF16, x.rows, k_), x, drift_);
}

std::vector<double> InputStatistics::mean_drift() const {
  std::vector<double> means(drift_.begin(), drift_.end());
  for (double& mean : means) mean /= static_cast<double>(std::max<int64_t>(num_rows_, 1));
  return means;
}

std::vector<double> InputStatistics::mean_magnitudes() const {
  std::vector<double> means(magnitudes_);
  for (double& mean : means) mean /= static_cast<double>(std::max<int64_t>(num_rows_, 1));
  return means;
}

std::vector<double> InputStatistics::mean_products() const {
  std::vector<double> means(products_.size());
  const double factor = 1 / static_cast<double>(std::max<int64_t>(num_rows_, 1));
  for (int64_t i = 0; !means.empty() && i < k_; ++i)
    for (int64_t j = i; j < k_; ++j)
      means[static_cast<size_t>(i * k_ + j)] = means[static_cast<size_t>(j * k_ + i)] =
          factor * static_cast<double>(products_[static_cast<size_t>(i * k_ + j)]);
  return means;
}

}  // namespace nereid::quant
