// The line of figures in the verbose log.
#include "backend/tensorrtllm/metrics.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace nereid::backend {
namespace {

ExecutorStats busy() {
  ExecutorStats s;
  s.num_active = 3;
  s.num_waiting = 2;
  s.num_steps = 17;
  s.max_batch_size = 32;
  s.kv_blocks_total = 100;
  s.kv_blocks_free = 75;
  s.kv_tokens_per_block = 32;
  s.kv_blocks_reused = 4;
  s.last_step_context_tokens = 64;
  s.last_step_context_requests = 1;
  s.last_step_generation_tokens = 2;
  s.last_step_generation_requests = 2;
  return s;
}

TEST(Figures, OneLineWithEverySeries) {
  ModelMetrics metrics("m", 1, /*is_static=*/false);
  IterationStats step;
  step.num_paused_requests = 1;
  step.cpu_mem_usage = 4096;
  metrics.publish(busy(), {&step, 1}, false);
  const json::object figures = parse_json(metrics.figures())->as_object();
  EXPECT_EQ(figures.size(), 22u);
  EXPECT_EQ(figures.at("Active Request Count").as_int64(), 5);
  EXPECT_EQ(figures.at("Scheduled Requests").as_int64(), 3);
  EXPECT_EQ(figures.at("Waiting Requests").as_int64(), 2);
  EXPECT_EQ(figures.at("Context Requests").as_int64(), 1);
  EXPECT_EQ(figures.at("Generation Requests").as_int64(), 2);
  EXPECT_EQ(figures.at("Paused Requests").as_int64(), 1);
  EXPECT_EQ(figures.at("Used KV cache blocks").as_int64(), 25);
  EXPECT_EQ(figures.at("Fraction used KV cache blocks").as_double(), 0.25);
  EXPECT_EQ(figures.at("Runtime CPU Memory Usage").as_int64(), 4096);
  EXPECT_EQ(figures.at("Timestamp").as_string().size(), 26u);
}

TEST(Figures, FallToZeroWhenIdle) {
  ModelMetrics metrics("m", 1, /*is_static=*/false);
  metrics.publish(busy(), {}, false);
  ExecutorStats idle = busy();
  idle.num_active = idle.num_waiting = 0;
  idle.kv_blocks_free = idle.kv_blocks_total;
  metrics.publish(idle, {}, false);
  const std::string line = metrics.figures();
  const json::object figures = parse_json(line)->as_object();
  for (const char* key : {"Active Request Count", "Context Requests", "Generation Requests",
                          "Scheduled Requests", "Total Context Tokens", "Used KV cache blocks"}) {
    EXPECT_EQ(figures.at(key).as_int64(), 0) << key;
  }
  metrics.publish(idle, {}, false);
  EXPECT_EQ(metrics.figures(), line);  // no new step: the time of the last figures stays
}

// Any number of steps between two snapshots; either may be newer.
TEST(Figures, OneLineForEachStep) {
  ModelMetrics metrics("m", 1, /*is_static=*/false);
  std::vector<int64_t> told;
  int64_t num_steps = 0;
  const auto publish = [&](int64_t snapshot, int64_t last_step) {
    std::vector<IterationStats> steps;
    while (num_steps < last_step) {
      IterationStats& step = steps.emplace_back();
      step.iter = ++num_steps;
      step.num_active_requests = 2;
      step.num_queued_requests = 1;
      step.num_ctx_tokens = static_cast<int32_t>(100 + step.iter);
    }
    ExecutorStats stats = busy();
    stats.num_steps = snapshot;
    for (const auto& line : metrics.publish(stats, steps, /*makes_lines=*/true)) {
      EXPECT_EQ(line.find('\n'), std::string::npos);
      const json::object figures = parse_json(line)->as_object();
      EXPECT_EQ(figures.size(), 22u);
      told.push_back(figures.at("Iteration Counter").as_int64());
      if (told.back() == snapshot) continue;
      EXPECT_EQ(figures.at("Active Request Count").as_int64(), 3);
      EXPECT_EQ(figures.at("Scheduled Requests").as_int64(), 2);
      EXPECT_EQ(figures.at("Total Context Tokens").as_int64(), 100 + told.back());
    }
  };
  publish(3, 3);
  publish(6, 5);
  publish(8, 8);
  EXPECT_EQ(told, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Figures, StaticBatchesHaveTheirOwn) {
  ModelMetrics metrics("m", 1, /*is_static=*/true);
  metrics.publish(busy(), {}, false);
  const json::object figures = parse_json(metrics.figures())->as_object();
  EXPECT_EQ(figures.size(), 21u);
  EXPECT_EQ(figures.at("Empty Generation Slots").as_int64(), 29);
  EXPECT_EQ(figures.at("Total Generation Tokens").as_int64(), 2);
  EXPECT_FALSE(figures.contains("MicroBatch ID"));
}

}  // namespace
}  // namespace nereid::backend
