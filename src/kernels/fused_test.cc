// Definition of fused_linear: equals the ops it replaces except for rounding. No CPU kernel exists;
// its cases are checked here.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/api/validate.h"
#include "kernels/ref/ref.h"
#include "kernels/testing/cases.h"

namespace nereid::kernels {
namespace {

using testing::kStepBF16;
using testing::noise;
using testing::noise_bf16;

constexpr int64_t kRows = 3, kWide = 96, kHidden = 64, kUnits = 40;

struct Rows {
  std::vector<float> numbers;
  View view;
  explicit Rows(int64_t cols) : numbers(static_cast<size_t>(kRows * cols)) {
    view = View::matrix(numbers.data(), DType::kF32, kRows, cols);
  }
};
struct NarrowRows {
  std::vector<BF16> numbers;
  View view;
  explicit NarrowRows(int64_t cols) : NarrowRows(std::vector<BF16>(kRows * cols), cols) {}
  NarrowRows(std::vector<BF16> given, int64_t cols) : numbers(std::move(given)) {
    view = View::matrix(numbers.data(), DType::kBF16, kRows, cols);
  }
};

struct Matrix {
  std::vector<BF16> numbers;
  WeightView view;
  Matrix(uint64_t seed, int64_t n, int64_t k) : numbers(noise_bf16(seed, n * k, 0.1f)) {
    view = {numbers.data(), WeightLayout::kRowMajor, n, k};
  }
};

// A product added to the residual stream, the norm, gate and up, gated units.
TEST(FusedLinear, IsTheOpsWhosePlaceItTakesButForRounding) {
  const Matrix down(1, kHidden, kWide), gate_up(2, 2 * kUnits, kHidden), norm(3, 1, kHidden),
      bias(4, 1, 2 * kUnits);
  NarrowRows x(noise_bf16(5, kRows * kWide), kWide);
  const std::vector<float> stream = noise(6, kRows * kHidden);

  Rows y(kHidden), residual(kHidden), both(2 * kUnits);
  NarrowRows normed(kHidden), units(kUnits);
  residual.numbers = stream;
  reference(Linear{.x = x.view, .weight = down.view, .out = y.view});
  reference(Norm{.x = residual.view,
                 .add = y.view,
                 .weight = norm.view,
                 .eps = 1e-5f,
                 .weight_offset = 1,
                 .out = normed.view,
                 .sum = residual.view});
  reference(Linear{.x = normed.view, .weight = gate_up.view, .bias = bias.view, .out = both.view});
  reference(Glu{.x = both.view, .limit = 4, .up_offset = 1, .out = units.view});

  Rows sum(kHidden), squares(kFusedSquares);
  NarrowRows scaled(kHidden), made(kUnits);
  sum.numbers = stream;
  const FusedLinear first = {.x = x.view,
                             .weight = down.view,
                             .residual = sum.view,
                             .norm = norm.view,
                             .norm_offset = 1,
                             .out = scaled.view,
                             .sum = sum.view,
                             .squares = squares.view};
  const FusedLinear second = {.x = scaled.view,
                              .x_squares = squares.view,
                              .eps = 1e-5f,
                              .weight = gate_up.view,
                              .bias = bias.view,
                              .gated = true,
                              .limit = 4,
                              .up_offset = 1,
                              .out = made.view};
  ASSERT_TRUE(validate(first).ok()) << validate(first);
  ASSERT_TRUE(validate(second).ok()) << validate(second);
  reference(first);
  reference(second);
  EXPECT_EQ(sum.numbers, residual.numbers);
  // Both round numbers of about 1 before sums of kHidden products with numbers of 0.1.
  const double tolerance = 4 * kStepBF16 * 0.1 * std::sqrt(static_cast<double>(kHidden)) * 4;
  for (size_t i = 0; i < made.numbers.size(); ++i)
    EXPECT_NEAR(to_float(made.numbers[i]), to_float(units.numbers[i]), tolerance) << i;
}

TEST(FusedLinear, CasesPassTheChecksOfACall) {
  for (const testing::Case<FusedLinear>& c : testing::cases<FusedLinear>()) {
    testing::Image image = c.before;
    const Status status = validate(c.args(image.bytes.data(), 0, c.tokens));
    EXPECT_TRUE(status.ok()) << c.name << ": " << status;
    EXPECT_TRUE(c.check(c, c.after, 0).ok()) << c.name;
    EXPECT_FALSE(c.check(c, c.before, 0).ok()) << c.name;
  }
}

TEST(FusedLinear, ChecksTellWhatIsWrong) {
  const auto error_after = [](auto&& change) {
    static std::byte base[1];
    FusedLinear op = testing::cases<FusedLinear>()[2].args(base, 0, 1);  // with a residual
    EXPECT_EQ(shape_error(op), "");
    change(op);
    return shape_error(op);
  };
  const auto expect = [](const std::string& error, std::string_view part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  expect(error_after([](FusedLinear& op) { op.squares = {}; }), "come together");
  expect(error_after([](FusedLinear& op) { op.gated = true; }), "gated units are not added");
  expect(error_after([](FusedLinear& op) { op.rounds = true; }), "a weight of fp8");
  expect(error_after([](FusedLinear& op) { op.x_squares = op.x; }), "'x_squares' is bf16");
  expect(error_after([](FusedLinear& op) { op.squares.cols = 5; }), "squares is not a row");
  expect(error_after([](FusedLinear& op) { op.norm.k -= 1; }), "as wide as y");
  expect(error_after([](FusedLinear& op) { op.out.dtype = DType::kF32; }), "out is bf16");
}

}  // namespace
}  // namespace nereid::kernels
