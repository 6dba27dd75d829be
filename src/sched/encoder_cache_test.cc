#include "sched/encoder_cache.h"

#include <gtest/gtest.h>

namespace nereid::sched {
namespace {

TEST(EncoderCache, EqualInputsShareAResult) {
  EncoderCache cache(4, 8);
  EncoderCache::Entry* const a = cache.hold("a", 17);
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->blocks.size(), 3u);
  EXPECT_FALSE(a->is_computed);
  EXPECT_EQ(cache.hold("a", 17), a);
  EXPECT_EQ(cache.num_hits(), 1);
  EXPECT_EQ(cache.hold("b", 9), nullptr) << "two blocks, one is free";
  cache.check();
}

TEST(EncoderCache, ResultsStayUntilTheirBlocksAreNeeded) {
  EncoderCache cache(4, 8);
  EncoderCache::Entry* const a = cache.hold("a", 8);
  EncoderCache::Entry* const b = cache.hold("b", 8);
  a->is_computed = b->is_computed = true;
  cache.release(*a);
  cache.release(*b);
  EXPECT_EQ(cache.hold("a", 8), a) << "still there";
  cache.release(*a);
  EncoderCache::Entry* const c = cache.hold("c", 24);  // takes the place of b, released first
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(cache.hold("a", 8), a);
  EXPECT_EQ(cache.num_misses(), 3);
  EXPECT_EQ(cache.hold("b", 8), nullptr);
  cache.check();
}

TEST(EncoderCache, AResultThatWasNotComputedIsNotKept) {
  EncoderCache cache(2, 8);
  cache.release(*cache.hold("a", 8));
  EncoderCache::Entry* const again = cache.hold("a", 8);
  EXPECT_FALSE(again->is_computed);
  EXPECT_EQ(cache.num_hits(), 0);
  cache.check();
}

TEST(EncoderCache, APrivateResultIsSharedByItsHoldersAlone) {
  EncoderCache cache(2, 8);
  EncoderCache::Entry* const a = cache.hold("a", 8, /*is_private=*/true);
  EXPECT_EQ(cache.hold("a", 8, true), a);
  a->is_computed = true;
  cache.release(*a);
  cache.release(*a);
  EXPECT_FALSE(cache.hold("a", 16, true)->is_computed) << "both blocks are free again";
  cache.check();
}

TEST(EncoderCache, ForgottenResultsAreComputedAgain) {
  EncoderCache cache(3, 8);
  EncoderCache::Entry* const a = cache.hold("a", 8);
  EncoderCache::Entry* const b = cache.hold("b", 8);
  a->is_computed = b->is_computed = true;
  cache.release(*b);
  cache.forget_everything();
  EncoderCache::Entry* const again = cache.hold("a", 8);
  EXPECT_NE(again, a);
  EXPECT_FALSE(again->is_computed);
  cache.release(*a);
  cache.release(*again);
  cache.check();
  EXPECT_EQ(cache.num_holders(), 0);
}

}  // namespace
}  // namespace nereid::sched
