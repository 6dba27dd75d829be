// Integer products in words: rows of x in steps, sums at the limit of 32 bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/raw.h"
#include "kernels/open.h"
#include "tensor/dtype.h"

namespace nereid::kernels::cpu {
namespace {

constexpr int64_t kOrder[] = {0, 2, 1, 3};

class Words : public ::testing::TestWithParam<const Raw*> {
 protected:
  void SetUp() override {
    StatusOr<OpenedDevice> opened = open_device("cpu", {.num_threads = 1});
    ASSERT_TRUE(opened.ok()) << opened.status();
    const DeviceInfo& info = opened->device->info();
    if (GetParam() == &kAvx2 ? !info.has_avx2 : !info.has_avx512)
      GTEST_SKIP() << info.name << " has not this instruction set";
  }

  struct Row {
    std::vector<int16_t> words;  // in the order of columns
    std::vector<FixedPiece> pieces;
  };
  Row row_of(const std::vector<BF16>& x, int64_t group) {
    const auto k = static_cast<int64_t>(x.size()), padded = (k + 3) / 4 * 4;
    memory_.assign(static_cast<size_t>(padded + 1024), -1);
    GetParam()->fixed_row(reinterpret_cast<const uint16_t*>(x.data()), k, group, memory_.data());
    Row row;
    for (int64_t i = 0; i < padded; ++i)
      row.words.push_back(memory_[static_cast<size_t>(i / 4 * 4 + kOrder[i % 4])]);
    for (int64_t g = 0; g < k; g += group)
      for (int64_t i = g; i < std::min(k, g + group); i += kPieceColumns) row.pieces.emplace_back();
    std::memcpy(row.pieces.data(), &memory_[static_cast<size_t>(padded)],
                row.pieces.size() * sizeof(FixedPiece));
    return row;
  }
  std::vector<int16_t> memory_;  // of the last row
};

TEST_P(Words, StepsKeepNumbersWithin128OfTheLargestOfTheirPiece) {
  // Pieces of columns 0 to 255, 256 to 299, 300 to 555, 556 to 598.
  std::vector<BF16> x;
  for (int64_t i = 0; i < 599; ++i)
    x.push_back(to_bf16(std::ldexp(1 + static_cast<float>(i * 37 % 128) / 128,
                                   static_cast<int>(i * 5 % 8) + (i < 300 ? 0 : 100)) *
                        (i % 3 ? 1.0f : -1.0f)));
  const Row row = row_of(x, 300);
  ASSERT_EQ(row.pieces.size(), 4u);
  const auto piece_of = [](int64_t i) { return i / 300 * 2 + i % 300 / kPieceColumns; };
  std::vector<double> sums(4);
  for (int64_t i = 0; i < 599; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(row.words[at] * row.pieces[static_cast<size_t>(piece_of(i))].step, to_float(x[at]))
        << i;
    sums[static_cast<size_t>(piece_of(i))] += to_float(x[at]);
  }
  EXPECT_EQ(row.words[599], 0);
  for (size_t p = 0; p < 4; ++p) EXPECT_EQ(row.pieces[p].sum, static_cast<float>(sums[p])) << p;
}

TEST_P(Words, SmallerNumbersAreRoundedToAStep) {
  const std::vector<BF16> x = {to_bf16(1), to_bf16(0x1.8p-15f), to_bf16(-0x1.8p-14f), to_bf16(0)};
  const Row row = row_of(x, 4);
  EXPECT_EQ(row.pieces[0].step, 0x1p-14f);
  EXPECT_EQ(row.words, (std::vector<int16_t>{1 << 14, 1, -2, 0}));  // 0.75 and -1.5 steps
}

TEST_P(Words, RowsThatAreNotFiniteSaySo) {
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    std::vector<BF16> x(40, to_bf16(1));
    x[33] = to_bf16(bad);
    const Row row = row_of(x, 32);
    EXPECT_EQ(row.pieces[0].sum, 32.0f);
    EXPECT_TRUE(std::isnan(row.pieces[1].step) && std::isnan(row.pieces[1].sum));
  }
  const Row zero = row_of(std::vector<BF16>(40, to_bf16(0)), 40);
  EXPECT_EQ(zero.pieces[0].sum, 0.0f);
  const Row tiny = row_of(std::vector<BF16>(40, to_bf16(0x1p-130f)), 40);
  EXPECT_TRUE(std::isfinite(tiny.pieces[0].step) && tiny.pieces[0].step > 0);
}

// The largest words times the largest integers, row counts of all kernel variants.
TEST_P(Words, TheLargestSumsFit) {
  constexpr int64_t kK = 512, kN = 32;
  const float largest = to_float(to_bf16(0x1.fep10f));
  for (const int64_t rows : {1, 3, 5, 40}) {
    const int64_t stride = kK + 32;
    std::vector<int16_t> x(static_cast<size_t>(rows * stride));
    const std::vector<BF16> line(kK, to_bf16(largest));
    for (int64_t r = 0; r < rows; ++r)
      GetParam()->fixed_row(reinterpret_cast<const uint16_t*>(line.data()), kK, kK,
                            &x[static_cast<size_t>(r * stride)]);
    const std::vector<uint8_t> data(kK * kN + 4096, 255);
    const std::vector<float> scales(kN, 1);
    std::vector<float> out(static_cast<size_t>(rows * kN));
    std::vector<uint16_t> memory(static_cast<size_t>(words_memory(rows)));
    const LinearRaw a = {
        .x = x.data(), .x_stride = stride, .k = kK, .out = out.data(), .out_stride = kN, .n = kN};
    GetParam()->linear_fixed(a,
                             {.data = data.data(),
                              .scales = scales.data(),
                              .panel_bytes = kK * 16,
                              .columns = kK,
                              .group = kK,
                              .groups = 1,
                              .bits = 8},
                             0, rows, 0, kN / 16, memory.data());
    for (const float sum : out) ASSERT_NEAR(sum, 127.0f * largest * kK, 16.0f) << rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Words, ::testing::Values(&kAvx2, &kAvx512),
                         [](const ::testing::TestParamInfo<const Raw*>& info) {
                           return info.param == &kAvx2 ? "avx2" : "avx512";
                         });

}  // namespace
}  // namespace nereid::kernels::cpu
