#include "kernels/api/pack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <tuple>
#include <vector>

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

}  // namespace
}  // namespace nereid::kernels
