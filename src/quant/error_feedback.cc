#include "quant/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/api/pack.h"

namespace nereid::quant {
namespace {

using kernels::QuantizedPlanes;
using kernels::Scheme;
using kernels::WeightFormat;

constexpr int kShrinkSteps = 20;         // of scales that are tried
constexpr double kSmallestShrink = 0.6;  // of them
constexpr int64_t kRowsTogether = 8;     // that read a row of the spread while it is near

size_t at(int64_t i) { return static_cast<size_t>(i); }

// The lower factor L of a = L L^T, in place, rows of it; false: not positive definite.
bool factor(std::vector<double>& a, int64_t k, ThreadPool& pool) {
  for (int64_t j = 0; j < k; ++j) {
    double* const row = &a[at(j * k)];
    double sum = row[j];
    for (int64_t i = 0; i < j; ++i) sum -= row[i] * row[i];
    if (!(sum > 0) || !std::isfinite(sum)) return false;
    row[j] = std::sqrt(sum);
    pool.parallel_for(k - j - 1, 64, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = j + 1 + begin; r < j + 1 + end; ++r) {
        double* const other = &a[at(r * k)];
        double dot = other[j];
        for (int64_t i = 0; i < j; ++i) dot -= other[i] * row[i];
        other[j] = dot / row[j];
      }
    });
  }
  return true;
}

// The inverse of an upper triangular matrix, whose rows are given.
std::vector<double> invert_upper(const std::vector<double>& u, int64_t k, ThreadPool& pool) {
  std::vector<double> columns(u.size());  // of the inverse, one behind the other
  pool.parallel_for(k, 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t col = begin; col < end; ++col) {
      double* const x = &columns[at(col * k)];
      x[col] = 1 / u[at(col * k + col)];
      for (int64_t i = col - 1; i >= 0; --i) {
        double sum = 0;
        for (int64_t j = i + 1; j <= col; ++j) sum += u[at(i * k + j)] * x[j];
        x[i] = -sum / u[at(i * k + i)];
      }
    }
  });
  std::vector<double> rows(u.size());
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = i; j < k; ++j) rows[at(i * k + j)] = columns[at(j * k + i)];
  return rows;
}

// What one group's numbers are rounded to.
struct Grid {
  const WeightFormat& format;
  float scale = 0, minimum = 0;
  int32_t zero = 0;

  uint8_t code(double x) const {
    if (scale == 0) return format.scheme == Scheme::kFloat8 ? 0 : static_cast<uint8_t>(zero);
    if (format.scheme == Scheme::kFloat8) {
      const auto y = static_cast<float>(x / scale);
      return to_f8e4m3(std::clamp(y, -kLargestF8E4M3, kLargestF8E4M3)).bits;
    }
    const double most = 2 * format.default_zero() - 1;
    return static_cast<uint8_t>(
        std::clamp(std::nearbyint((x + minimum) / scale) + zero, 0.0, most));
  }
  // As a product multiplies it, its row's scale included.
  double value(uint8_t code) const {
    if (format.scheme == Scheme::kFloat8) return double{to_float(F8E4M3{code})} * scale;
    const auto u = static_cast<float>(code);
    if (format.minima) return to_float(to_bf16(std::fma(scale, u, -minimum)));
    return to_float(to_bf16(scale * (u - static_cast<float>(zero))));
  }
};

Grid grid_of(const WeightFormat& format, const QuantizedPlanes& planes, int64_t row, int64_t group,
             int64_t groups) {
  const size_t i = at(row * groups + group);
  return {format, planes.scales[i], format.minima ? planes.minima[i] : 0,
          format.minima  ? 0
          : format.zeros ? planes.zeros[i]
                         : format.default_zero()};
}

// A smaller scale for a group of integers where that is better.
float best_scale(Grid grid, std::span<const float> numbers, std::span<const double> weights) {
  if (grid.format.scheme != Scheme::kInteger || grid.scale == 0) return grid.scale;
  const float whole = grid.scale;
  float best = whole;
  double least = 0;
  for (int step = 0; step <= kShrinkSteps; ++step) {
    grid.scale = whole * static_cast<float>(1 - (1 - kSmallestShrink) * step / kShrinkSteps);
    double error = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double off = grid.value(grid.code(numbers[i])) - numbers[i];
      error += off * off * weights[i];
    }
    if (step == 0 || error < least) best = grid.scale, least = error;
  }
  return best;
}

}  // namespace

StatusOr<ErrorFeedback> ErrorFeedback::create(std::vector<double> products, int64_t k,
                                              double damping, bool by_weight, ThreadPool& pool) {
  ErrorFeedback out;
  out.k_ = k;
  for (int64_t i = 0; i < k; ++i) out.weights_.push_back(products[at(i * k + i)]);
  const double mean =
      std::accumulate(out.weights_.begin(), out.weights_.end(), 0.0) / static_cast<double>(k);
  out.order_.resize(at(k));
  std::iota(out.order_.begin(), out.order_.end(), 0);
  if (by_weight)
    std::ranges::stable_sort(out.order_, [&](int32_t a, int32_t b) {
      return out.weights_[at(a)] > out.weights_[at(b)];
    });
  // With the order turned round, the inverse's upper factor is the inverse of the lower factor.
  std::vector<double> turned(products.size());
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < k; ++j)
      turned[at(i * k + j)] =
          products[at(int64_t{out.order_[at(k - 1 - i)]} * k + out.order_[at(k - 1 - j)])];
  products = {};
  // An input that is always zero takes any weight.
  const double added = mean > 0 ? damping * mean : 1;
  for (int64_t i = 0; i < k; ++i) turned[at(i * k + i)] += added;
  if (!factor(turned, k, pool))
    return invalid_argument(
        "calibration: the products of a layer's inputs are not positive definite; more text or "
        "more damping is needed");
  std::vector<double> upper(turned.size());
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = i; j < k; ++j)
      upper[at(i * k + j)] = turned[at((k - 1 - i) * k + (k - 1 - j))];
  turned = {};
  out.spread_ = invert_upper(upper, k, pool);
  return out;
}

void ErrorFeedback::follow(std::span<const double> drift, std::span<float> matrix,
                           ThreadPool& pool) const {
  const int64_t n = static_cast<int64_t>(matrix.size()) / k_;
  pool.parallel_for(n, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<double> missing(at(k_)), added(at(k_));
    for (int64_t row = begin; row < end; ++row) {
      float* const numbers = &matrix[at(row * k_)];
      std::ranges::fill(missing, 0);
      for (int64_t i = 0; i < k_; ++i)
        for (int64_t j = 0; j < k_; ++j)
          missing[at(j)] += double{numbers[i]} * drift[at(i * k_ + j)];
      // The inverse is the upper factor's transpose times the factor, in the columns' order.
      std::ranges::fill(added, 0);
      for (int64_t i = 0; i < k_; ++i) {
        const double* const spread = &spread_[at(i * k_)];
        double sum = 0;
        for (int64_t j = i; j < k_; ++j) sum += spread[j] * missing[at(order_[at(j)])];
        for (int64_t j = i; j < k_; ++j) added[at(j)] += spread[j] * sum;
      }
      for (int64_t i = 0; i < k_; ++i) numbers[order_[at(i)]] += static_cast<float>(added[at(i)]);
    }
  });
}

Status ErrorFeedback::round(const WeightFormat& format, std::span<const float> matrix,
                            ThreadPool& pool, QuantizedPlanes& out) const {
  std::vector<BF16> rounded(matrix.size());
  std::ranges::transform(matrix, rounded.begin(), [](float x) { return to_bf16(x); });
  constexpr auto kLayout = kernels::WeightLayout::kRowMajor;
  RETURN_IF_ERROR(kernels::quantize(format, kLayout, rounded, k_, out));
  const int64_t n = static_cast<int64_t>(matrix.size()) / k_;
  const int64_t size = format.group_size(k_), groups = format.num_groups(k_);
  std::ranges::fill(out.data, 0);
  pool.parallel_for(
      (n + kRowsTogether - 1) / kRowsTogether, 1, [&](int64_t first, int64_t last, int) {
        std::vector<double> rest(at(kRowsTogether * k_));
        for (int64_t row = first * kRowsTogether; row < std::min(last * kRowsTogether, n);
             row += kRowsTogether) {
          const int64_t rows = std::min(kRowsTogether, n - row);
          for (int64_t r = 0; r < rows; ++r) {
            const auto numbers = matrix.subspan(at((row + r) * k_), at(k_));
            for (int64_t g = 0; g < groups; ++g) {
              const int64_t begin = g * size, count = std::min(size, k_ - begin);
              out.scales[at((row + r) * groups + g)] = best_scale(
                  grid_of(format, out, row + r, g, groups), numbers.subspan(at(begin), at(count)),
                  std::span(weights_).subspan(at(begin), at(count)));
            }
            for (int64_t i = 0; i < k_; ++i) rest[at(r * k_ + i)] = numbers[at(order_[at(i)])];
          }
          for (int64_t i = 0; i < k_; ++i) {
            const int64_t col = order_[at(i)];
            const double* const spread = &spread_[at(i * k_)];
            for (int64_t r = 0; r < rows; ++r) {
              double* const numbers = &rest[at(r * k_)];
              const Grid grid = grid_of(format, out, row + r, col / size, groups);
              const uint8_t code = grid.code(numbers[i]);
              const kernels::IntegerPlace place =
                  kernels::integer_place(kLayout, format, row + r, col, k_);
              out.data[at(place.byte)] |= static_cast<uint8_t>(code << place.shift);
              const double error = (numbers[i] - grid.value(code)) / spread[i];
              for (int64_t j = i + 1; j < k_; ++j) numbers[j] -= error * spread[j];
            }
          }
        }
      });
  return ok();
}

float value_of(const WeightFormat& format, const QuantizedPlanes& planes, int64_t n, int64_t k,
               int64_t row, int64_t col) {
  return kernels::weight_at(planes.view(format, kernels::WeightLayout::kRowMajor, n, k), row, col);
}

}  // namespace nereid::quant
