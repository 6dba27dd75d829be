// The prefill tokens of a step beside decodes: by measured times, and in the engine's loop.
#include "runtime/modules/prefill_limit.h"

#include <gmock/gmock.h>

#include "runtime/testing/engine_loop.h"

namespace nereid::runtime {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr Duration kMost = milliseconds(50);

// Steps of a device with the given times.
class MeasuredSteps {
 public:
  void step(int32_t num_prefill, int32_t num_decodes, Duration taken, bool failed = false,
            bool encodes = false) {
    sched::StepPlan plan;
    if (encodes) plan.encodes.push_back({});
    if (num_prefill > 0) plan.rows.push_back({.num_tokens = num_prefill});
    for (int32_t i = 0; i < num_decodes; ++i) plan.rows.push_back({.num_tokens = 1});
    const Time launched = now_;
    now_ += taken;
    limit.finished({.plan = plan,
                    .launched = launched,
                    .finished = now_,
                    .failed = failed,
                    .scheduler = scheduler_,
                    .updates = {}});
  }

  PrefillLimit limit{kMost};

 private:
  Time now_{};
  const sched::Scheduler scheduler_{{.max_sequence_length = 128, .groups = {{.num_blocks = 32}}}};
};

TEST(PrefillLimit, IsTheTimeDividedByTheCostOfAToken) {
  MeasuredSteps steps;
  EXPECT_EQ(steps.limit.tokens(), 0) << "nothing is known";
  steps.step(2000, 0, milliseconds(400));
  EXPECT_NEAR(steps.limit.tokens(), 250, 1);
}

TEST(PrefillLimit, TheDecodesOfAStepAreNotPrefill) {
  MeasuredSteps steps;
  for (int i = 0; i < 4; ++i) steps.step(0, 8, milliseconds(10));
  steps.step(100, 8, milliseconds(30));
  EXPECT_EQ(steps.limit.tokens(), 200) << "twice the largest";
  steps.step(200, 8, milliseconds(50));
  EXPECT_NEAR(steps.limit.tokens(), 250, 1);
}

TEST(PrefillLimit, GrowsByDoubling) {
  MeasuredSteps steps;
  for (int32_t n = 16; n <= 512; n *= 2) {
    steps.step(n, 1, microseconds(n));
    EXPECT_EQ(steps.limit.tokens(), 2 * n);
  }
}

TEST(PrefillLimit, SomeSlowStepsChangeNothingAndMoreDo) {
  MeasuredSteps steps;
  for (int i = 0; i < 16; ++i) steps.step(250, 0, milliseconds(50));
  for (int i = 0; i < 4; ++i) steps.step(250, 0, milliseconds(2000));
  EXPECT_NEAR(steps.limit.tokens(), 250, 1);
  steps.step(250, 0, milliseconds(0), /*failed=*/true);
  steps.step(250, 0, milliseconds(100));
  EXPECT_NEAR(steps.limit.tokens(), 125, 1);
  for (int i = 0; i < 12; ++i) steps.step(125, 0, milliseconds(25));
  EXPECT_NEAR(steps.limit.tokens(), 250, 1) << "most of them are forgotten";
}

TEST(PrefillLimit, EncoderInputsAreNotPrefill) {
  MeasuredSteps steps;
  steps.step(250, 0, milliseconds(50));
  for (int i = 0; i < 8; ++i) steps.step(2, 1, milliseconds(500), false, /*encodes=*/true);
  EXPECT_NEAR(steps.limit.tokens(), 250, 1);
}

// The cost of a token grows with its position, by attention.
TEST(PrefillLimit, TheLastChunksOfAPromptCount) {
  MeasuredSteps steps;
  for (int prompt = 0; prompt < 4; ++prompt)
    for (int chunk = 1; chunk <= 8; ++chunk) steps.step(100, 1, milliseconds(10 * chunk));
  EXPECT_NEAR(steps.limit.tokens(), 50 * 100 / 60, 1);
}

TEST(PrefillLimit, PrefillHasAtLeastHalfOfTheTime) {
  MeasuredSteps steps;
  for (int i = 0; i < 4; ++i) steps.step(0, 8, milliseconds(200));
  steps.step(1000, 8, milliseconds(1200));
  EXPECT_NEAR(steps.limit.tokens(), 200, 1);
}

// Times of decodes vary: a step may take less than they did alone.
TEST(PrefillLimit, PrefillIsNeverFree) {
  MeasuredSteps steps;
  for (int i = 0; i < 4; ++i) steps.step(0, 1, milliseconds(100));
  for (int i = 0; i < 5; ++i) steps.step(4096, 1, milliseconds(80));
  EXPECT_LT(steps.limit.tokens(), 2 * 4096 + 1);
  EXPECT_GT(steps.limit.tokens(), 4096);
}

// Steps take one second, and half a second for each token.
class LimitedLoop : public testing::Test {
 protected:
  static exec::RunnerLimits wide() {
    exec::RunnerLimits limits = EngineLoop::roomy();
    limits.max_tokens = 64;
    return limits;
  }
  static std::vector<TokenId> prompt(size_t size, TokenId first) {
    std::vector<TokenId> tokens(size);
    for (size_t i = 0; i < size; ++i) tokens[i] = first + static_cast<TokenId>(i);
    return tokens;
  }
  // The longest time between two turns with a token of request 1, which decodes while a prompt of
  // 60 tokens comes; in seconds.
  double longest_gap(EngineLoop& loop) {
    loop.runner.token_time = milliseconds(500);
    loop.submit(1, prompt(40, 100), 60);
    while (loop.received[1].tokens.size() < 5) loop.turn();
    loop.submit(2, prompt(60, 300), 4);
    double longest = 0;
    Time last = loop.received[1].time;
    while (!loop.received[2].finished) {
      loop.turn();
      longest = std::max(longest, seconds(loop.received[1].time - last));
      last = loop.received[1].time;
    }
    loop.run();
    return longest;
  }
};

TEST_F(LimitedLoop, ATokenWaitsForSoMuchPrefillOnly) {
  EngineLoop whole(wide()), limited(wide(), std::chrono::seconds(6));
  EXPECT_GE(longest_gap(whole), 30);
  EXPECT_LE(longest_gap(limited), 1 + 0.5 + 6);
  for (const RequestId id : {1, 2})
    EXPECT_EQ(limited.received[id].tokens, whole.received[id].tokens);
}

TEST_F(LimitedLoop, APromptAloneIsComputedWhole) {
  EngineLoop loop(wide(), milliseconds(1));
  loop.submit(1, prompt(60, 100), 1);
  loop.run();
  EXPECT_EQ(loop.runner.num_launched, 1);
  loop.submit(2, prompt(60, 300), 1);
  loop.run();
  EXPECT_EQ(loop.runner.num_launched, 2);
}

TEST_F(LimitedLoop, SlowPrefillGetsABlockInEachStep) {
  EngineLoop loop(wide(), milliseconds(1));
  loop.runner.token_time = std::chrono::seconds(100);
  loop.submit(1, prompt(4, 100), 100);
  loop.turn();
  loop.submit(2, prompt(40, 300), 1);
  while (!loop.received[2].finished) loop.turn();
  EXPECT_LE(loop.runner.num_launched, 40 / 4 + 4);
}

}  // namespace
}  // namespace nereid::runtime
