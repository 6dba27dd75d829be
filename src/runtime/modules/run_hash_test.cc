// The hash of a run: the same for the same tokens, however they are computed.
#include "runtime/testing/engine_loop.h"

namespace nereid::runtime {
namespace {

int64_t hash_of(const ExecutorStats& stats) {
  for (int64_t i = 0; i < stats.num_module_figures; ++i)
    if (stats.module_figures[static_cast<size_t>(i)].name == "run_hash")
      return stats.module_figures[static_cast<size_t>(i)].value;
  ADD_FAILURE() << "there is no hash";
  return 0;
}

// Hash of a run of six requests, of which `longer` has one token more.
int64_t run_hash(const exec::RunnerLimits& limits, RequestId longer = 0, bool at_once = true) {
  EngineLoop loop(limits);
  for (RequestId id = 1; id <= 6; ++id) {
    loop.submit(id, {static_cast<TokenId>(id), 2, 3, 4, 5}, id == longer ? 6 : 5);
    if (!at_once) loop.run();
  }
  loop.run();
  return hash_of(loop.progress.stats());
}

TEST(RunHash, DependsOnTokensAndNotOnSteps) {
  const int64_t expected = run_hash(EngineLoop::roomy());
  EXPECT_NE(expected, 0);
  EXPECT_EQ(run_hash(EngineLoop::roomy(/*depth=*/1)), expected);
  EXPECT_EQ(run_hash(EngineLoop::roomy(), 0, /*at_once=*/false), expected);
  exec::RunnerLimits tight = EngineLoop::roomy();
  tight.num_blocks = 8;  // some are paused
  tight.max_tokens = 3;  // prompts come in chunks
  EXPECT_EQ(run_hash(tight), expected);
}

TEST(RunHash, OneTokenMoreIsAnotherHash) {
  const int64_t expected = run_hash(EngineLoop::roomy());
  for (const RequestId id : {1, 6}) EXPECT_NE(run_hash(EngineLoop::roomy(), id), expected);
}

TEST(RunHash, AFailedStepAddsNothing) {
  EngineLoop loop;
  loop.runner.fail_step = 0;
  loop.submit(1, {1, 2, 3}, 5);
  loop.run();
  EXPECT_EQ(hash_of(loop.progress.stats()), 0);
  loop.submit(2, {1, 2, 3}, 5);
  loop.run();
  EXPECT_NE(hash_of(loop.progress.stats()), 0);
}

}  // namespace
}  // namespace nereid::runtime
