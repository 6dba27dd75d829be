// The step loop turn by turn, without threads: what each turn does, and that a run repeats itself.
#include "runtime/testing/engine_loop.h"

#include <gmock/gmock.h>

namespace nereid::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Prompts of 1 to 40 tokens; every third begins with the same ones.
std::vector<TokenId> loop_prompt(RequestId id) {
  std::vector<TokenId> prompt;
  const auto size = static_cast<size_t>(1 + (id * 7) % 40);
  for (size_t i = 0; i < size; ++i)
    prompt.push_back(static_cast<TokenId>((id % 3 == 0 ? i : i * 13 + id) % 900));
  return prompt;
}
int32_t loop_length(RequestId id) { return static_cast<int32_t>(1 + id % 17); }

std::vector<TokenId> loop_alone(RequestId id) {
  EngineLoop loop;
  loop.submit(id, loop_prompt(id), loop_length(id));
  loop.run();
  return loop.received[id].tokens;
}

constexpr RequestId kNumLoopRequests = 24;

// Two requests in each turn, until there are all.
void run_many(EngineLoop& loop) {
  for (RequestId id = 1; id <= kNumLoopRequests; id += 2) {
    loop.submit(id, loop_prompt(id), loop_length(id));
    loop.submit(id + 1, loop_prompt(id + 1), loop_length(id + 1));
    loop.turn();
  }
  loop.run();
}

TEST(EngineLoop, BatchedEqualsAlone) {
  for (const int32_t depth : {1, 2, 4}) {
    for (const int32_t num_blocks : {128, 40}) {  // 40: some are paused
      exec::RunnerLimits limits = EngineLoop::roomy(depth);
      limits.num_blocks = num_blocks;
      EngineLoop loop(limits);
      run_many(loop);
      for (RequestId id = 1; id <= kNumLoopRequests; ++id) {
        const EngineLoop::Received& got = loop.received[id];
        EXPECT_EQ(got.reason, FinishReason::kLength) << got.status;
        EXPECT_THAT(got.tokens, SizeIs(loop_length(id)));
        EXPECT_EQ(got.tokens, loop_alone(id)) << "request " << id << ", depth " << depth;
      }
      EXPECT_LT(loop.runner.num_launched, 150) << "batched";
    }
  }
}

TEST(EngineLoop, ARunRepeatsItself) {
  EngineLoop first, second;
  run_many(first), run_many(second);
  EXPECT_EQ(first.num_turns, second.num_turns);
  EXPECT_EQ(first.clock.time, second.clock.time);
  for (RequestId id = 1; id <= kNumLoopRequests; ++id)
    EXPECT_EQ(first.received[id].time, second.received[id].time);
  const auto steps = first.rings.iterations.take_all(), again = second.rings.iterations.take_all();
  ASSERT_EQ(steps.size(), again.size());
  ASSERT_EQ(static_cast<int64_t>(steps.size()), first.runner.num_launched);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].iter_latency_ms, 1000) << "by the engine's clock";
    EXPECT_EQ(steps[i].num_scheduled_requests, again[i].num_scheduled_requests);
    EXPECT_EQ(steps[i].num_ctx_tokens, again[i].num_ctx_tokens);
  }
}

TEST(EngineLoop, OneTurnLaunchesOneStepAndFinishesOne) {
  EngineLoop loop;
  loop.turn();
  EXPECT_EQ(loop.runner.num_launched, 0) << "nothing to do";
  loop.submit(1, {1, 2, 3}, 10);
  loop.turn();
  EXPECT_EQ(loop.runner.num_launched, 1);
  EXPECT_TRUE(loop.received[1].tokens.empty()) << "it is in flight";
  for (size_t turn = 2; turn <= 9; ++turn) {
    loop.turn();
    EXPECT_EQ(loop.runner.num_launched, static_cast<int64_t>(turn));
    EXPECT_THAT(loop.received[1].tokens, SizeIs(turn - 1)) << "of the step before";
  }
  loop.run();
  EXPECT_THAT(loop.received[1].tokens, SizeIs(10));
  EXPECT_EQ(loop.runner.num_launched, 10) << "none flew on";
}

TEST(EngineLoop, ADeadlineEndsItsRequestAlone) {
  for (const int32_t depth : {1, 2}) {
    EngineLoop loop(EngineLoop::roomy(depth));
    const Time begin = loop.clock.time;
    loop.submit(1, {1, 2, 3}, 100, 7 * ScriptedRunner::kStepTime);
    loop.submit(2, loop_prompt(2), loop_length(2));
    loop.run();
    const EngineLoop::Received& late = loop.received[1];
    EXPECT_EQ(late.reason, FinishReason::kTimedOut);
    EXPECT_EQ(late.time - begin, (7 + (depth - 1)) * ScriptedRunner::kStepTime)
        << "updates come at the end of a turn";
    EXPECT_THAT(late.tokens, SizeIs(7)) << "depth " << depth;
    EXPECT_EQ(loop.received[2].tokens, loop_alone(2));
    EXPECT_EQ(loop.progress.stats().num_timed_out, 1);
  }
}

TEST(EngineLoop, AFailingStepEndsItsRequestsAndNoOthers) {
  for (const int32_t depth : {1, 2}) {
    EngineLoop loop(EngineLoop::roomy(depth));
    loop.runner.fail_step = 3;
    loop.submit(1, {1, 2, 3}, 20);
    loop.submit(2, {4, 5}, 2);  // has ended by then
    loop.turn(), loop.turn(), loop.turn(), loop.turn();
    loop.submit(3, loop_prompt(3), loop_length(3));  // comes behind it
    loop.run();
    EXPECT_THAT(loop.received[1].status.ToString(), HasSubstr("step 3 fails"));
    EXPECT_THAT(loop.received[1].tokens, SizeIs(3));
    EXPECT_EQ(loop.received[2].reason, FinishReason::kLength);
    EXPECT_EQ(loop.received[3].reason, FinishReason::kLength) << loop.received[3].status;
    EXPECT_EQ(loop.received[3].tokens, loop_alone(3));
    EXPECT_EQ(loop.progress.stats().num_failed, 1);
  }
}

TEST(EngineLoop, AFailedDeviceEndsAllAtTheNextTurn) {
  EngineLoop loop;
  loop.submit(1, {1, 2, 3}, 20);
  loop.turn(), loop.turn();
  EXPECT_FALSE(loop.engine.device_has_failed());
  loop.health.fail(internal_error("it burns"));
  loop.submit(2, {1}, 5);
  loop.turn();
  EXPECT_TRUE(loop.engine.device_has_failed());
  for (const RequestId id : {1, 2})
    EXPECT_THAT(loop.received[id].status.ToString(), HasSubstr("it burns"));
  loop.run();
}

TEST(EngineLoop, ACancelledRequestHasNoMoreTokens) {
  EngineLoop loop;
  loop.submit(1, {1, 2, 3}, 20);
  loop.turn(), loop.turn(), loop.turn();
  loop.inbox.push(Cancel{1});
  loop.run();
  EXPECT_EQ(loop.received[1].reason, FinishReason::kCancelled);
  EXPECT_THAT(loop.received[1].tokens, SizeIs(2));
  EXPECT_EQ(loop.progress.stats().kv_blocks_free, loop.progress.stats().kv_blocks_total);
}

}  // namespace
}  // namespace nereid::runtime
