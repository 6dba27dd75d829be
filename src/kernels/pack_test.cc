#include "kernels/api/pack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "kernels/api/quantize.h"

namespace nereid::kernels {
namespace {

std::vector<BF16> numbered(int64_t count, int first) {
  std::vector<BF16> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i].bits = static_cast<uint16_t>(first + i);
  return values;
}

class Pack : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(Pack, RoundTripsAndZeroesPadding) {
  const auto [n, k] = GetParam();
  const int64_t first_rows = n / 3;
  const std::vector<BF16> a = numbered(first_rows * k, 1);
  const std::vector<BF16> b = numbered((n - first_rows) * k, 1 + static_cast<int>(a.size()));
  std::vector<std::byte> packed(panel16_bytes(n, k), std::byte{0xff});
  ASSERT_TRUE(
      pack_panel16(std::vector<RowMajorPart>{{a.data(), first_rows}, {b.data(), n - first_rows}}, k,
                   packed)
          .ok());
  const WeightView view{packed.data(), WeightLayout::kPanel16, n, k};
  std::vector<BF16> unpacked(static_cast<size_t>(n * k));
  ASSERT_TRUE(unpack_rows(view, 0, n, unpacked.data()).ok());
  for (size_t i = 0; i < unpacked.size(); ++i)
    ASSERT_EQ(unpacked[i].bits, i < a.size() ? a[i].bits : b[i - a.size()].bits) << i;

  const auto* cells = reinterpret_cast<const BF16*>(packed.data());
  int64_t nonzero = 0;
  for (size_t i = 0; i < packed.size() / 2; ++i) nonzero += cells[i].bits != 0;
  EXPECT_EQ(nonzero, n * k);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Pack,
                         ::testing::Combine(::testing::Values(1, 15, 16, 17, 50),
                                            ::testing::Values(1, 2, 31, 32, 33, 100)));

TEST(Pack, LayoutIsPairsOfColumnsBySixteenRows) {
  EXPECT_EQ(panel_index(0, 0, 40), 0);
  EXPECT_EQ(panel_index(0, 1, 40), 1);
  EXPECT_EQ(panel_index(1, 0, 40), 2);
  EXPECT_EQ(panel_index(0, 2, 40), 32);
  EXPECT_EQ(panel_index(16, 0, 40), 16 * 64);
}

TEST(Pack, RefusesWrongSizes) {
  const std::vector<BF16> a = numbered(32, 1);
  std::vector<std::byte> packed(panel16_bytes(1, 32));
  const std::vector<RowMajorPart> parts = {{a.data(), 1}};
  EXPECT_TRUE(pack_panel16(parts, 32, packed).ok());
  EXPECT_FALSE(pack_panel16(parts, 33, packed).ok());
  EXPECT_FALSE(pack_panel16(parts, 0, packed).ok());
  EXPECT_FALSE(pack_panel16(std::vector<RowMajorPart>{{nullptr, 1}}, 32, packed).ok());
  BF16 row[32];
  EXPECT_FALSE(unpack_rows({packed.data(), WeightLayout::kPanel16, 1, 32}, 1, 1, row).ok());
}

WeightFormat with_zeros(WeightFormat format) {
  format.zeros = true;
  return format;
}
WeightFormat with_minima(WeightFormat format) {
  format.minima = true;
  return format;
}

// Dequantised numbers differ from the originals by at most the group's scale and one bf16 rounding
// (half of 2^-7); both layouts give the same numbers, and planes have the sizes of planes_of().
TEST(Quantize, IsNearInEveryFormatAndLayout) {
  const int64_t n = 19, k = 300;
  std::vector<BF16> matrix(static_cast<size_t>(n * k));
  for (size_t i = 0; i < matrix.size(); ++i)
    matrix[i] = to_bf16(0.3f * std::sin(static_cast<float>(i * i % 1013)) + 0.1f);
  for (const WeightFormat& format :
       {kInt8PerRow, kInt4Groups, with_zeros(kInt8PerRow), with_zeros(kInt4Groups),
        with_minima(kInt8PerRow), with_minima(kInt4Groups), kFp8Groups}) {
    QuantizedPlanes rows, panels;
    ASSERT_TRUE(quantize(format, WeightLayout::kRowMajor, matrix, k, rows).ok());
    ASSERT_TRUE(quantize(format, WeightLayout::kPanel16, matrix, k, panels).ok());
    const WeightView a = rows.view(format, WeightLayout::kRowMajor, n, k);
    const WeightView b = panels.view(format, WeightLayout::kPanel16, n, k);
    for (const auto& [view, planes] : {std::pair(a, &rows), std::pair(b, &panels)})
      EXPECT_EQ(stored_bytes(view), planes->data.size() + 4 * planes->scales.size() +
                                        planes->zeros.size() + 4 * planes->minima.size());
    for (int64_t row = 0; row < n; ++row)
      for (int64_t col = 0; col < k; ++col) {
        const float x = to_float(matrix[static_cast<size_t>(row * k + col)]);
        const float scale = std::fabs(rows.scales[static_cast<size_t>(row * format.num_groups(k) +
                                                                      col / format.group_size(k))]);
        const bool half = format.minima || (format.bits == 8 && !format.zeros);
        const float bound = format == kFp8Groups ? 0x1.2p-4f * std::fabs(x) + 0x1p-10f * scale
                                                 : (half ? 0.5f : 1.0f) * scale * 1.001f +
                                                       0x1p-8f * (std::fabs(x) + scale);
        ASSERT_NEAR(weight_at(a, row, col), x, bound) << text_of(format);
        ASSERT_EQ(weight_at(a, row, col), weight_at(b, row, col)) << text_of(format);
      }
  }
}

// The scale of a row or group is the candidate of eight with the least squared error; one candidate
// is that of amax.
TEST(Quantize, Fp8ScalesLeaveTheLeastError) {
  const int64_t n = 24, k = 301;
  std::vector<BF16> matrix(static_cast<size_t>(n * k));
  for (size_t i = 0; i < matrix.size(); ++i)
    matrix[i] = to_bf16(std::exp2(static_cast<float>(i / k)) * 0.01f *
                        (std::sin(static_cast<float>(i * i % 1013)) + std::sin(0.7f * i)));
  for (const WeightFormat& format : {kFp8PerRow, kFp8Groups}) {
    QuantizedPlanes planes;
    ASSERT_TRUE(quantize(format, WeightLayout::kRowMajor, matrix, k, planes).ok());
    double total = 0, plain = 0;
    for (int64_t row = 0; row < n; ++row)
      for (int64_t group = 0; group < format.num_groups(k); ++group) {
        const int64_t begin = group * format.group_size(k);
        const auto numbers = std::span(matrix).subspan(
            static_cast<size_t>(row * k + begin),
            static_cast<size_t>(std::min(format.group_size(k), k - begin)));
        const auto error = [&](float scale, const uint8_t* codes) {
          double sum = 0;
          for (size_t i = 0; i < numbers.size(); ++i) {
            const double x = to_float(numbers[i]);
            const F8E4M3 code = codes ? F8E4M3{codes[i]} : to_f8e4m3(to_float(numbers[i]) / scale);
            sum += std::pow(double{scale} * to_float(code) - x, 2);
          }
          return sum;
        };
        float amax = 0;
        for (const BF16 x : numbers) amax = std::max(amax, std::fabs(to_float(x)));
        const double found =
            error(planes.scales[static_cast<size_t>(row * format.num_groups(k) + group)],
                  &planes.data[static_cast<size_t>(row * k + begin)]);
        total += found, plain += error(amax / kLargestF8E4M3, nullptr);
        for (int i = 0; i < 8; ++i)
          EXPECT_LE(found, 1.0001 * error(amax / kLargestF8E4M3 * (1 + i / 8.0f), nullptr))
              << row << " " << group << " " << i;
      }
    EXPECT_LT(total, 0.9 * plain) << text_of(format);
  }
}

TEST(Quantize, ZeroRowsStayZero) {
  const std::vector<BF16> zeros(64);
  for (const WeightFormat& format :
       {kInt8PerRow, with_zeros(kInt4Groups), with_minima(kInt4Groups), kFp8PerRow}) {
    QuantizedPlanes planes;
    ASSERT_TRUE(quantize(format, WeightLayout::kPanel16, zeros, 64, planes).ok());
    EXPECT_EQ(weight_at(planes.view(format, WeightLayout::kPanel16, 1, 64), 0, 63), 0);
  }
}

TEST(Quantize, RefusesWhatItCannotDo) {
  std::vector<BF16> matrix(64);
  QuantizedPlanes planes;
  WeightFormat ordered = kInt4Groups;
  ordered.ordered = true;
  EXPECT_FALSE(quantize({}, WeightLayout::kRowMajor, matrix, 64, planes).ok());
  EXPECT_FALSE(quantize(ordered, WeightLayout::kRowMajor, matrix, 64, planes).ok());
  EXPECT_FALSE(quantize(kInt8PerRow, WeightLayout::kRowMajor, matrix, 63, planes).ok());
  EXPECT_FALSE(quantize(kMxfp4, WeightLayout::kPanel16, matrix, 64, planes).ok());
  EXPECT_FALSE(quantize(kInt4Groups, WeightLayout::kFragments, matrix, 64, planes).ok());
  EXPECT_FALSE(quantize(kMxfp4, WeightLayout::kRowMajor, matrix, 16, planes).ok());
  matrix[5] = to_bf16(17);  // 2^2 * 4.25
  EXPECT_FALSE(quantize(kMxfp4, WeightLayout::kRowMajor, matrix, 64, planes).ok());
  matrix[5] = to_bf16(INFINITY);
  EXPECT_FALSE(quantize(kInt8PerRow, WeightLayout::kRowMajor, matrix, 64, planes).ok());
}

// All e2m1 numbers and exponents round to themselves, in both layouts.
TEST(Quantize, Mxfp4IsExactForItsNumbers) {
  const int64_t n = 3, k = 320;
  std::vector<BF16> matrix(static_cast<size_t>(n * k));
  for (int64_t i = 0; i < n * k; ++i) {
    const auto number = static_cast<uint8_t>(i % 32 == 0 ? 7 : i * 5 % 16);  // a 6 in each group
    const auto exponent = static_cast<int32_t>(i / 32 * 37 % (kMaxExponent + 1));
    matrix[static_cast<size_t>(i)] = to_bf16(std::ldexp(from_e2m1(number), exponent - 127));
  }
  QuantizedPlanes rows, fragments;
  ASSERT_TRUE(quantize(kMxfp4, WeightLayout::kRowMajor, matrix, k, rows).ok());
  ASSERT_TRUE(quantize(kMxfp4, WeightLayout::kFragments, matrix, k, fragments).ok());
  const WeightView a = rows.view(kMxfp4, WeightLayout::kRowMajor, n, k);
  const WeightView b = fragments.view(kMxfp4, WeightLayout::kFragments, n, k);
  EXPECT_EQ(stored_bytes(a), static_cast<uint64_t>(n * (k / 2 + k / 32)));
  EXPECT_EQ(stored_bytes(b), 2u * 64 * (128 + 8)) << "two blocks";
  for (int64_t row = 0; row < n; ++row)
    for (int64_t col = 0; col < k; ++col) {
      const float x = to_float(matrix[static_cast<size_t>(row * k + col)]);
      ASSERT_EQ(weight_at(a, row, col), x) << row << ", " << col;
      ASSERT_EQ(weight_at(b, row, col), x) << row << ", " << col;
    }
}

// 2.5 is between 2 and 3, 5 between 4 and 6: ties to even; 7.9 becomes 6.
TEST(Quantize, Mxfp4RoundsToTheNearest) {
  std::vector<BF16> row(32);
  const float numbers[] = {5, 2.5f, 0.25f, 0.3f, -1.7f, 3.5f, 7.875f, -0.2f};
  const float wanted[] = {4, 2, 0, 0.5f, -1.5f, 4, 6, 0};
  for (size_t i = 0; i < std::size(numbers); ++i) row[i] = to_bf16(numbers[i]);
  QuantizedPlanes planes;
  ASSERT_TRUE(quantize(kMxfp4, WeightLayout::kRowMajor, row, 32, planes).ok());
  EXPECT_EQ(planes.exponents, std::vector<uint8_t>{127});
  const WeightView view = planes.view(kMxfp4, WeightLayout::kRowMajor, 1, 32);
  for (size_t i = 0; i < std::size(numbers); ++i)
    EXPECT_EQ(weight_at(view, 0, static_cast<int64_t>(i)), wanted[i]) << numbers[i];
}

// Words of a lane: columns 2t, 2t + 8, 2t + 16, 2t + 24, then those behind them.
TEST(Pack, FragmentsAreWordsOfThirtyTwoLanes) {
  const auto at = [](int64_t row, int64_t col) {
    const IntegerPlace place = integer_place(WeightLayout::kFragments, kMxfp4, row, col, 512);
    return 2 * place.byte + place.shift / 4;  // in numbers
  };
  constexpr int64_t kLane = 32, kRun = 32 * kLane, kHalf = 8 * kRun, kBlock = 2 * kHalf;
  const int64_t second_lane[] = {2, 10, 18, 26, 3, 11, 19, 27};
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(at(0, second_lane[i]), kLane + i);
  EXPECT_EQ(at(0, 32), 8);
  EXPECT_EQ(at(1, 0), 4 * kLane);
  EXPECT_EQ(at(8, 0), kRun);
  EXPECT_EQ(at(0, 128), kHalf);
  EXPECT_EQ(at(3, 256), kBlock + 3 * 4 * kLane);
  EXPECT_EQ(at(64, 0), 2 * kBlock);
}

// Act order: a column's group comes from the index; no out-of-bounds reads, whatever its values.
TEST(Quantize, OrderedColumnsTakeTheirGroupFromTheIndex) {
  WeightFormat format = kInt8PerRow;
  format.group = 16, format.ordered = true;
  const std::vector<uint8_t> codes(32, 129);  // 1
  const std::vector<float> scales = {2, 3};
  std::vector<int32_t> index(32, 0);
  index[0] = 1, index[1] = 1000, index[2] = -5;
  WeightView w = {codes.data(), WeightLayout::kRowMajor, 1, 32, format, scales.data()};
  w.index = index.data();
  const float expected[] = {3, 3, 2, 2};
  for (int col = 0; col < 4; ++col) EXPECT_EQ(weight_at(w, 0, col), expected[col]);
  EXPECT_EQ(stored_bytes(w), 32u + 8 + 128);
}

TEST(WeightFormat, WrongOnesAreNamed) {
  EXPECT_EQ(format_error({}), "");
  EXPECT_EQ(format_error(kInt4Groups), "");
  WeightFormat f = kInt4Groups;
  f.bits = 5;
  EXPECT_EQ(format_error(f), "integers have 4 or 8 bits");
  f = kInt4Groups, f.group = 100;
  EXPECT_EQ(format_error(f), "a group is a multiple of 16 columns");
  f = kInt4Groups, f.scales = DType::kF16;
  EXPECT_EQ(format_error(f), "scales are f32");
  f = {}, f.zeros = true;
  EXPECT_NE(format_error(f), "");
  EXPECT_EQ(format_error(kFp8Groups), "");
  f = kFp8Groups, f.group = 40;
  EXPECT_EQ(format_error(f), "a group is a multiple of 16 columns");
  f = kFp8Groups, f.inputs = DType::kF8E4M3;
  EXPECT_EQ(format_error(f),
            "fp8 has f32 scales, and inputs of f8e4m3 where there is one for each row");
  EXPECT_EQ(format_error(kMxfp4), "");
  f = kMxfp4, f.group = 16;
  EXPECT_EQ(format_error(f), "4-bit floats are MXFP4");
  EXPECT_EQ(text_of(kMxfp4), "mxfp4");
  EXPECT_EQ(text_of(kFp8Groups), "fp8 in groups of 128");
  EXPECT_EQ(text_of(with_zeros(kInt4Groups)), "int4 in groups of 128 with zero points");
  EXPECT_EQ(text_of(with_minima(kInt4Groups)), "int4 in groups of 128 with minima");
  EXPECT_EQ(format_error(with_zeros(with_minima(kInt4Groups))),
            "a group has a zero point or a minimum, not both");
}

}  // namespace
}  // namespace nereid::kernels
