#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "kernels/api/pack.h"
#include "kernels/open.h"
#include "quant/error_feedback.h"
#include "quant/input_statistics.h"
#include "quant/scale_search.h"

namespace nereid::quant {
namespace {

constexpr auto kLayout = kernels::WeightLayout::kRowMajor;

// Uniform in [-1, 1), a function of (key, i).
float noise(uint64_t key, size_t i) { return static_cast<float>(philox(key, i)[0]) * 0x1p-31f - 1; }

// Rows with correlated columns of different magnitude.
std::vector<BF16> inputs(int64_t rows, int64_t k) {
  std::vector<BF16> out;
  for (int64_t t = 0; t < rows; ++t) {
    const float common = noise(1, static_cast<size_t>(t));
    for (int64_t i = 0; i < k; ++i) {
      const float size = i % 16 == 3 ? 8.0f : 0.5f;
      out.push_back(to_bf16(size * (common + noise(2, static_cast<size_t>(t * k + i)))));
    }
  }
  return out;
}

std::vector<float> weights(int64_t n, int64_t k) {
  std::vector<float> out;
  for (int64_t i = 0; i < n * k; ++i)
    out.push_back(to_float(to_bf16(noise(3, static_cast<size_t>(i)))));
  return out;
}

// Sum of d (x^T x) d^T, d = off(row, col).
template <class F>
double product_error(int64_t n, int64_t k, const std::vector<double>& products, F off) {
  double sum = 0;
  for (int64_t row = 0; row < n; ++row)
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < k; ++j)
        sum += off(row, i) * off(row, j) * products[static_cast<size_t>(i * k + j)];
  return sum;
}

// This machine's CPU.
struct OpenDevice {
  kernels::OpenedDevice opened = kernels::open_device("cpu", {.num_threads = 2}).value();
  std::unique_ptr<ColumnProducts> products =
      ColumnProducts::create(opened.registry, *opened.device).value();
};

struct Problem {
  static constexpr int64_t kRows = 90, kN = 12, kK = 80;
  Problem() {
    std::vector<BF16> rows = inputs(kRows, kK);
    EXPECT_TRUE(
        statistics.add(View::matrix(rows.data(), DType::kBF16, kRows, kK), *device.products).ok());
    products = statistics.mean_products();
  }
  double error_of(const kernels::WeightFormat& format, const kernels::QuantizedPlanes& planes) {
    return product_error(kN, kK, products, [&](int64_t row, int64_t col) {
      return double{value_of(format, planes, kN, kK, row, col)} -
             matrix[static_cast<size_t>(row * kK + col)];
    });
  }
  kernels::QuantizedPlanes plain(const kernels::WeightFormat& format) {
    std::vector<BF16> numbers;
    for (const float x : matrix) numbers.push_back(to_bf16(x));
    kernels::QuantizedPlanes planes;
    EXPECT_TRUE(kernels::quantize(format, kLayout, numbers, kK, planes).ok());
    return planes;
  }
  OpenDevice device;
  ThreadPool pool{2};
  InputStatistics statistics{kK, true};
  std::vector<double> products;
  std::vector<float> matrix = weights(kN, kK);
};

TEST(Statistics, AreMeansOverRows) {
  Problem p;
  const std::vector<BF16> rows = inputs(p.kRows, p.kK);
  const auto x = [&](int64_t t, int64_t i) {
    return double{to_float(rows[static_cast<size_t>(t * p.kK + i)])};
  };
  for (const auto& [i, j] : {std::pair<int64_t, int64_t>{3, 3}, {3, 70}, {79, 3}, {79, 78}}) {
    double product = 0, magnitude = 0;
    for (int64_t t = 0; t < p.kRows; ++t)
      product += x(t, i) * x(t, j), magnitude += std::fabs(x(t, i));
    EXPECT_NEAR(p.products[static_cast<size_t>(i * p.kK + j)], product / p.kRows, 1e-4);
    EXPECT_NEAR(p.statistics.mean_magnitudes()[static_cast<size_t>(i)], magnitude / p.kRows, 1e-9);
  }
}

TEST(Statistics, RefuseWhatIsNotFinite) {
  OpenDevice device;
  InputStatistics statistics(2, true);
  BF16 row[] = {to_bf16(1), to_bf16(INFINITY)};
  EXPECT_EQ(statistics.add(View::matrix(row, DType::kBF16, 1, 2), *device.products).code(),
            absl::StatusCode::kInvalidArgument);
}

// For every format, products change less than with plain rounding, with and without act order.
TEST(Rounding, ErrorsAreMadeUpFor) {
  Problem p;
  const kernels::WeightFormat zeros{
      .scheme = kernels::Scheme::kInteger, .bits = 4, .group = 32, .zeros = true};
  const kernels::WeightFormat minima{
      .scheme = kernels::Scheme::kInteger, .bits = 4, .group = 32, .minima = true};
  const kernels::WeightFormat small{.scheme = kernels::Scheme::kInteger, .bits = 4, .group = 32};
  for (const auto& format :
       {small, zeros, minima, kernels::kInt8PerRow, kernels::kFp8PerRow, kernels::kInt4Groups})
    for (const bool by_weight : {false, true}) {
      const auto feedback = ErrorFeedback::create(p.products, p.kK, 0.01, by_weight, p.pool);
      ASSERT_TRUE(feedback.ok());
      kernels::QuantizedPlanes planes;
      ASSERT_TRUE(feedback->round(format, p.matrix, p.pool, planes).ok());
      EXPECT_LT(p.error_of(format, planes), 0.7 * p.error_of(format, p.plain(format)))
          << kernels::text_of(format) << " " << by_weight;
    }
}

// After error feedback few single integers could be improved, and no scale.
TEST(Rounding, ScalesAndIntegersAreLookedAtAgain) {
  Problem p;
  const kernels::WeightFormat format{.scheme = kernels::Scheme::kInteger, .bits = 4, .group = 16};
  const auto feedback = ErrorFeedback::create(p.products, p.kK, 1e-4, true, p.pool);
  ASSERT_TRUE(feedback.ok());
  kernels::QuantizedPlanes planes;
  ASSERT_TRUE(feedback->round(format, p.matrix, p.pool, planes).ok());
  const auto error_of = [&](int64_t row) {
    return product_error(1, p.kK, p.products, [&](int64_t, int64_t col) {
      return double{value_of(format, planes, p.kN, p.kK, row, col)} -
             p.matrix[static_cast<size_t>(row * p.kK + col)];
    });
  };
  int64_t num_better = 0;
  for (int64_t row = 0; row < 4; ++row) {
    const double error = error_of(row);
    for (int64_t col = 0; col < p.kK; ++col)
      for (const int step : {-1, 1}) {
        const auto place = kernels::integer_place(kLayout, format, row, col, p.kK);
        uint8_t& byte = planes.data[static_cast<size_t>(place.byte)];
        const uint8_t before = byte;
        const int code = (before >> place.shift & 15) + step;
        if (code < 0 || code > 15) continue;
        byte = static_cast<uint8_t>((before & ~(15 << place.shift)) | code << place.shift);
        num_better += error_of(row) < error * (1 - 1e-3);
        byte = before;
      }
    for (int64_t g = 0; g < p.kK / 16; ++g)
      for (const float factor : {0.95f, 1.05f}) {
        float& scale = planes.scales[static_cast<size_t>(row * (p.kK / 16) + g)];
        const float before = std::exchange(scale, scale * factor);
        EXPECT_GE(error_of(row), error * 0.97) << row << " " << g;
        scale = before;
      }
  }
  EXPECT_LE(num_better, 4 * p.kK / 20);
}

// The input differs from the float model's: the product is the closest possible to the float one;
// the residual is uncorrelated with the input.
TEST(Rounding, FollowsAnInputThatDrifted) {
  Problem p;
  std::vector<BF16> was = inputs(p.kRows, p.kK), x;
  for (size_t i = 0; i < was.size(); ++i)
    x.push_back(to_bf16(to_float(was[i]) * (i % p.kK < 20 ? 0.75f : 1) + 0.25f * noise(9, i)));
  const auto view = [&](std::vector<BF16>& rows) {
    return View::matrix(rows.data(), DType::kBF16, p.kRows, p.kK);
  };
  InputStatistics statistics(p.kK, true);
  statistics.keep_drift();
  ASSERT_TRUE(statistics.add_drift(view(was), view(x), *p.device.products).ok());
  const auto feedback = ErrorFeedback::create(statistics.mean_products(), p.kK, 1e-7, true, p.pool);
  ASSERT_TRUE(feedback.ok());
  std::vector<float> followed = p.matrix;
  feedback->follow(statistics.mean_drift(), followed, p.pool);
  const auto left = [&](const std::vector<float>& matrix, int64_t row, int64_t t) {
    double sum = 0;
    for (int64_t i = 0; i < p.kK; ++i) {
      const auto at = static_cast<size_t>(t * p.kK + i), w = static_cast<size_t>(row * p.kK + i);
      sum += double{p.matrix[w]} * to_float(was[at]) - double{matrix[w]} * to_float(x[at]);
    }
    return sum;
  };
  double before = 0, after = 0;
  for (int64_t row = 0; row < p.kN; ++row)
    for (int64_t t = 0; t < p.kRows; ++t) {
      before += std::pow(left(p.matrix, row, t), 2);
      after += std::pow(left(followed, row, t), 2);
    }
  EXPECT_LT(after, 0.2 * before);
  for (const int64_t col : {0, 3, 41, 79}) {
    double off = 0, size = 0;
    for (int64_t t = 0; t < p.kRows; ++t) {
      const double number = to_float(x[static_cast<size_t>(t * p.kK + col)]);
      off += left(followed, 1, t) * number, size += std::fabs(left(p.matrix, 1, t) * number);
    }
    EXPECT_LT(std::fabs(off), 0.02 * size) << col;
  }
}

// Uncorrelated columns: no error feedback; larger inputs: scales fit their columns.
TEST(Rounding, WithoutCorrelationIsPlain) {
  Problem p;
  std::vector<double> products(static_cast<size_t>(p.kK * p.kK));
  for (const double largest : {1.0, 100.0}) {
    for (int64_t i = 0; i < p.kK; ++i)
      products[static_cast<size_t>(i * p.kK + i)] = i % 16 == 3 ? largest : 1;
    const auto feedback = ErrorFeedback::create(products, p.kK, 0.01, true, p.pool);
    ASSERT_TRUE(feedback.ok());
    kernels::QuantizedPlanes planes;
    ASSERT_TRUE(feedback->round(kernels::kFp8PerRow, p.matrix, p.pool, planes).ok());
    const auto plain = p.plain(kernels::kFp8PerRow);
    p.products = products;
    if (largest == 1) {
      for (size_t i = 0; i < planes.scales.size(); ++i)
        EXPECT_NEAR(planes.scales[i], plain.scales[i], 1e-6 * plain.scales[i]);
      EXPECT_NEAR(p.error_of(kernels::kFp8PerRow, planes) / p.error_of(kernels::kFp8PerRow, plain),
                  1, 0.01);
    } else {
      EXPECT_LT(p.error_of(kernels::kFp8PerRow, planes),
                0.9 * p.error_of(kernels::kFp8PerRow, plain));
    }
  }
}

TEST(Rounding, RefusesWhatIsNotPositiveDefinite) {
  ThreadPool pool(1);
  const auto feedback = ErrorFeedback::create({1, 5, 5, 1}, 2, 0.01, false, pool);
  EXPECT_EQ(feedback.status().code(), absl::StatusCode::kInvalidArgument);
}

ForEachMatrix only(const std::vector<float>& matrix) {
  return [&](const std::function<Status(std::span<const float>)>& use) { return use(matrix); };
}

// Columns and rows by hand; two columns with a shared factor take the larger.
TEST(Scales, SmoothingHalvesWhatIsHard) {
  const std::vector<float> matrix = {1, -4, 0, 0.25f, 0.5f, 1, 0, -1};  // [2, 4]
  const std::vector<float> largest = {16, 1, 3, 4};
  EXPECT_EQ(smoothing_factors({}, only(matrix), largest, 0.5).value(),
            (std::vector<float>{4, 0.5f, 1, 2}));
  EXPECT_EQ(smoothing_factors({}, only(matrix), largest, 1).value(),
            (std::vector<float>{16, 1, 1, 4}));
  EXPECT_EQ(smoothing_factors({.repeat = 1, .times = 2}, only(matrix), largest, 0.5).value(),
            (std::vector<float>{2, 2, 2, 2}));
}

TEST(Scales, MakeTheProductsBetter) {
  Problem p;
  const ScaleSearch search{.format = {.scheme = kernels::Scheme::kInteger, .bits = 4, .group = 16}};
  const auto factors = search_scales(search, only(p.matrix), p.kK, p.statistics.mean_magnitudes(),
                                     p.products, p.pool);
  ASSERT_TRUE(factors.ok());
  std::vector<BF16> scaled;
  for (size_t i = 0; i < p.matrix.size(); ++i)
    scaled.push_back(to_bf16(p.matrix[i] * (*factors)[i % factors->size()]));
  kernels::QuantizedPlanes planes;
  ASSERT_TRUE(kernels::quantize(search.format, kLayout, scaled, p.kK, planes).ok());
  const double error = product_error(p.kN, p.kK, p.products, [&](int64_t row, int64_t col) {
    return double{value_of(search.format, planes, p.kN, p.kK, row, col)} /
               (*factors)[static_cast<size_t>(col)] -
           p.matrix[static_cast<size_t>(row * p.kK + col)];
  });
  EXPECT_LT(error, 0.8 * p.error_of(search.format, p.plain(search.format)));
  EXPECT_GT((*factors)[3], (*factors)[4]);  // whose inputs are larger
}

TEST(Scales, AreSharedWhereHeadsShareValues) {
  Problem p;
  ScaleSearch search{.format = {.scheme = kernels::Scheme::kInteger, .bits = 4, .group = 16}};
  search.repeat = 20, search.times = 2;
  const auto factors = search_scales(search, only(p.matrix), p.kK, p.statistics.mean_magnitudes(),
                                     p.products, p.pool);
  ASSERT_TRUE(factors.ok());
  for (const size_t begin : {0, 40})
    for (size_t i = 0; i < 20; ++i) EXPECT_EQ((*factors)[begin + i], (*factors)[begin + 20 + i]);
}

}  // namespace
}  // namespace nereid::quant
