#include "front/protection/key_limits.h"

#include <gmock/gmock.h>

#include <chrono>

namespace nereid::front {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const Time kStart = Time(std::chrono::hours(5));

KeyUse::PermitPtr permit(KeyUse& use, const KeyLimits& limits, Time time) {
  auto result = use.begin(limits, time);
  auto* given = std::get_if<KeyUse::PermitPtr>(&result);
  return given ? *given : nullptr;
}

int64_t wait_of(KeyUse& use, const KeyLimits& limits, Time time) {
  const auto result = use.begin(limits, time);
  const auto* refusal = std::get_if<KeyRefusal>(&result);
  return refusal ? refusal->retry_after_s : 0;
}

TEST(KeyLimits, AreReadByName) {
  const auto limits = parse_key_limits(" tokens_per_minute=1000\tconcurrency=2 ");
  ASSERT_TRUE(limits.ok()) << limits.status();
  EXPECT_EQ(limits->tokens_per_minute, 1000);
  EXPECT_EQ(limits->concurrency, 2);
  EXPECT_EQ(limits->requests_per_minute, 0);
  EXPECT_FALSE(parse_key_limits("")->any());
  for (const char* bad : {"rpm=5", "concurrency", "concurrency=", "concurrency=0", "concurrency=-1",
                          "concurrency=x", "concurrency=1x", "concurrency=1 concurrency=2",
                          "concurrency=1000000001", "concurrency=99999999999999999999", "="}) {
    EXPECT_THAT(std::string(message(parse_key_limits(bad).status())),
                HasSubstr("': requests_per_minute=N"))
        << bad;
  }
}

TEST(KeyLimits, RequestsAMinute) {
  const auto use = std::make_shared<KeyUse>();
  const KeyLimits limits{.requests_per_minute = 6};
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(permit(*use, limits, kStart)) << i;
  EXPECT_EQ(wait_of(*use, limits, kStart), 10);
  EXPECT_EQ(wait_of(*use, limits, kStart + milliseconds(9001)), 1);
  EXPECT_TRUE(permit(*use, limits, kStart + milliseconds(10001)));
  EXPECT_EQ(wait_of(*use, limits, kStart + milliseconds(10001)), 10);
  // Unused budget is kept for at most a minute.
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(permit(*use, limits, kStart + seconds(1000))) << i;
  EXPECT_FALSE(permit(*use, limits, kStart + seconds(1000)));
}

TEST(KeyLimits, TokensAMinuteArePaidAfterwards) {
  const auto use = std::make_shared<KeyUse>();
  const KeyLimits limits{.tokens_per_minute = 600};
  EXPECT_TRUE(permit(*use, limits, kStart));
  use->charge(599, kStart);
  EXPECT_TRUE(permit(*use, limits, kStart)) << "one is left";
  use->charge(101, kStart);
  EXPECT_EQ(wait_of(*use, limits, kStart), 11) << "100 in debt, 10 come a second";
  EXPECT_EQ(wait_of(*use, limits, kStart + seconds(10)), 1);
  EXPECT_TRUE(permit(*use, limits, kStart + milliseconds(10200)));
  EXPECT_EQ(use->num_charged(), 700);
}

TEST(KeyLimits, RequestsAtOnce) {
  const auto use = std::make_shared<KeyUse>();
  const KeyLimits limits{.concurrency = 2};
  auto first = permit(*use, limits, kStart);
  const auto second = permit(*use, limits, kStart);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(wait_of(*use, limits, kStart), 1);
  second->end();
  second->end();
  EXPECT_TRUE(permit(*use, limits, kStart)) << "and it is gone with its handle";
  first.reset();
  int num_calls = 0;
  const auto third = permit(*use, limits, kStart);
  third->on_end([&] { ++num_calls; });
  third->end();
  third->end();
  EXPECT_EQ(num_calls, 1);
  third->on_end([&] { ++num_calls; });
  EXPECT_EQ(num_calls, 2) << "too late to wait for it";
  EXPECT_TRUE(permit(*use, limits, kStart));
}

// Limits may change while the key is in use.
TEST(KeyLimits, MayChange) {
  const auto use = std::make_shared<KeyUse>();
  EXPECT_TRUE(permit(*use, {}, kStart));
  EXPECT_TRUE(permit(*use, {.requests_per_minute = 1}, kStart));
  EXPECT_FALSE(permit(*use, {.requests_per_minute = 1}, kStart));
  EXPECT_TRUE(permit(*use, {}, kStart));
  EXPECT_TRUE(permit(*use, {.requests_per_minute = 2}, kStart));
}

}  // namespace
}  // namespace nereid::front
