#include "quant/scale_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/api/pack.h"
#include "kernels/api/quantize.h"

namespace nereid::quant {
namespace {

constexpr int kSteps = 20;

size_t spot(int64_t i) { return static_cast<size_t>(i); }

std::vector<float> factors_of(const ScaleSearch& search, std::span<const double> magnitudes,
                              double power) {
  const auto k = static_cast<int64_t>(magnitudes.size());
  std::vector<double> shared(magnitudes.begin(), magnitudes.end());
  const int64_t run = search.repeat * search.times;
  for (int64_t begin = 0; run > search.repeat && begin + run <= k; begin += run)
    for (int64_t i = 0; i < search.repeat; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < search.times; ++j)
        sum += magnitudes[spot(begin + j * search.repeat + i)];
      for (int64_t j = 0; j < search.times; ++j)
        shared[spot(begin + j * search.repeat + i)] = sum / static_cast<double>(search.times);
    }
  std::vector<float> factors;
  double least = 0, most = 0;
  for (size_t i = 0; i < shared.size(); ++i) {
    shared[i] = std::max(std::pow(shared[i], power), 1e-4);
    least = i == 0 ? shared[i] : std::min(least, shared[i]);
    most = i == 0 ? shared[i] : std::max(most, shared[i]);
  }
  for (const double x : shared) factors.push_back(static_cast<float>(x / std::sqrt(least * most)));
  return factors;
}

// Sum of d (x^T x) d^T over the rows of a matrix; d: rounding error.
StatusOr<double> product_error(const kernels::WeightFormat& format, std::span<const float> matrix,
                               int64_t k, const std::vector<float>& factors,
                               std::span<const double> products, ThreadPool& pool) {
  std::vector<BF16> scaled(matrix.size());
  for (size_t i = 0; i < matrix.size(); ++i)
    scaled[i] = to_bf16(matrix[i] * factors[i % factors.size()]);
  kernels::QuantizedPlanes planes;
  constexpr auto kLayout = kernels::WeightLayout::kRowMajor;
  RETURN_IF_ERROR(kernels::quantize(format, kLayout, scaled, k, planes));
  const int64_t n = static_cast<int64_t>(matrix.size()) / k;
  const kernels::WeightView view = planes.view(format, kLayout, n, k);
  std::vector<double> errors(spot(n));
  pool.parallel_for(n, 4, [&](int64_t begin, int64_t end, int) {
    std::vector<double> off(spot(k));
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t col = 0; col < k; ++col)
        off[spot(col)] = double{kernels::weight_at(view, row, col)} / factors[spot(col)] -
                         matrix[spot(row * k + col)];
      for (int64_t i = 0; i < k; ++i)
        errors[spot(row)] += off[spot(i)] * std::inner_product(off.begin(), off.end(),
                                                               products.begin() + i * k, 0.0);
    }
  });
  return std::accumulate(errors.begin(), errors.end(), 0.0);
}

}  // namespace

StatusOr<std::vector<float>> smoothing_factors(const ScaleSearch& search,
                                               const ForEachMatrix& matrices,
                                               std::span<const float> largest, double strength) {
  const auto k = static_cast<int64_t>(largest.size()), run = search.repeat * search.times;
  std::vector<float> weights(spot(k));
  RETURN_IF_ERROR(matrices([&](std::span<const float> matrix) {
    for (size_t i = 0; i < matrix.size(); ++i) {
      float& most = weights[i % weights.size()];
      most = std::max(most, std::fabs(matrix[i]));
    }
    return ok();
  }));
  std::vector<float> factors(spot(k), 1.0f);
  for (int64_t col = 0; col < k; ++col) {
    float input = 0, weight = 0;
    for (int64_t j = 0; j < search.times; ++j) {  // columns sharing the factor
      const int64_t i = col / run * run + j * search.repeat + col % search.repeat;
      if (i >= k) continue;
      input = std::max(input, largest[spot(i)]);
      weight = std::max(weight, weights[spot(i)]);
    }
    if (input > 0 && weight > 0)
      factors[spot(col)] = static_cast<float>(std::clamp(
          std::pow(double{input}, strength) / std::pow(double{weight}, 1 - strength), 1e-4, 1e4));
  }
  return factors;
}

StatusOr<std::vector<float>> search_scales(const ScaleSearch& search, const ForEachMatrix& matrices,
                                           int64_t k, std::span<const double> magnitudes,
                                           std::span<const double> products, ThreadPool& pool) {
  std::vector<std::vector<float>> tried;
  for (int step = 0; step <= kSteps; ++step)
    tried.push_back(factors_of(search, magnitudes, static_cast<double>(step) / kSteps));
  std::vector<double> errors(tried.size());
  RETURN_IF_ERROR(matrices([&](std::span<const float> matrix) -> Status {
    for (size_t i = 0; i < tried.size(); ++i) {
      ASSIGN_OR_RETURN(const double part,
                       product_error(search.format, matrix, k, tried[i], products, pool));
      errors[i] += part;
    }
    return ok();
  }));
  return tried[static_cast<size_t>(std::ranges::min_element(errors) - errors.begin())];
}

}  // namespace nereid::quant
