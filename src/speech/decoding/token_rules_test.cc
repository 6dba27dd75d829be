// The rules of time stamps, token by token.
#include "speech/decoding/token_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace nereid::speech {
namespace {

using ::testing::ElementsAre;

// Text 0..9, end 10, specials 11..15 (15: no time stamps), time stamps 16..39.
constexpr int32_t kVocab = 40, kFirst = 16;
TokenRules rules() {
  return {.end = 10,
          .first_timestamp = kFirst,
          .no_timestamps = 15,
          .most_first_timestamp = 3,
          .suppressed = {2, 11, 1000, -5},
          .suppressed_first = {10}};
}

std::vector<uint32_t> mask_of(const TokenRules& r, const std::vector<int32_t>& generated) {
  std::vector<uint32_t> words((kVocab + 31) / 32, 0xabcdef01);
  allow_tokens(r, generated, kVocab, words);
  return words;
}

std::vector<int32_t> allowed(const std::vector<int32_t>& generated, TokenRules r = rules()) {
  const std::vector<uint32_t> words = mask_of(r, generated);
  std::vector<int32_t> out;
  for (int32_t id = 0; id < 32 * std::ssize(words); ++id)
    if (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) out.push_back(id);
  return out;
}

std::vector<int32_t> with_timestamps(std::vector<int32_t> ids, int32_t from) {
  for (int32_t id = from; id < kVocab; ++id) ids.push_back(id);
  return ids;
}

const std::vector<int32_t> kText = {0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14};

TEST(TokenRulesTest, FirstIsAnEarlyTimestamp) {
  EXPECT_THAT(allowed({}), ElementsAre(16, 17, 18, 19));
  TokenRules any = rules();
  any.most_first_timestamp = -1;
  EXPECT_EQ(allowed({}, any), with_timestamps({}, kFirst));
}

TEST(TokenRulesTest, TimestampsComeInPairsAndNeverGoBack) {
  EXPECT_EQ(allowed({17}), kText);  // a segment has begun: text
  // In a segment: text, or an end behind the begin.
  EXPECT_EQ(allowed({17, 4}), with_timestamps(kText, 18));
  EXPECT_EQ(allowed({17, 4, 5}), with_timestamps(kText, 18));
  // Behind an end: the next begin, at the same time or later, or what is no text.
  EXPECT_EQ(allowed({17, 4, 20}), with_timestamps({10, 12, 13, 14}, 20));
  EXPECT_EQ(allowed({17, 4, 20, 20}), kText);
  EXPECT_EQ(allowed({17, 4, 20, 22, 5}), with_timestamps(kText, 23));
  EXPECT_EQ(allowed({17, 4, 39}), (std::vector<int32_t>{10, 12, 13, 14, 39}));
  EXPECT_EQ(allowed({17, 4, 39, 39, 5}), kText);
}

TEST(TokenRulesTest, WithoutTimestampsOnlyListsCount) {
  TokenRules r = rules();
  r.first_timestamp = -1;
  std::vector<int32_t> all;
  for (int32_t id = 0; id < kVocab; ++id)
    if (id != 2 && id != 11) all.push_back(id);
  EXPECT_EQ(allowed({4}, r), all);
  std::erase(all, 10);
  EXPECT_EQ(allowed({}, r), all);
}

TEST(TokenRulesTest, TimestampsTogetherOutweighTheLikeliestText) {
  const TokenRules r = rules();
  const auto words = mask_of(r, {17, 4});
  std::vector<float> logits(kVocab, -20);
  logits[5] = 1.0f;
  for (const int32_t id : {20, 21, 22}) logits[static_cast<size_t>(id)] = 0.0f;
  EXPECT_TRUE(must_be_timestamp(r, logits, words));  // ln 3 > 1
  logits[22] = -20;
  EXPECT_FALSE(must_be_timestamp(r, logits, words));  // ln 2 < 1
  logits[17] = 9;                                     // not allowed: before the begin
  EXPECT_FALSE(must_be_timestamp(r, logits, words));
  logits[2] = 9;  // suppressed
  logits[5] = 0.6f;
  EXPECT_TRUE(must_be_timestamp(r, logits, words));
  EXPECT_TRUE(must_be_timestamp(r, logits, mask_of(r, {})));     // nothing else is allowed
  EXPECT_FALSE(must_be_timestamp(r, logits, mask_of(r, {17})));  // none is allowed
  logits.assign(kVocab, -std::numeric_limits<float>::infinity());
  EXPECT_FALSE(must_be_timestamp(r, logits, words));
}

// Whatever was generated, something may follow, and the rules lead to an end.
TEST(TokenRulesTest, EveryTranscriptCanGoOn) {
  const TokenRules r = rules();
  uint32_t seed = 1;
  for (int run = 0; run < 2000; ++run) {
    std::vector<int32_t> generated;
    while (generated.size() < 40) {
      const auto next = allowed(generated);
      ASSERT_FALSE(next.empty());
      seed = seed * 1664525 + 1013904223;
      generated.push_back(next[(seed >> 8) % next.size()]);
      if (generated.back() == r.end) break;
    }
  }
}

}  // namespace
}  // namespace nereid::speech
