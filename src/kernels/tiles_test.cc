// AMX tile products: a single row, computed without tiles, has a batch's bits, for all magnitudes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/raw.h"
#include "kernels/open.h"

namespace nereid::kernels::cpu {
namespace {

constexpr int64_t kRows = 3, kPanels = 5, kN = 16 * kPanels, kK = 128;
constexpr int64_t kTileColumns = 32, kTileElements = 16 * kTileColumns;

struct Format {
  const char* name;
  int bits;
  int64_t group;
  bool zeros = false, minima = false, float8 = false, by_rows = false;
};
constexpr Format kFormats[] = {
    {"int8", 8, kK},
    {"int8_zeros", 8, 64, true},
    {"int4", 4, 64},
    {"int4_zeros", 4, 64, true},
    {"int8_small", 8, 16, true},
    {"int8_minima", 8, 32, false, true},
    {"int4_small", 4, 32},
    {"int4_small_zeros", 4, 16, true},
    {"int4_minima", 4, 32, false, true},
    {"fp8", 8, kK, false, false, true, true},
    {"fp8_groups", 8, 64, false, false, true},
    {"fp8_small", 8, 32, false, false, true},
};

class Tiles : public ::testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    StatusOr<OpenedDevice> opened = open_device("cpu", {.num_threads = 1});
    ASSERT_TRUE(opened.ok()) << opened.status();
    if (!opened->device->info().has_amx) GTEST_SKIP() << "the processor has no AMX";
    const int64_t groups = kK / GetParam().group;
    for (uint8_t& byte : data_) byte = static_cast<uint8_t>(random_());
    for (int64_t i = 0; i < groups * kN; ++i) {
      scales_.push_back(0.5f + static_cast<float>(random_() % 1000) * 1e-3f);
      minima_.push_back(static_cast<float>(random_() % 1000) * 1e-2f);
      zeros_.push_back(static_cast<uint8_t>(random_() % (uint32_t{1} << GetParam().bits)));
    }
  }

  // bf16 of either sign with exponents in [first, last].
  std::vector<uint16_t> numbers(int first, int last) {
    std::uniform_int_distribution<int> exponent(first, last);
    std::vector<uint16_t> x;
    for (int64_t i = 0; i < kRows * kK; ++i)
      x.push_back(static_cast<uint16_t>((random_() & 0x807f) | exponent(random_) << 7));
    return x;
  }

  // The product of rows [begin, begin + count) of x.
  std::vector<float> product(const std::vector<uint16_t>& x, int64_t begin, int64_t count) {
    std::vector<uint16_t> tiles(kK / kTileColumns * kTileElements),
        memory(tiles_memory(16, kPanels, kK));
    for (int64_t r = 0; r < count; ++r)
      for (int64_t i = 0; i < kK; ++i)
        tiles[static_cast<size_t>(i / kTileColumns * kTileElements + r * kTileColumns +
                                  i % kTileColumns)] = x[static_cast<size_t>((begin + r) * kK + i)];
    std::vector<float> out(static_cast<size_t>(count * kN));
    const Format& f = GetParam();
    const LinearRaw a = {.x = tiles.data(),
                         .x_stride = static_cast<int64_t>(tiles.size()),
                         .k = kK,
                         .scales = f.by_rows ? scales_.data() : nullptr,
                         .out = out.data(),
                         .out_stride = kN,
                         .n = kN};
    linear_narrow_amx(a,
                      {.data = data_.data(),
                       .scales = scales_.data(),
                       .zeros = f.zeros ? zeros_.data() : nullptr,
                       .minima = f.minima ? minima_.data() : nullptr,
                       .panel_bytes = kK * 16 * f.bits / 8,
                       .columns = kK,
                       .group = f.group,
                       .groups = kK / f.group,
                       .bits = f.bits,
                       .float8 = f.float8,
                       .by_rows = f.by_rows},
                      0, count, 0, kPanels, memory.data());
    return out;
  }

  std::mt19937 random_{1};
  std::vector<uint8_t> data_ = std::vector<uint8_t>(kN * kK + 4096), zeros_;
  std::vector<float> scales_, minima_;
};

TEST_P(Tiles, ARowAloneHasTheBitsOfOneAmongOthers) {
  const struct { int first, last; } exponents[] = {{120, 128}, {60, 200}, {0, 20}, {0, 1}};
  for (const auto [first, last] : exponents) {
    const std::vector<uint16_t> x = numbers(first, last);
    const std::vector<float> all = product(x, 0, kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<float> one = product(x, r, 1);
      for (int64_t i = 0; i < kN; ++i) {
        const float among = all[static_cast<size_t>(r * kN + i)],
                    alone = one[static_cast<size_t>(i)];
        ASSERT_TRUE(std::memcmp(&among, &alone, sizeof(float)) == 0 ||
                    (std::isnan(among) && std::isnan(alone)))
            << among << " and " << alone << ", row " << r << ", column " << i << ", exponents "
            << first << " to " << last;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Tiles, ::testing::ValuesIn(kFormats),
                         [](const ::testing::TestParamInfo<Format>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace nereid::kernels::cpu
