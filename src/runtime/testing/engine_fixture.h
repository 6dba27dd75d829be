// Test only: an executor on a FakeRunner.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/model_instance.h"
#include "runtime/testing/fake_runner.h"
#include "runtime/testing/test_client.h"
#include "runtime/testing/tight_device.h"
#include "tensor/cpu_device.h"

namespace nereid::runtime {

// The ref kernels; in engine_test.cc.
void add_test_kernels(kernels::Registry& registry);

inline constexpr int32_t kVocab = 64;

inline exec::RunnerLimits roomy() {
  return {.max_rows = 8,
          .max_tokens = 64,
          .max_sequence_length = 128,
          .num_blocks = 128,
          .block_tokens = 16};
}

struct Fixture {
  explicit Fixture(exec::RunnerLimits limits = roomy(), const ExecutorConfig& config = {},
                   std::shared_ptr<const text::Tokenizer> tokenizer = nullptr,
                   int64_t guide_steps = GrammarMasks::kTurnSteps, Duration device_timeout = {}) {
    if (!config.enable_overlap) limits.depth = 1;
    ModelInstance model;
    model.tokenizer = std::move(tokenizer);
    model.guide_steps = guide_steps;
    auto tight =
        std::make_unique<TightDevice>(make_cpu_device({.num_threads = 1}).value(), size_t{1} << 40);
    device = tight.get();
    device->health().set_timeout(device_timeout);
    model.device.device = std::move(tight);
    add_test_kernels(model.device.registry);
    auto fake =
        std::make_unique<FakeRunner>(*model.device.device, model.device.registry, limits, kVocab);
    runner = fake.get();
    model.runner = std::move(fake);
    executor = make_executor(std::move(model), config);
  }

  // Waits until nothing is left, then checks that all memory is back.
  void expect_counts_add_up() {
    executor->drain(std::chrono::milliseconds(60000));
    const ExecutorStats s = executor->stats();
    EXPECT_EQ(s.kv_blocks_free, s.kv_blocks_total);
    EXPECT_EQ(s.num_active, 0);
    EXPECT_EQ(s.num_waiting, 0);
  }

  TestClient client;  // outlives the executor
  TightDevice* device = nullptr;
  FakeRunner* runner = nullptr;
  std::unique_ptr<Executor> executor;
};

inline Request request(std::vector<TokenId> prompt, int32_t max_tokens) {
  Request r;
  r.input_token_ids = std::move(prompt);
  r.max_tokens = max_tokens;
  return r;
}

// All responses of a request, awaited.
inline std::vector<Response> all_responses(Executor& executor, RequestId id) {
  std::vector<Response> all;
  while (all.empty() || !all.back().is_final) {
    auto some = executor.await_responses(id, std::chrono::milliseconds(60000));
    if (some.empty()) ADD_FAILURE() << "request " << id << " has no final response";
    if (some.empty()) return all;
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace nereid::runtime
