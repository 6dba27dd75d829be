// Where recordings are cut.
#include "speech/pauses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace nereid::speech {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Part = std::pair<int64_t, int64_t>;

TEST(PausesTest, PartsEndInPauses) {
  std::vector<float> samples(7000 * 160, 0.3f);
  // Pauses of half a second at 24 s and at 45 s.
  for (const int64_t at : {2400, 4500}) std::fill_n(samples.begin() + at * 160, 50 * 160, 0.001f);
  const auto parts = parts_at_pauses(samples, 3000);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_GE(parts[0].second, 2400);
  EXPECT_LE(parts[0].second, 2450);
  EXPECT_GE(parts[1].second, 4500);
  EXPECT_LE(parts[1].second, 4550);
  EXPECT_EQ(parts[2].second, 7000);
}

TEST(PausesTest, AllIsCoveredInOrder) {
  for (const int64_t frames : {0, 1, 2999, 3000, 3001, 10007}) {
    std::vector<float> samples(static_cast<size_t>(frames * 160 + 7));
    uint32_t seed = 1;
    for (float& x : samples)
      x = static_cast<float>((seed = seed * 1664525 + 1013904223) >> 16) / 65536;
    int64_t at = 0;
    for (const auto& [begin, end] : parts_at_pauses(samples, 3000)) {
      EXPECT_EQ(begin, at);
      EXPECT_GT(end, begin);
      EXPECT_LE(end - begin, 3000);
      at = end;
    }
    EXPECT_EQ(at, frames);
  }
  EXPECT_THAT(parts_at_pauses({}, 3000), IsEmpty());
  const std::vector<float> silence(3001 * 160);
  EXPECT_THAT(parts_at_pauses(silence, 3000), ElementsAre(Part(0, 2988), Part(2988, 3001)));
}

}  // namespace
}  // namespace nereid::speech
