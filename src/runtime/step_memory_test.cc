// The warm step loop allocates no memory, on the device or, on the engine thread, from the heap.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <thread>

#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "exec/step_message.h"
#include "runtime/testing/engine_fixture.h"
#include "tensor/wrapped_device.h"

namespace {

// Set in threads that count.
thread_local bool t_counts = false;
thread_local int64_t t_num_allocations = 0;

void* counted(void* memory) {
  if (t_counts) ++t_num_allocations;
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  return counted(std::malloc(bytes > 0 ? bytes : 1));
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  if (t_counts) ++t_num_allocations;
  return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto unit = static_cast<size_t>(alignment);
  return counted(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace nereid::runtime {
namespace {

constexpr size_t kMostSteps = 1024;

// Allocations at the launch of each step.
struct StepMemory {
  std::array<int64_t, kMostSteps> host{}, device{};
  std::atomic<size_t> num_steps = 0;
  std::atomic<int64_t> num_heard = 0;  // tokens that the client has received
};

// Counts device allocations.
class CountingDevice : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  StatusOr<Buffer> allocate(size_t bytes) override { return ++count, inner().allocate(bytes); }
  StatusOr<Buffer> allocate_host(size_t bytes) override {
    return ++count, inner().allocate_host(bytes);
  }
  StatusOr<Buffer> upload(const void* host, size_t bytes) override {
    return ++count, inner().upload(host, bytes);
  }

  std::atomic<int64_t> count = 0;
};

// Records both counts at each launch, on the engine thread.
class CountingRunner : public exec::Runner {
 public:
  CountingRunner(std::unique_ptr<exec::Runner> inner, const CountingDevice& device,
                 StepMemory& memory)
      : inner_(std::move(inner)), device_(device), memory_(memory) {}

  StatusOr<exec::Ticket> launch(std::span<const std::byte> message) override {
    t_counts = true;
    wait_for_client();
    const size_t step = memory_.num_steps++;
    num_logits_.at(step) = 0;
    const StatusOr<exec::StepMessageView> decoded = exec::decode(message);
    for (const exec::StepRow& row : decoded->rows) num_logits_[step] += row.num_logits;
    memory_.host.at(step) = t_num_allocations;
    memory_.device.at(step) = device_.count;
    return inner_->launch(message);
  }
  void draw(exec::Ticket& ticket, std::span<const std::byte> masks) override {
    inner_->draw(ticket, masks);
  }
  StatusOr<exec::StepResult> wait(exec::Ticket& ticket) override {
    num_drawn_ += num_logits_[num_waited_++];
    return inner_->wait(ticket);
  }
  std::optional<Status> onboarded(bool may_wait) override { return inner_->onboarded(may_wait); }
  const exec::RunnerLimits& limits() const override { return inner_->limits(); }
  std::span<const exec::CacheGroup> groups() const override { return inner_->groups(); }
  int32_t vocab_size() const override { return inner_->vocab_size(); }
  int32_t embedding_width() const override { return inner_->embedding_width(); }
  int32_t hidden_size() const override { return inner_->hidden_size(); }

 private:
  // All sampled tokens have been posted. The outbox's delay, and so the memory in its queue,
  // depends on the machine.
  void wait_for_client() const {
    const Time end = now() + std::chrono::seconds(60);
    while (memory_.num_heard < num_drawn_ && now() < end) std::this_thread::yield();
  }

  const std::unique_ptr<exec::Runner> inner_;
  const CountingDevice& device_;
  StepMemory& memory_;
  std::array<int32_t, kMostSteps> num_logits_{};  // by step
  size_t num_waited_ = 0;                         // steps
  int64_t num_drawn_ = 0;                         // of those steps
};

// The shipped model with counting device and runner.
std::unique_ptr<Executor> counted_executor(const ExecutorConfig& config, StepMemory& memory) {
  ModelInstance model;
  model.device = kernels::open_device("cpu", {.num_threads = 1}).value();
  auto counting = std::make_unique<CountingDevice>(std::move(model.device.device));
  CountingDevice& device = *counting;
  model.device.device = std::move(counting);
  convert::BuildOptions build;
  build.cache_dir = config.cache_dir;
  const auto engine =
      convert::ensure_engine(std::filesystem::path(source_dir()) / "models/quickstart",
                             model.device.registry, device.info(), build);
  EXPECT_TRUE(engine.ok()) << engine.status();
  const exec::RunnerLimits limits{.max_rows = 8,
                                  .max_tokens = 64,
                                  .max_sequence_length = 512,
                                  .num_blocks = 400,
                                  .block_tokens = 16,
                                  .depth = config.enable_overlap ? 2 : 1};
  auto runner = exec::make_runner(*engine, device, model.device.registry, limits).value();
  model.runner = std::make_unique<CountingRunner>(std::move(runner), device, memory);
  return make_executor(std::move(model), config);
}

TEST(StepMemory, DecodingTakesNone) {
  ExecutorConfig config;
  config.cache_dir = std::filesystem::path(::testing::TempDir()) / "nereid-step-memory-test";
  for (const bool overlap : {true, false}) {
    config.enable_overlap = overlap;
    const auto memory = std::make_unique<StepMemory>();
    std::atomic<int> num_open = 0;
    const auto executor = counted_executor(config, *memory);
    constexpr int32_t kNumTokens = 300, kNumRequests = 6;
    // The first round fills growing buffers; the second is measured, except its ends.
    size_t begin = 0;
    for (int round = 0; round < 2; ++round) {
      begin = memory->num_steps;
      for (int32_t i = 0; i < kNumRequests; ++i) {
        Request r = request({1, 5 + i, 9 + round, 2, 30}, kNumTokens);
        r.streaming = true;
        r.sampling.temperature = i % 2 ? 0.8f : 0.0f;
        ++num_open;
        const auto id = executor->enqueue(r, [&](const Response& response) {
          if (response.is_final) --num_open;
          for (const SequenceOutput& output : response.outputs)
            memory->num_heard += static_cast<int64_t>(output.token_ids.size());
        });
        ASSERT_TRUE(id.ok()) << id.status();
      }
      while (num_open > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(memory->num_heard, (round + 1) * kNumRequests * kNumTokens);
    }
    const size_t first = begin + 20, last = begin + kNumTokens - 20;
    ASSERT_LT(last, memory->num_steps);
    EXPECT_EQ(memory->host[last] - memory->host[first], 0)
        << "allocations in " << last - first << " steps, overlap " << overlap;
    EXPECT_EQ(memory->device[last] - memory->device[first], 0);
    EXPECT_GT(memory->device[first], 0);
  }
  std::filesystem::remove_all(config.cache_dir);
}

}  // namespace
}  // namespace nereid::runtime
