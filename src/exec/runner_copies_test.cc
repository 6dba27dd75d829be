// Block copies beside steps, on the plan of runner_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "exec/runner.h"
#include "exec/test_engine.h"
#include "exec/test_harness.h"
#include "kernels/open.h"
#include "tensor/cpu_device.h"
#include "tensor/wrapped_device.h"

namespace nereid::exec {
namespace {

// A stream of another device type that counts copies and can be blocked before them.
class WatchedStream : public Stream {
 public:
  WatchedStream(std::unique_ptr<Stream> inner, std::atomic<int>& num_copies)
      : inner_(std::move(inner)), num_copies_(num_copies) {}
  const Device& device() const override { return inner_->device(); }
  StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)> work) override {
    return inner_->submit([this, work = std::move(work)](Stream&) { return work(*this); });
  }
  Status wait(const Event& event) override { return inner_->wait(event); }
  Status copy(void* dst, const void* src, size_t bytes) override {
    if (before_copy) before_copy();
    RETURN_IF_ERROR(copy_status);
    RETURN_IF_ERROR(inner_->copy(dst, src, bytes));
    ++num_copies_;
    return ok();
  }
  Status fill(void* dst, int byte, size_t bytes) override { return inner_->fill(dst, byte, bytes); }
  void* native() override { return inner_->native(); }

  Status copy_status;
  std::function<void()> before_copy;

 private:
  const std::unique_ptr<Stream> inner_;
  std::atomic<int>& num_copies_;
};

// A CPU device with watched streams.
class WatchedDevice : public WrappedDevice {
 public:
  WatchedDevice() : WrappedDevice(make_cpu_device({.num_threads = 1}).value()) {}
  StatusOr<std::unique_ptr<Stream>> create_stream() override {
    return watch(stream, num_step_copies);
  }
  StatusOr<std::unique_ptr<Stream>> create_copy_stream() override {
    return copy_stream ? watch(onboard_stream, num_onboards) : watch(copy_stream, num_copies);
  }

  // Copies on the copy stream, the step stream and the onboard stream.
  std::atomic<int> num_copies = 0, num_step_copies = 0, num_onboards = 0;
  WatchedStream *copy_stream = nullptr, *onboard_stream = nullptr;
  WatchedStream* stream = nullptr;

 private:
  StatusOr<std::unique_ptr<Stream>> watch(WatchedStream*& made, std::atomic<int>& count) {
    ASSIGN_OR_RETURN(auto plain, inner().create_stream());
    auto watched = std::make_unique<WatchedStream>(std::move(plain), count);
    made = watched.get();
    return std::unique_ptr<Stream>(std::move(watched));
  }
};

class RunnerCopiesTest : public ::testing::Test {
 protected:
  static RunnerLimits limits() {
    RunnerLimits limits = roomy_limits(4, 32, 64, 4);
    limits.num_host_blocks = 8;
    return limits;
  }
  RunnerCopiesTest() {
    auto made =
        make_runner(write_engine(small_plan(), "copies"), device_, opened_.registry, limits_);
    EXPECT_TRUE(made.ok()) << made.status();
    runner_ = *std::move(made);
  }

  StatusOr<Ticket> launch(const std::vector<RowSpec>& rows, const std::vector<BlockCopy>& copies,
                          const std::vector<BlockCopy>& onboards = {}) {
    return exec::launch(*runner_, rows, copies, onboards);
  }
  // The logits of the step's last row go to `keep`.
  Status wait(Ticket& ticket, std::vector<float>* keep = nullptr) {
    ASSIGN_OR_RETURN(const StepResult results, runner_->wait(ticket));
    if (keep) keep->assign(results.back().logits.begin(), results.back().logits.end());
    return ok();
  }
  Status run(const std::vector<RowSpec>& rows, const std::vector<BlockCopy>& copies,
             std::vector<float>* keep = nullptr) {
    ASSIGN_OR_RETURN(Ticket ticket, launch(rows, copies));
    return wait(ticket, keep);
  }
  // A row in one block: position 3 after three tokens that depend on `block`.
  RowSpec last_row(int32_t& block) const {
    RowSpec row{.slot = 0, .start = 3, .tokens = kLast, .num_logits = 1};
    row.blocks[0] = {&block, 1};
    return row;
  }
  // A row that writes the first three positions, from `seed`.
  RowSpec first_row(int32_t& block, Ids& tokens, int32_t seed) const {
    tokens = {seed % 32, (seed * 7 + 3) % 32, (seed * 11 + 5) % 32};
    RowSpec row{.slot = 1, .tokens = tokens};
    row.blocks[0] = {&block, 1};
    return row;
  }

  static constexpr int32_t kLast[] = {3};
  const RunnerLimits limits_ = limits();
  WatchedDevice device_;
  kernels::OpenedDevice opened_ = kernels::open_device("cpu", {.num_threads = 1}).value();
  std::unique_ptr<Runner> runner_;
};

// The step stream is blocked until the next step's host copy is done.
TEST_F(RunnerCopiesTest, ACopyToTheHostRunsBesideTheStep) {
  int32_t block = 5;
  std::atomic<bool> seen = false;
  device_.stream->before_copy = [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (device_.num_copies == 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    seen = device_.num_copies > 0;
  };
  auto step = launch({{last_row(block)}}, {});
  ASSERT_TRUE(step.ok());
  auto copies = launch({}, {{7, limits_.num_blocks[0]}});
  ASSERT_TRUE(copies.ok());
  EXPECT_TRUE(wait(*step).ok());
  EXPECT_TRUE(wait(*copies).ok());
  EXPECT_TRUE(seen);
}

TEST_F(RunnerCopiesTest, AFailedCopyFailsItsStep) {
  int32_t block = 5;
  device_.copy_stream->copy_status = internal_error("no way to the host");
  EXPECT_EQ(run({{last_row(block)}}, {{7, limits_.num_blocks[0]}}),
            device_.copy_stream->copy_status);
  device_.copy_stream->copy_status = ok();
  EXPECT_TRUE(run({{last_row(block)}}, {{7, limits_.num_blocks[0]}}).ok());
}

// The onboard stream is blocked until steps have run beside it.
TEST_F(RunnerCopiesTest, NoStepWaitsForOnboards) {
  int32_t block = 5, other = 6;
  const int32_t host = limits_.num_blocks[0];
  Ids tokens;
  std::vector<float> expected, got;
  ASSERT_TRUE(run({{first_row(block, tokens, 3)}}, {}).ok());
  ASSERT_TRUE(run({{last_row(block)}}, {}, &expected).ok());
  EXPECT_FALSE(runner_->onboarded(/*may_wait=*/true).has_value()) << "there is none";
  std::mutex mutex;
  std::unique_lock held(mutex);
  device_.onboard_stream->before_copy = [&] { std::lock_guard lock(mutex); };
  auto first = launch({{last_row(other)}}, {{block, host}}, {{host, 9}});
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(wait(*first).ok());
  EXPECT_TRUE(run({{last_row(other)}}, {{block, host + 1}}).ok());
  EXPECT_FALSE(runner_->onboarded(/*may_wait=*/false).has_value());
  EXPECT_EQ(device_.num_onboards, 0);
  held.unlock();
  EXPECT_EQ(runner_->onboarded(/*may_wait=*/true), ok());
  int32_t arrived = 9;
  ASSERT_TRUE(run({{last_row(arrived)}}, {}, &got).ok());
  EXPECT_EQ(got, expected);
}

TEST_F(RunnerCopiesTest, AFailedOnboardFailsNoStep) {
  int32_t block = 5;
  const int32_t host = limits_.num_blocks[0];
  const Status failure = device_.onboard_stream->copy_status = internal_error("no way back");
  auto step = launch({{last_row(block)}}, {}, {{host, 9}});
  ASSERT_TRUE(step.ok());
  EXPECT_TRUE(wait(*step).ok());
  EXPECT_EQ(runner_->onboarded(/*may_wait=*/true), failure);
  EXPECT_FALSE(runner_->onboarded(/*may_wait=*/true).has_value());
}

TEST_F(RunnerCopiesTest, OnboardsComeFromTheHost) {
  const int32_t host = limits_.num_blocks[0];
  for (const BlockCopy copy : {BlockCopy{3, 9}, BlockCopy{3, host}, BlockCopy{host, host + 1}})
    EXPECT_NE(launch({}, {}, {copy}).status().ToString().find("onboard 0: "), std::string::npos);
  EXPECT_FALSE(launch({}, {}, {{host, 9, 1}}).ok());
  EXPECT_FALSE(launch({}, {}, {{host + limits_.num_host_blocks[0], 9}}).ok());
  EXPECT_FALSE(runner_->onboarded(/*may_wait=*/true).has_value()) << "refused ones are not told";
}

// Random lists, two steps in flight: block contents follow from the lists in order. Steps in flight
// use disjoint blocks, as Runner::launch() requires.
TEST_F(RunnerCopiesTest, ListsKeepTheirOrder) {
  constexpr int32_t kNumBlocks = 6;  // copied blocks, on the device and in the host pool each
  std::mt19937 rng(7);
  std::vector<int32_t> seeds(2 * kNumBlocks, 0);  // contents: device, then host blocks
  const auto id = [&](int32_t i) {
    return i < kNumBlocks ? i : i - kNumBlocks + limits_.num_blocks[0];
  };
  std::vector<std::vector<float>> expected(32);
  for (int32_t seed = 0; seed < 32; ++seed) {
    int32_t block = 20;
    Ids tokens;
    ASSERT_TRUE(run({{first_row(block, tokens, seed)}}, {}).ok());
    ASSERT_TRUE(run({{last_row(block)}}, {}, &expected[seed]).ok());
  }
  Ids tokens;
  for (int32_t i = 0; i < kNumBlocks; ++i) ASSERT_TRUE(run({{first_row(i, tokens, 0)}}, {}).ok());
  std::vector<BlockCopy> all;
  for (int32_t i = kNumBlocks; i < 2 * kNumBlocks; ++i) all.push_back({0, id(i)});
  ASSERT_TRUE(run({}, all).ok());
  for (int turn = 0; turn < 200; ++turn) {
    // The first step writes a block, or only copies; the second, launched while the first runs,
    // copies and reads.
    int32_t written = static_cast<int32_t>(rng() % kNumBlocks);
    const auto random_copies = [&](int32_t but) {
      std::vector<BlockCopy> copies;
      for (auto n = rng() % 6; n > 0; --n) {
        const auto from = static_cast<int32_t>(rng() % (2 * kNumBlocks));
        const auto to = static_cast<int32_t>(rng() % (2 * kNumBlocks));
        if (from == but || to == but || from == to) continue;
        copies.push_back({id(from), id(to)});
        seeds[static_cast<size_t>(to)] = seeds[static_cast<size_t>(from)];
      }
      return copies;
    };
    const auto before = random_copies(-1);
    const auto seed = static_cast<int32_t>(rng() % 32);
    auto first = launch({{first_row(written, tokens, seed)}}, before);
    seeds[static_cast<size_t>(written)] = seed;
    const auto beside = random_copies(written);
    int32_t read = static_cast<int32_t>(rng() % kNumBlocks);
    std::vector<float> logits;
    // Onboards to blocks not used before they have ended.
    std::vector<BlockCopy> onboards;
    for (auto n = rng() % 3; n > 0; --n) {
      const auto from = static_cast<int32_t>(kNumBlocks + rng() % kNumBlocks);
      const auto to = static_cast<int32_t>(rng() % kNumBlocks);
      if (to == written || to == read) continue;
      onboards.push_back({id(from), id(to)});
      seeds[static_cast<size_t>(to)] = seeds[static_cast<size_t>(from)];
    }
    auto second = launch({{last_row(read)}}, beside, onboards);
    ASSERT_TRUE(first.ok() && second.ok());
    ASSERT_TRUE(wait(*first).ok());
    ASSERT_TRUE(wait(*second, &logits).ok());
    ASSERT_EQ(runner_->onboarded(/*may_wait=*/true).has_value(), !onboards.empty());
    ASSERT_EQ(logits, expected[static_cast<size_t>(seeds[static_cast<size_t>(read)])]) << turn;
  }
}

}  // namespace
}  // namespace nereid::exec
