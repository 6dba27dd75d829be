// Stop strings against a brute-force search, for every division of a text into three parts.
#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <optional>

namespace nereid::text {
namespace {

struct Expected {
  std::string text;
  std::optional<size_t> which;
};

// The occurrence that ends first, then the longest.
Expected brute_force(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t s = 0; s < stops.size(); ++s) {
      const size_t size = stops[s].size();
      if (size == 0 || size > end || text.compare(end - size, size, stops[s]) != 0) continue;
      if (!best || size > stops[*best].size()) best = s;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

// Length of the longest suffix of `seen` that begins a stop string.
size_t must_hold(const std::string& seen, const std::vector<std::string>& stops) {
  for (size_t size = seen.size(); size > 0; --size) {
    for (const std::string& stop : stops) {
      if (stop.size() > size && stop.compare(0, size, seen, seen.size() - size, size) == 0) {
        return size;
      }
    }
  }
  return 0;
}

void check_splits(const std::string& text, const std::vector<std::string>& stops) {
  const Expected want = brute_force(text, stops);
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      StopStrings matcher(stops);
      std::string got, seen;
      StopStrings::Out last;
      const std::string pieces[] = {text.substr(0, i), text.substr(i, j - i), text.substr(j)};
      for (int k = 0; k < 3; ++k) {
        last = matcher.push(pieces[k], k == 2);
        got += last.text;
        seen += pieces[k];
        if (!last.stopped && k < 2) {
          EXPECT_EQ(seen.size() - got.size(), must_hold(seen, stops)) << seen;
        }
      }
      EXPECT_EQ(got, want.text) << text << " at " << i << "," << j;
      EXPECT_EQ(last.stopped, want.which.has_value());
      if (want.which) {
        EXPECT_EQ(last.which, *want.which);
      }
    }
  }
}

TEST(StopStrings, EqualsBruteForceForEverySplit) {
  check_splits("hello world", {});
  check_splits("hello world", {""});
  check_splits("hello world", {"o w"});
  check_splits("aabaabaaab", {"aabaaa"});
  check_splits("abcabd", {"abcd", "bc"});
  check_splits("xxabc", {"c", "abc", "bc"});
  check_splits("ends in a part<|", {"<|end|>"});
  check_splits("caf\xC3\xA9 \xF0\x9F\x98\x80!", {"\xF0\x9F\x98\x80", "\xC3\xA9z"});
}

TEST(StopStrings, EqualsBruteForceOnSmallAlphabets) {
  uint64_t state = 1;
  const auto next = [&state](uint64_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % bound;
  };
  const auto word = [&](size_t min, size_t max) {
    std::string out;
    for (size_t n = min + next(max - min + 1); n > 0; --n) out += static_cast<char>('a' + next(2));
    return out;
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> stops;
    for (size_t n = 1 + next(3); n > 0; --n) stops.push_back(word(1, 5));
    check_splits(word(0, 14), stops);
  }
}

TEST(StopStrings, DropsEverythingAfterTheMatch) {
  StopStrings matcher({"END"});
  EXPECT_EQ(matcher.push("text EN", false).text, "text ");
  const StopStrings::Out out = matcher.push("D more", false);
  EXPECT_TRUE(out.stopped);
  EXPECT_EQ(out.text, "");
  EXPECT_EQ(matcher.push("still more", true).text, "");
  EXPECT_TRUE(matcher.push("", true).stopped);
}

}  // namespace
}  // namespace nereid::text
