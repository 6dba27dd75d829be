#include "runtime/instances/instance_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace nereid::runtime {
namespace {

constexpr int64_t kBlock = 16;

Request prompt(int32_t num_tokens, TokenId first = 0) {
  Request request;
  request.input_token_ids.resize(static_cast<size_t>(num_tokens));
  std::iota(request.input_token_ids.begin(), request.input_token_ids.end(), first);
  return request;
}

RouteKeys keys_of(const Request& request) { return route_keys(request, kBlock); }

std::vector<InstanceLoad> idle(size_t count) {
  return {count, InstanceLoad{.is_healthy = true,
                              .has_queue_place = true,
                              .max_batch_size = 8,
                              .num_free_blocks = 1000}};
}

TEST(InstanceRouterTest, PrefixesEndAtBlocksAndSeparateContents) {
  const RouteKeys keys = keys_of(prompt(40 * kBlock + 3));
  EXPECT_EQ(keys.num_blocks, 41);
  ASSERT_EQ(keys.prefixes.size(), 36U);  // 1 to 32, then 34, 36, 38, 40
  EXPECT_EQ(keys.prefixes.front().num_blocks, 1);
  EXPECT_EQ(keys.prefixes.back().num_blocks, 40);
  Request salted = prompt(40 * kBlock);
  salted.cache_salt = "a";
  Request adapted = prompt(40 * kBlock);
  adapted.lora = LoraConfig{.task_id = 1};
  for (const Request& other : {prompt(40 * kBlock, 1), salted, adapted})
    EXPECT_NE(keys_of(other).prefixes.front().hash, keys.prefixes.front().hash);
  EXPECT_EQ(keys_of(prompt(40 * kBlock + 9)).prefixes.back().hash, keys.prefixes.back().hash);
  EXPECT_TRUE(route_keys(prompt(40), 0).prefixes.empty());
}

TEST(InstanceRouterTest, TheNumberOfPrefixesIsBounded) {
  EXPECT_LT(keys_of(prompt(1 << 20)).prefixes.size(), 200U);
}

TEST(InstanceRouterTest, EqualInstancesTakeTurns) {
  InstanceRouter router;
  const auto loads = idle(3);
  std::vector<size_t> chosen;
  for (int i = 0; i < 6; ++i) chosen.push_back(*router.choose(keys_of(prompt(100)), loads));
  EXPECT_THAT(chosen, testing::ElementsAre(0, 1, 2, 0, 1, 2));
}

TEST(InstanceRouterTest, APrefixIsWorthAsMuchAsItsBlocks) {
  InstanceRouter router;
  auto loads = idle(2);
  const RouteKeys keys = keys_of(prompt(10 * kBlock));
  router.sent(keys, 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(router.choose(keys, loads), 1U);
  loads[1].num_open = 2;  // 8 blocks
  EXPECT_EQ(router.choose(keys, loads), 1U);
  loads[1].num_open = 3;  // 12 blocks
  EXPECT_EQ(router.choose(keys, loads), 0U);
  // A part of the prompt is there: 7 blocks remain, and 8 at the other one.
  router.sent(keys_of(prompt(3 * kBlock)), 0);
  loads[1].num_open = 2;
  EXPECT_EQ(router.choose(keys, loads), 0U);
}

TEST(InstanceRouterTest, FullInstancesComeLast) {
  InstanceRouter router;
  auto loads = idle(2);
  const RouteKeys keys = keys_of(prompt(100 * kBlock));
  router.sent(keys, 0);
  loads[0].num_open = loads[0].max_batch_size;
  loads[1].num_open = 7;
  EXPECT_EQ(router.choose(keys, loads), 1U);
  loads[1].num_free_blocks = 99;  // of 100
  EXPECT_EQ(router.choose(keys, loads), 0U);
  loads[0].has_queue_place = false;
  EXPECT_EQ(router.choose(keys, loads), 1U);
  loads[1].has_queue_place = false;  // its executor refuses the request
  EXPECT_EQ(router.choose(keys, loads), 0U);
}

TEST(InstanceRouterTest, OfEqualLoadsTheOneWithMoreFreeBlocks) {
  InstanceRouter router;
  auto loads = idle(3);
  loads[2].num_free_blocks = 1001;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(router.choose(keys_of(prompt(20)), loads), 2U);
}

TEST(InstanceRouterTest, FailedAndExcludedInstancesAreNotChosen) {
  InstanceRouter router;
  auto loads = idle(2);
  const RouteKeys keys = keys_of(prompt(50 * kBlock));
  router.sent(keys, 0);
  loads[0].is_healthy = false;
  EXPECT_EQ(router.choose(keys, loads), 1U);
  EXPECT_EQ(router.choose(keys, loads, /*excluded=*/2), std::nullopt);
  loads[0].is_healthy = true;
  EXPECT_EQ(router.choose(keys, loads), 0U);
  router.forget(0);
  loads[0].num_open = 1;
  EXPECT_EQ(router.choose(keys, loads), 1U);
}

TEST(InstanceRouterTest, AnAdapterThatCameWithARequestIsWhereThatWent) {
  InstanceRouter router;
  auto loads = idle(3);
  Request with = prompt(20), without = prompt(20, 5000);
  with.lora = LoraConfig{.task_id = 7, .weights = {1}, .config = {1}};
  without.lora = LoraConfig{.task_id = 7};
  router.sent(keys_of(with), 2);
  loads[2].num_open = 100;
  EXPECT_EQ(router.choose(keys_of(without), loads), 2U);
  EXPECT_EQ(router.choose(keys_of(with), loads), 2U);  // which refuses other weights
  loads[2].is_healthy = false;
  EXPECT_NE(router.choose(keys_of(without), loads), 2U);
  loads[2].is_healthy = true;
  router.lacks_adapter(keys_of(without), 2);
  EXPECT_NE(router.choose(keys_of(without), loads), 2U);
  // One that all instances have loaded at the start.
  without.lora->task_id = 8;
  router.sent(keys_of(without), 2);
  EXPECT_NE(router.choose(keys_of(without), loads), 2U);
}

TEST(InstanceRouterTest, TheLongestUnusedPrefixesAreForgotten) {
  InstanceRouter router(/*max_bytes=*/20 * InstanceRouter::kBytesPerEntry);
  auto loads = idle(2);
  loads[1].num_open = 1;
  const RouteKeys old = keys_of(prompt(10 * kBlock)), renewed = keys_of(prompt(10 * kBlock, 500));
  router.sent(old, 1);
  router.sent(renewed, 1);
  EXPECT_EQ(router.num_entries(), 20U);
  EXPECT_EQ(router.choose(old, loads), 1U);
  router.sent(renewed, 1);
  router.sent(keys_of(prompt(10 * kBlock, 900)), 1);
  EXPECT_EQ(router.num_entries(), 20U);
  EXPECT_EQ(router.choose(old, loads), 0U);
  EXPECT_EQ(router.choose(renewed, loads), 1U);
}

}  // namespace
}  // namespace nereid::runtime
