// Word lists in tensor form.
#include "backend/tensorrtllm/tensor_fields.h"

#include <gtest/gtest.h>

namespace nereid::backend {
namespace {

using Words = std::vector<std::vector<TokenId>>;

TEST(ReadWords, ReadsWhatTheFormatSays) {
  EXPECT_EQ(*read_words({1, 2, 3, 2, 3, -1}), (Words{{1, 2}, {3}}));
  EXPECT_EQ(*read_words({}), Words{});
  EXPECT_EQ(*read_words({0, -1}), Words{});
  EXPECT_EQ(*read_words({7, 8, 1, 2}), (Words{{7}, {8}}));
}

TEST(ReadWords, RefusesWhatItForbids) {
  const auto error = [](const std::vector<int32_t>& flat) {
    return std::string(message(read_words(flat).status()));
  };
  EXPECT_EQ(error({1, 2, 3}), "Sparse list must not have odd length: 1 2 3 ");
  EXPECT_EQ(error({1, 2, -1, 2}), "Sparse list must not have additional -1s: 1 2 -1 2 ");
  EXPECT_EQ(error({1, 2, 3, -1}), "Sparse list must not have out-of-bound offsets: 1 2 3 -1 ");
  EXPECT_EQ(error({1, 2, 2, 1}), "Sparse list must not have non-increasing offsets: 1 2 2 1 ");
  EXPECT_EQ(error({1, -5}), "Sparse list must not have non-increasing offsets: 1 -5 ");
}

}  // namespace
}  // namespace nereid::backend
