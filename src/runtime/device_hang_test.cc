// A device whose work never ends, and a driver call that never returns: waiting requests get an
// error, memory in use is leaked, and the process can end.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

constexpr Duration kTimeout = std::chrono::milliseconds(80);

Status hung(std::string_view for_seconds) {
  return unavailable(
      "device cpu has failed: it has made no progress for {} s (device_timeout_secs)", for_seconds);
}

// A model with one slot: one request runs, others wait, and each ends once with the same error.
void expect_all_end(Fixture& f, const Status& expected) {
  const RequestId runs = f.client.send(*f.executor, request({9, 10, 11}, 20));
  while (f.runner->num_steps() == 0) std::this_thread::yield();
  Request group = request({9, 12}, 20);
  group.sampling.num_return_sequences = 2;
  const RequestId waits = f.client.send(*f.executor, group);
  for (const RequestId id : {runs, waits}) {
    const Received got = f.client.wait(id);
    EXPECT_EQ(got.last.status, expected);
    EXPECT_TRUE(got.tokens.empty());
  }
  EXPECT_EQ(f.executor->health(), expected);
  EXPECT_FALSE(f.executor->can_enqueue());
  EXPECT_EQ(f.executor->enqueue(request({9}, 2), [](const Response&) {}).status(), expected);
  f.executor->drain(std::chrono::milliseconds(0));
  EXPECT_EQ(f.executor->stats().num_active, 0);
  EXPECT_EQ(f.executor->stats().num_waiting, 0);
}

exec::RunnerLimits one_place() {
  auto limits = roomy();
  limits.max_rows = 1;
  return limits;
}

TEST(DeviceHang, WorkThatNeverEndsEndsAllRequests) {
  for (const bool overlap : {true, false}) {
    ExecutorConfig config;
    config.enable_overlap = overlap;
    Fixture f(one_place(), config, nullptr, GrammarMasks::kTurnSteps, kTimeout);
    f.runner->hold(true);
    expect_all_end(f, hung("0.08"));
    f.executor.reset();     // does not wait for the device
    f.runner->hold(false);  // the device continues with all that it uses
  }
}

TEST(DeviceHang, ACallOfTheDriverThatNeverReturnsEndsAllRequests) {
  Fixture f(one_place(), {}, nullptr, GrammarMasks::kTurnSteps, kTimeout);
  f.runner->hold_launches(true);
  expect_all_end(f, hung("0.1"));
  f.executor.reset();  // does not wait for the engine thread
}

// The engine thread returns while the executor exists, and sends no update.
TEST(DeviceHang, AThreadThatComesBackTellsNobody) {
  Fixture f(one_place(), {}, nullptr, GrammarMasks::kTurnSteps, kTimeout);
  f.runner->hold_launches(true);
  expect_all_end(f, hung("0.1"));
  f.runner->hold_launches(false);
  while (f.executor->latest_iteration_stats().empty()) std::this_thread::yield();
  EXPECT_EQ(f.executor->health(), hung("0.1"));
  EXPECT_EQ(f.executor->stats().num_active, 0);
  f.executor.reset();
}

void expect_exit(const std::function<void(Fixture&)>& hang) {
  ExecutorConfig config;
  config.exit_on_device_failure = true;
  Fixture f(roomy(), config, nullptr, GrammarMasks::kTurnSteps, kTimeout);
  hang(f);
  const Received got = f.client.run(*f.executor, request({9, 10, 11}, 20));
  std::fprintf(stderr, "answer: %s\n", got.last.status.ToString().c_str());
  std::this_thread::sleep_for(std::chrono::seconds(60));
}

TEST(DeviceHangDeathTest, ByOptionItEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const char* const told = "answer: UNAVAILABLE: device cpu has failed: it has made no progress";
  EXPECT_EXIT(expect_exit([](Fixture& f) { f.runner->hold(true); }), ::testing::ExitedWithCode(1),
              told);
  EXPECT_EXIT(expect_exit([](Fixture& f) { f.runner->hold_launches(true); }),
              ::testing::ExitedWithCode(1), told);
}

}  // namespace
}  // namespace nereid::runtime
