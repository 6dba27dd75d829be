#include "base/nearest.h"

#include <gtest/gtest.h>

namespace nereid {
namespace {

TEST(Nearest, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("same", "same"), 0u);
}

TEST(Nearest, FindsMisspellingsAndNothingElse) {
  const std::set<std::string> names = {"engine_dir", "tokenizer_dir", "max_beam_width"};
  EXPECT_EQ(did_you_mean("tokeniser_dir", names), " Did you mean 'tokenizer_dir'?");
  EXPECT_EQ(nearest_name("MAX_BEAM_WITH", names), "max_beam_width");
  EXPECT_EQ(did_you_mean("something else", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'a'), names), "");
}

}  // namespace
}  // namespace nereid
