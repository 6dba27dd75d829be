#include "base/find_text.h"

#include <gtest/gtest.h>

#include <string>

namespace nereid {
namespace {

TEST(FindText, EqualsTheStringsOwnSearch) {
  // Short texts of two letters, and long ones with long parts that nearly match everywhere.
  uint64_t state = 1;
  const auto next = [&state](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  const auto random_text = [&](size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += static_cast<char>('a' + next(8) / 7);
    return text;
  };
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(next(300));
    const size_t begin = next(text.size() + 1);
    std::string part = i % 2 == 0 ? random_text(next(80)) : text.substr(begin, next(200));
    EXPECT_EQ(find_text(text, part), text.find(part)) << text << "\n" << part;
    EXPECT_EQ(find_text(text, part, begin), text.find(part, begin)) << text << "\n" << part;
    EXPECT_EQ(rfind_text(text, part), text.rfind(part)) << text << "\n" << part;
  }
  EXPECT_EQ(find_text("ab", "", 3), std::string::npos);
  EXPECT_EQ(rfind_text("ab", ""), 2u);
  EXPECT_EQ(rfind_text("", "a"), std::string::npos);
  EXPECT_EQ(find_text({}, "a"), std::string::npos);  // data() is null
}

// The product of the lengths is 10^12: a search of that many comparisons would not
// end within a test.
TEST(FindText, LongPartsThatNearlyMatch) {
  const std::string text(2'000'000, 'a'), part(500'000, 'a');
  EXPECT_EQ(find_text(text, part + "b"), std::string::npos);
  EXPECT_EQ(find_text(text, "b" + part), std::string::npos);
  EXPECT_EQ(rfind_text(text, part + "b"), std::string::npos);
  EXPECT_EQ(rfind_text(text, "b" + part), std::string::npos);
  EXPECT_EQ(rfind_text(text, part), text.size() - part.size());
}

}  // namespace
}  // namespace nereid
