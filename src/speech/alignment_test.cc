// Paths, medians and words.
#include "speech/alignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace nereid::speech {
namespace {

using ::testing::ElementsAre;
using Path = std::vector<std::pair<int64_t, int64_t>>;

TEST(AlignmentTest, MedianOfMirroredRows) {
  std::vector<float> row = {9, 1, 5, 2, 8};
  median_filter(row, 3);
  EXPECT_THAT(row, ElementsAre(1, 5, 2, 5, 2));
  row = {4, 1};
  median_filter(row, 7);
  EXPECT_THAT(row, ElementsAre(4, 1));
}

double cost_of(const Path& path, std::span<const float> costs, int64_t columns) {
  double sum = 0;
  for (const auto& [i, j] : path) sum += costs[static_cast<size_t>(i * columns + j)];
  return sum;
}

// All paths from (0, 0), tried out.
double least_cost(std::span<const float> costs, int64_t rows, int64_t columns, int64_t i,
                  int64_t j) {
  const double here = costs[static_cast<size_t>(i * columns + j)];
  if (i == rows - 1 && j == columns - 1) return here;
  double best = std::numeric_limits<double>::infinity();
  for (const auto& [down, right] : Path{{1, 1}, {1, 0}, {0, 1}})
    if (i + down < rows && j + right < columns)
      best = std::min(best, least_cost(costs, rows, columns, i + down, j + right));
  return here + best;
}

TEST(AlignmentTest, PathsAreCheapest) {
  uint32_t seed = 7;
  for (int run = 0; run < 300; ++run) {
    const int64_t rows = 1 + run % 4, columns = 1 + run % 5;
    std::vector<float> costs;
    for (int64_t i = 0; i < rows * columns; ++i) {
      seed = seed * 1664525 + 1013904223;
      costs.push_back(static_cast<float>(seed >> 24) - 100);
    }
    const Path path = cheapest_path(costs, rows, columns);
    ASSERT_EQ(path.front(), (std::pair<int64_t, int64_t>(0, 0)));
    ASSERT_EQ(path.back(), (std::pair(rows - 1, columns - 1)));
    for (size_t i = 1; i < path.size(); ++i) {
      const int64_t down = path[i].first - path[i - 1].first;
      const int64_t right = path[i].second - path[i - 1].second;
      ASSERT_TRUE(down >= 0 && down <= 1 && right >= 0 && right <= 1 && down + right > 0);
    }
    ASSERT_DOUBLE_EQ(cost_of(path, costs, columns), least_cost(costs, rows, columns, 0, 0));
  }
}

TEST(AlignmentTest, HostileAttentionIsRefused) {
  EXPECT_FALSE(token_times({}, 0, 1, 100).ok());
  Attention a = {.num_heads = 1, .num_tokens = 3, .num_positions = 4};
  a.scores.assign(11, 0);
  EXPECT_FALSE(token_times(a, 0, 3, 100).ok());
  a.scores.assign(12, 0);
  EXPECT_TRUE(token_times(a, 0, 3, 100).ok());  // no peak at all
  EXPECT_FALSE(token_times(a, 2, 2, 100).ok());
  EXPECT_FALSE(token_times(a, 0, 4, 100).ok());
  EXPECT_FALSE(token_times(a, 0, 3, 1).ok());
  a.scores[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(token_times(a, 0, 3, 100).ok());
}

std::string as_bytes(std::span<const int32_t> ids) {
  std::string out;
  for (const int32_t id : ids) out += static_cast<char>(id);
  // A character that is cut off, as tokenizers decode it.
  if (!out.empty() && static_cast<uint8_t>(out[0]) >= 0x80 && out.size() < 3) return "\xef\xbf\xbd";
  return out;
}

std::vector<std::string> texts(std::string_view text, bool by_spaces) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  std::vector<std::string> out;
  size_t count = 0;
  for (const TokenWord& word : split_words(ids, as_bytes, by_spaces)) {
    out.push_back(word.text);
    count += word.tokens.size();
  }
  EXPECT_EQ(count, ids.size());
  return out;
}

TEST(AlignmentTest, WordsBeginAtSpacesAndPunctuation) {
  EXPECT_THAT(texts(" Hi, you two!", true), ElementsAre(" Hi", ",", " you", " two", "!"));
  EXPECT_THAT(texts("日本", false), ElementsAre("日", "本"));
  EXPECT_FALSE(has_spaces("ja"));
  EXPECT_TRUE(has_spaces("en"));
  EXPECT_EQ(texts("\xff\xff\xff\xff\xff\xff\xff", false).size(), 3u);
}

TEST(AlignmentTest, PunctuationGoesToItsWord) {
  std::vector<Word> words;
  for (const char* text : {" (", "He", ",", " said", ".", "\"", " \"", "No"})
    words.push_back({.text = text, .tokens = {1}});
  merge_punctuation(words);
  std::vector<std::string> left;
  size_t count = 0;
  for (const Word& word : words) {
    if (!word.text.empty()) left.push_back(word.text);
    count += word.tokens.size();
  }
  EXPECT_THAT(left, ElementsAre(" (He,", " said.\"", " \"No"));
  EXPECT_EQ(count, 8u);
}

}  // namespace
}  // namespace nereid::speech
