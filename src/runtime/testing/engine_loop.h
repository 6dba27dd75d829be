// Test only: an engine without a thread. The test makes its turns and scripts its clock and its
// runner, so a run is a function of the commands and of the turns in which they come.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "runtime/engine.h"
#include "runtime/step_modules.h"
#include "tensor/health.h"

namespace nereid::runtime {

struct ScriptedClock : Clock {
  Time now() const override { return time; }
  Time time{};
};

// Draws the hash of the tokens in its KV blocks, at once; each step then takes a second of the
// clock, and `token_time` for each token, unless it is failed.
class ScriptedRunner : public exec::Runner {
 public:
  static constexpr Duration kStepTime = std::chrono::seconds(1);
  static constexpr int32_t kVocabSize = 1000;

  ScriptedRunner(const exec::RunnerLimits& limits, ScriptedClock& clock)
      : limits_(limits),
        clock_(clock),
        cells_(static_cast<size_t>(limits.num_blocks[0] * limits.block_tokens)),
        slot_tokens_(static_cast<size_t>(limits.max_rows)),
        areas_(static_cast<size_t>(limits.depth)) {}

  StatusOr<exec::Ticket> launch(std::span<const std::byte> message) override {
    const auto turn = static_cast<int32_t>(num_launched % limits_.depth);
    Area& area = areas_[static_cast<size_t>(turn)];
    area = {.step = num_launched++, .time = kStepTime};
    ASSIGN_OR_RETURN(const exec::StepMessageView step, exec::decode(message));
    for (const exec::BlockCopy& copy : step.copies)
      for (int32_t i = 0; i < limits_.block_tokens; ++i) cell(copy.to, i) = cell(copy.from, i);
    std::span<const int32_t> tokens = step.tokens, blocks = step.blocks;
    for (const exec::StepRow& row : step.rows) {
      const auto num_blocks =
          static_cast<size_t>(exec::num_blocks_for(row.end(), limits_.block_tokens));
      compute(row, tokens.first(static_cast<size_t>(row.num_tokens)), blocks.first(num_blocks),
              area);
      area.time += row.num_tokens * token_time;
      tokens = tokens.subspan(static_cast<size_t>(row.num_tokens));
      blocks = blocks.subspan(num_blocks);
    }
    return exec::Ticket(std::make_unique<Done>(), turn);
  }
  StatusOr<exec::StepResult> wait(exec::Ticket& ticket) override {
    Area& area = areas_[static_cast<size_t>(staging_of(ticket))];
    clock_.time += area.time;
    if (area.step == fail_step) return internal_error("step {} fails", area.step);
    area.results.clear();
    for (const std::vector<kernels::SampleResult>& drawn : area.drawn)
      area.results.push_back({.drawn = drawn});
    return area.results;
  }
  void draw(exec::Ticket&, std::span<const std::byte>) override { FAIL() << "there are no masks"; }
  std::optional<Status> onboarded(bool) override { return std::nullopt; }
  const exec::RunnerLimits& limits() const override { return limits_; }
  std::span<const exec::CacheGroup> groups() const override { return groups_; }
  int32_t vocab_size() const override { return kVocabSize; }
  int32_t hidden_size() const override { return 0; }
  int32_t embedding_width() const override { return 4; }

  int64_t num_launched = 0;
  int64_t fail_step = -1;  // counted from 0
  Duration token_time{};

 private:
  struct Done : Event {
    Status wait() override { return ok(); }
    bool done() override { return true; }
  };
  struct Area {
    int64_t step = 0;
    Duration time{};
    std::vector<std::vector<kernels::SampleResult>> drawn;  // by row
    std::vector<exec::RowResult> results;
  };

  int32_t& cell(int32_t block, int32_t i) {
    return cells_[static_cast<size_t>(block * limits_.block_tokens + i)];
  }
  void compute(const exec::StepRow& row, std::span<const int32_t> tokens,
               std::span<const int32_t> blocks, Area& area) {
    const int32_t size = limits_.block_tokens;
    const auto at = [&](int32_t position) -> int32_t& {
      return cell(blocks[static_cast<size_t>(position / size)], position % size);
    };
    int32_t& slot = slot_tokens_[static_cast<size_t>(row.slot)];
    for (int32_t position = row.start; const int32_t token : tokens)
      at(position++) = token == exec::kTokenOnDevice ? slot : token;
    auto& drawn = area.drawn.emplace_back();
    if (row.samples == 0) return;
    uint64_t hash = 0;
    for (int32_t position = 0; position < row.end(); ++position)
      hash = philox(hash, static_cast<uint64_t>(at(position)))[0];
    slot = static_cast<int32_t>(hash % kVocabSize);
    drawn.push_back({.token = slot});
  }

  const exec::RunnerLimits limits_;
  ScriptedClock& clock_;
  const std::vector<exec::CacheGroup> groups_ = std::vector<exec::CacheGroup>(1);
  std::vector<int32_t> cells_;  // the token at [block, position in block]
  std::vector<int32_t> slot_tokens_;
  std::vector<Area> areas_;
};

class EngineLoop : public UpdateSink {
 public:
  struct Received {
    std::vector<TokenId> tokens;
    bool finished = false;
    FinishReason reason = FinishReason::kNotFinished;
    Status status;
    Time time;  // of the last update
  };

  static exec::RunnerLimits roomy(int32_t depth = 2) {
    return {.max_rows = 8,
            .max_tokens = 16,
            .max_sequence_length = 128,
            .num_blocks = 128,
            .block_tokens = 4,
            .depth = depth};
  }

  explicit EngineLoop(const exec::RunnerLimits& limits = roomy(), Duration max_prefill = {})
      : runner(limits, clock),
        engine(health, runner,
               {.limits = {.max_batch_size = limits.max_rows,
                           .max_num_tokens = limits.max_tokens,
                           .max_queue_size = 64,
                           .max_sequence_length = limits.max_sequence_length,
                           .groups = {{.num_blocks = limits.num_blocks[0]}},
                           .tokens_per_block = limits.block_tokens},
                .clock = &clock},
               make_step_modules({.max_prefill = max_prefill}, runner, inbox, progress, rings,
                                 [](RequestId) {}),
               inbox, *this, progress, rings) {}
  ~EngineLoop() override {
    inbox.push(CancelAll{});
    turn();
    engine.finish();
  }

  // A greedy sequence.
  void submit(RequestId id, std::vector<TokenId> prompt, int32_t max_new_tokens,
              std::optional<Duration> allotted = {}) {
    sched::SequenceSpec spec{.id = id,
                             .prompt = std::move(prompt),
                             .max_new_tokens = max_new_tokens,
                             .arrival = clock.time};
    if (allotted) spec.deadline = clock.time + *allotted;
    Submit request;
    request.group.push_back(std::move(spec));
    EXPECT_TRUE(progress.enter_queue(1, 64));
    inbox.push(std::move(request));
  }

  void turn() {
    ASSERT_TRUE(engine.take_commands(/*may_sleep=*/false));
    engine.turn();
    ++num_turns;
  }
  // Until nothing is left to do.
  void run() {
    do turn();
    while (!progress.wait_idle(std::chrono::milliseconds(0)) && num_turns < 10000);
  }

  void post(UpdateBatch batch) override {
    for (const EngineUpdate& update : batch.updates) {
      Received& to = received[update.row.id];
      EXPECT_FALSE(to.finished) << "update behind the last";
      to.tokens.insert(to.tokens.end(), update.row.tokens.begin(), update.row.tokens.end());
      to.finished = update.row.finished;
      to.reason = update.row.reason;
      to.status = update.row.status;
      to.time = batch.time;
    }
  }
  std::vector<EngineUpdate> take_list() override { return {}; }
  void keep_list(std::vector<EngineUpdate>) override {}

  ScriptedClock clock;
  Health health{[] { return std::string("device scripted:0"); }};
  ScriptedRunner runner;
  Inbox inbox;
  Progress progress;
  StatsRings rings{.iterations = Ring<IterationStats>(1000),
                   .requests = Ring<RequestStatsPerIteration>(0),
                   .events = Ring<KvCacheEvent>(0)};
  std::map<RequestId, Received> received;
  int num_turns = 0;
  Engine engine;
};

}  // namespace nereid::runtime
