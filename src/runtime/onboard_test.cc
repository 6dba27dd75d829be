// Requests whose cached blocks are onboarded while others run.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "base/testing/wait.h"
#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

using std::chrono::seconds;

constexpr int kPrompt = 40, kNumBlocks = 8, kOther = 64;

exec::RunnerLimits with_host() {
  exec::RunnerLimits limits = roomy();
  limits.num_blocks = kNumBlocks;
  limits.num_host_blocks = 32;
  return limits;
}

std::vector<TokenId> prompt_of(TokenId token, int length = kPrompt) {
  return std::vector<TokenId>(static_cast<size_t>(length), token);
}

// Two blocks of the prompt of `request_` are in the host pool, none on the device.
class OnboardTest : public ::testing::Test {
 protected:
  OnboardTest() {
    expected_ = f_.client.run(*f_.executor, request_);
    f_.client.run(*f_.executor, request(prompt_of(20, kNumBlocks * 16 - 1), 1));
    EXPECT_EQ(f_.runner->num_onboards(), 0);
  }

  // Sends the request; returns when its onboards are in flight.
  RequestId send_and_hold() {
    f_.runner->hold_onboards(true);
    const RequestId id = f_.client.send(*f_.executor, request_);
    wait_until([&] { return f_.runner->num_onboards() == 1; });
    return id;
  }

  // The same with another request running, which continues at hold(false).
  RequestId send_beside(RequestId& other) {
    f_.runner->hold_onboards(true, /*steps_too=*/true);
    f_.runner->hold(true);
    other = f_.client.send(*f_.executor, request(prompt_of(30, 8), kOther));
    const RequestId id = f_.client.send(*f_.executor, request_);
    f_.runner->hold(false);
    wait_until([&] { return f_.runner->num_onboards() == 1; });
    return id;
  }

  static void wait_until(const std::function<bool()>& is_so) {
    const auto end = std::chrono::steady_clock::now() + seconds(60);
    while (!is_so() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_TRUE(is_so());
  }

  void expect_as_before(RequestId id) {
    const Received got = f_.client.wait(id);
    EXPECT_TRUE(got.last.status.ok()) << got.last.status;
    EXPECT_EQ(got.tokens, expected_.tokens);
  }

  const Request request_ = request(prompt_of(10), 6);
  Fixture f_{with_host()};
  Received expected_;
};

TEST_F(OnboardTest, OthersRunWhileTheBlocksAreOnTheirWay) {
  RequestId other = 0;
  const RequestId id = send_beside(other);
  f_.runner->hold(false);
  EXPECT_EQ(f_.client.wait(other).tokens.size(), static_cast<size_t>(kOther));
  EXPECT_EQ(f_.client.num_tokens(id), 0u);
  f_.runner->hold_onboards(false);
  expect_as_before(id);
  EXPECT_GT(f_.executor->stats().kv_blocks_onboarded, 0);
  f_.expect_counts_add_up();
}

TEST_F(OnboardTest, WithNobodyElseTheEngineSleeps) {
  const RequestId id = send_and_hold();
  EXPECT_TRUE(wait_until_nothing_runs());
  f_.runner->hold_onboards(false);
  expect_as_before(id);
  EXPECT_LT(f_.runner->num_polls(), 50);
}

TEST_F(OnboardTest, ACancelledRequestEndsOnceAndItsBlocksLater) {
  RequestId other = 0;
  const RequestId id = send_beside(other);
  f_.executor->cancel(id);
  f_.runner->hold(false);
  EXPECT_EQ(f_.client.wait(id).reason(), FinishReason::kCancelled);
  EXPECT_EQ(f_.client.wait(other).tokens.size(), static_cast<size_t>(kOther));
  EXPECT_LT(f_.executor->stats().kv_blocks_free, kNumBlocks) << "the copy still writes them";
  f_.runner->hold_onboards(false);
  f_.expect_counts_add_up();
}

TEST_F(OnboardTest, AFailedCopyIsComputedInstead) {
  f_.runner->fail_onboards(true);
  const RequestId id = send_and_hold();
  f_.runner->hold_onboards(false);
  expect_as_before(id);
  f_.runner->fail_onboards(false);
  EXPECT_EQ(f_.client.run(*f_.executor, request_).tokens, expected_.tokens);
  f_.expect_counts_add_up();
}

TEST_F(OnboardTest, ALaunchThatFailsTellsOfItsCopiesToo) {
  f_.runner->fail_launch(f_.runner->num_steps());
  expect_as_before(f_.client.send(*f_.executor, request_));
  EXPECT_EQ(f_.runner->num_onboards(), 0);
  f_.expect_counts_add_up();
}

TEST_F(OnboardTest, TheEndOfTheExecutorWaitsForThem) {
  const RequestId id = send_and_hold();
  std::thread end([&] { f_.executor.reset(); });
  f_.runner->hold_onboards(false);
  end.join();
  EXPECT_TRUE(f_.client.wait(id).last.is_final);
}

}  // namespace
}  // namespace nereid::runtime
