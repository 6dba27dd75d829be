#include "quant/input_statistics.h"

#include <algorithm>
#include <cmath>

namespace nereid::quant {
namespace {

constexpr int64_t kTileRows = 4;  // of the products, that share what they read
constexpr int64_t kTileCols = 64;

// products[i, j] += sum of rows[t, i] * rows[t, j], for a tile of i and j.
void add_tile(std::span<const float> rows, int64_t k, int64_t i, int64_t num_i, int64_t j,
              int64_t num_j, float* products) {
  float sums[kTileRows][kTileCols] = {};
  const int64_t count = static_cast<int64_t>(rows.size()) / k;
  for (int64_t t = 0; t < count; ++t) {
    const float* const row = rows.data() + t * k;
    for (int64_t a = 0; a < num_i; ++a) {
      const float x = row[i + a];
      if (num_j == kTileCols)
        for (int64_t b = 0; b < kTileCols; ++b) sums[a][b] += x * row[j + b];
      else
        for (int64_t b = 0; b < num_j; ++b) sums[a][b] += x * row[j + b];
    }
  }
  for (int64_t a = 0; a < num_i; ++a)
    for (int64_t b = 0; b < num_j; ++b) products[(i + a) * k + j + b] += sums[a][b];
}

}  // namespace

InputStatistics::InputStatistics(int64_t k, bool keep_products)
    : k_(k), magnitudes_(static_cast<size_t>(k)) {
  if (keep_products) products_.resize(static_cast<size_t>(k * k));
}

Status InputStatistics::add(const View& rows, ThreadPool& pool) {
  if (rows.cols != k_ || rows.dtype != DType::kBF16)
    return invalid_argument("calibration: rows of {} {}, wanted are {} bf16", rows.cols,
                            nereid::name_of(rows.dtype), k_);
  rows_.resize(static_cast<size_t>(rows.rows * k_));
  for (int64_t row = 0; row < rows.rows; ++row) {
    const auto* const from = static_cast<const BF16*>(rows.data) + row * rows.stride;
    float* const to = rows_.data() + row * k_;
    for (int64_t col = 0; col < k_; ++col) {
      to[col] = to_float(from[col]);
      if (!std::isfinite(to[col]))
        return invalid_argument("calibration: a product reads a number that is not finite");
      magnitudes_[static_cast<size_t>(col)] += std::fabs(to[col]);
    }
  }
  num_rows_ += rows.rows;
  if (products_.empty()) return ok();
  pool.parallel_for((k_ + kTileRows - 1) / kTileRows, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin * kTileRows; i < std::min(end * kTileRows, k_); i += kTileRows)
      for (int64_t j = i; j < k_; j += kTileCols)
        add_tile(rows_, k_, i, std::min(kTileRows, k_ - i), j, std::min(kTileCols, k_ - j),
                 products_.data());
  });
  return ok();
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
