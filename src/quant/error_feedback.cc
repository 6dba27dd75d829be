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

constexpr int kShrinkSteps = 20;         // candidate scales of integer groups
constexpr double kSmallestShrink = 0.6;  // smallest candidate / full scale
constexpr int kStretchSteps = 8;         // candidate scales of f8e4m3 groups, up to 2 * full scale
constexpr int64_t kRowsTogether = 8;     // rows per read of a row of spread_
constexpr int kImprovements = 2;         // passes of coordinate descent over scales and integers

size_t at(int64_t i) { return static_cast<size_t>(i); }

// Cholesky: a = L L^T, L in place (lower triangle); false: not positive definite.
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

// Inverse of an upper triangular matrix given by rows.
std::vector<double> invert_upper(const std::vector<double>& u, int64_t k, ThreadPool& pool) {
  std::vector<double> columns(u.size());  // columns of the inverse, concatenated
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

}  // namespace

// Scale and zero point of a group.
struct Grid {
  WeightFormat format;
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
  // The value that a product uses, row scale included.
  double value(uint8_t code) const {
    if (format.scheme == Scheme::kFloat8) return double{to_float(F8E4M3{code})} * scale;
    const auto u = static_cast<float>(code);
    if (format.minima) return to_float(to_bf16(std::fma(scale, u, -minimum)));
    return to_float(to_bf16(scale * (u - static_cast<float>(zero))));
  }
};

namespace {

Grid grid_of(const WeightFormat& format, const QuantizedPlanes& planes, int64_t row, int64_t group,
             int64_t groups) {
  const size_t i = at(row * groups + group);
  return {format, planes.scales[i], format.minima ? planes.minima[i] : 0,
          format.minima  ? 0
          : format.zeros ? planes.zeros[i]
                         : format.default_zero()};
}

// The candidate scale with the least weighted error: integers may clip; f8e4m3 rounds alike at
// twice the scale, except subnormals.
float best_scale(Grid grid, std::span<const float> numbers, std::span<const double> weights) {
  if (grid.scale == 0) return grid.scale;
  const bool integers = grid.format.scheme == Scheme::kInteger;
  const int steps = integers ? kShrinkSteps : kStretchSteps - 1;
  float first = grid.scale;
  if (!integers) {
    const auto [least, most] = std::ranges::minmax(numbers);
    first = std::max(most, -least) / kLargestF8E4M3;
  }
  float best = first;
  double least = 0;
  for (int step = 0; step <= steps; ++step) {
    grid.scale =
        first * static_cast<float>(integers ? 1 - (1 - kSmallestShrink) * step / kShrinkSteps
                                            : 1 + double{1} * step / kStretchSteps);
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
  const double added = mean > 0 ? damping * mean : 1;  // an always-zero input constrains nothing
  out.products_.assign(products.begin(), products.end());
  for (int64_t i = 0; i < k; ++i) out.products_[at(i * k + i)] += static_cast<float>(added);
  // In reversed order: upper factor of the inverse = inverse of the lower factor.
  std::vector<double> turned(products.size());
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = 0; j < k; ++j)
      turned[at(i * k + j)] =
          products[at(int64_t{out.order_[at(k - 1 - i)]} * k + out.order_[at(k - 1 - j)])];
  products = {};
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
      // inverse = U^T U, in the columns' order
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

// Rows being rounded.
struct RoundedRows {
  const WeightFormat& format;
  int64_t k = 0, count = 0;
  std::span<const float> numbers;  // [count, k]
  std::vector<Grid> grids;         // [count, groups]
  std::vector<uint8_t> codes;      // [count, k]

  int64_t groups() const { return format.num_groups(k); }
  Grid& grid(int64_t row, int64_t col) {
    return grids[at(row * groups() + col / format.group_size(k))];
  }
  double value(int64_t row, int64_t col) { return grid(row, col).value(codes[at(row * k + col)]); }
};

// GPTQ: column by column, each error is compensated by later columns.
void ErrorFeedback::spread_errors(RoundedRows& rows) const {
  std::vector<double> rest(at(rows.count * k_));
  for (int64_t r = 0; r < rows.count; ++r)
    for (int64_t i = 0; i < k_; ++i)
      rest[at(r * k_ + i)] = rows.numbers[at(r * k_ + order_[at(i)])];
  for (int64_t i = 0; i < k_; ++i) {
    const int64_t col = order_[at(i)];
    const double* const spread = &spread_[at(i * k_)];
    for (int64_t r = 0; r < rows.count; ++r) {
      double* const numbers = &rest[at(r * k_)];
      const Grid& grid = rows.grid(r, col);
      const uint8_t code = rows.codes[at(r * k_ + col)] = grid.code(numbers[i]);
      const double error = (numbers[i] - grid.value(code)) / spread[i];
      for (int64_t j = i + 1; j < k_; ++j) numbers[j] -= error * spread[j];
    }
  }
}

namespace {

// A row's residual, and its product with mean x^T x.
class Residual {
 public:
  Residual(RoundedRows& rows, int64_t row, const std::vector<float>& products)
      : rows_(rows), row_(row), k_(rows.k), products_(products), slope_(at(rows.k)) {
    for (int64_t col = 0; col < k_; ++col)
      add(col, double{rows.numbers[at(row * k_ + col)]} - rows.value(row, col));
  }

  // Replaces a column's integer by the best one, all others fixed.
  bool improve(int64_t col) {
    const Grid& grid = rows_.grid(row_, col);
    uint8_t& code = rows_.codes[at(row_ * k_ + col)];
    const double value = grid.value(code), square = products_[at(col * k_ + col)];
    const uint8_t better = grid.code(value + slope_[at(col)] / square);
    const double change = grid.value(better) - value;
    if (better == code || change * (change * square - 2 * slope_[at(col)]) >= 0) return false;
    code = better;
    add(col, -change);
    return true;
  }

  // Replaces a group's scale by the best one, integers fixed.
  void improve_scale(int64_t begin, int64_t end) {
    Grid& grid = rows_.grid(row_, begin);
    if (grid.scale == 0) return;
    // Change of the group per unit of scale.
    std::vector<double> units;
    double along = 0, square = 0;
    for (int64_t i = begin; i < end; ++i)
      units.push_back(static_cast<double>(rows_.codes[at(row_ * k_ + i)] - grid.zero));
    for (int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (int64_t j = begin; j < end; ++j) sum += units[at(j - begin)] * products_[at(i * k_ + j)];
      along += units[at(i - begin)] * slope_[at(i)], square += units[at(i - begin)] * sum;
    }
    if (!(square > 0)) return;
    const Grid before = grid;
    grid.scale = static_cast<float>(grid.scale + along / square);
    if (!std::isfinite(grid.scale) || grid.scale == 0) grid = before;
    for (int64_t i = begin; i < end; ++i) {
      const uint8_t code = rows_.codes[at(row_ * k_ + i)];
      add(i, before.value(code) - grid.value(code));
    }
  }

 private:
  // Adds x to a column's residual.
  void add(int64_t col, double x) {
    if (x == 0) return;
    const float* const products = &products_[at(col * k_)];
    for (int64_t j = 0; j < k_; ++j) slope_[at(j)] += x * products[j];
  }

  RoundedRows& rows_;
  const int64_t row_, k_;
  const std::vector<float>& products_;
  std::vector<double> slope_;
};

}  // namespace

void ErrorFeedback::improve(RoundedRows& rows) const {
  const int64_t size = rows.format.group_size(k_);
  for (int64_t r = 0; r < rows.count; ++r) {
    Residual residual(rows, r, products_);
    for (int step = 0; step < kImprovements; ++step) {
      if (!rows.format.minima)
        for (int64_t begin = 0; begin < k_; begin += size)
          residual.improve_scale(begin, std::min(begin + size, k_));
      bool changed = false;
      for (int64_t i = 0; i < k_; ++i) changed |= residual.improve(order_[at(i)]);
      if (!changed) break;
    }
  }
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
  const auto round_rows = [&](int64_t first) {
    RoundedRows rows{.format = format, .k = k_, .count = std::min(kRowsTogether, n - first)};
    rows.numbers = matrix.subspan(at(first * k_), at(rows.count * k_));
    rows.codes.resize(at(rows.count * k_));
    for (int64_t r = 0; r < rows.count; ++r)
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t begin = g * size, count = std::min(size, k_ - begin);
        Grid& grid = rows.grids.emplace_back(grid_of(format, out, first + r, g, groups));
        grid.scale = best_scale(grid, rows.numbers.subspan(at(r * k_ + begin), at(count)),
                                std::span(weights_).subspan(at(begin), at(count)));
      }
    spread_errors(rows);
    if (format.scheme == Scheme::kInteger) improve(rows);
    for (int64_t r = 0; r < rows.count; ++r) {
      for (int64_t g = 0; g < groups; ++g)
        out.scales[at((first + r) * groups + g)] = rows.grids[at(r * groups + g)].scale;
      for (int64_t col = 0; col < k_; ++col) {
        const auto place = kernels::integer_place(kLayout, format, first + r, col, k_);
        out.data[at(place.byte)] |=
            static_cast<uint8_t>(rows.codes[at(r * k_ + col)] << place.shift);
      }
    }
  };
  pool.parallel_for((n + kRowsTogether - 1) / kRowsTogether, 1,
                    [&](int64_t begin, int64_t end, int) {
                      for (int64_t i = begin; i < end; ++i) round_rows(i * kRowsTogether);
                    });
  return ok();
}

float value_of(const WeightFormat& format, const QuantizedPlanes& planes, int64_t n, int64_t k,
               int64_t row, int64_t col) {
  return kernels::weight_at(planes.view(format, kernels::WeightLayout::kRowMajor, n, k), row, col);
}

}  // namespace nereid::quant
