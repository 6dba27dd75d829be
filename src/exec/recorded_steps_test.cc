#include "exec/recorded_steps.h"

#include <gtest/gtest.h>

namespace nereid::exec {
namespace {

// Records its calls; a replay repeats them.
class FakeStream : public Stream {
 public:
  struct Kept : Recording {
    std::function<Status(Stream&)> work;
  };
  const Device& device() const override { std::abort(); }
  StatusOr<std::unique_ptr<Event>> submit(std::function<Status(Stream&)>) override {
    return unsupported("not used");
  }
  Status wait(const Event&) override { return unsupported("not used"); }
  Status copy(void*, const void*, size_t) override { return ok(); }
  Status fill(void*, int, size_t) override { return ok(); }
  StatusOr<std::unique_ptr<Recording>> record(const std::function<Status(Stream&)>& work) override {
    ++num_recorded;
    RETURN_IF_ERROR(record_status);
    if (!can_record) return std::unique_ptr<Recording>();
    auto kept = std::make_unique<Kept>();
    kept->work = work;
    return std::unique_ptr<Recording>(std::move(kept));
  }
  Status replay(const Recording& recording) override {
    ++num_replayed;
    return static_cast<const Kept&>(recording).work(*this);
  }
  void* native() override { return nullptr; }

  bool can_record = true;
  Status record_status;
  int num_recorded = 0, num_replayed = 0;
};

class RecordedStepsTest : public ::testing::Test {
 protected:
  // Runs a step; returns how often its work was executed.
  int run(int32_t rows, int32_t tokens, int32_t max_blocks) {
    StepData step;
    step.num_rows = rows, step.num_tokens = tokens, step.num_logits = rows;
    step.max_blocks = max_blocks;
    num_runs_ = 0;
    EXPECT_TRUE(steps_
                    .run(step, stream_,
                         [this](Stream&) {
                           ++num_runs_;
                           return ok();
                         })
                    .ok());
    return num_runs_;
  }
  FakeStream stream_;
  RecordedSteps steps_;
  int num_runs_ = 0;
};

TEST_F(RecordedStepsTest, TheSecondStepOfAShapeIsRecorded) {
  EXPECT_EQ(run(3, 3, 2), 1);
  EXPECT_EQ(stream_.num_recorded, 0);
  EXPECT_EQ(run(3, 3, 2), 1);
  EXPECT_EQ(run(3, 3, 2), 1);
  EXPECT_EQ(stream_.num_recorded, 1);
  EXPECT_EQ(stream_.num_replayed, 2);
}

TEST_F(RecordedStepsTest, EveryShapeHasItsOwn) {
  for (int i = 0; i < 3; ++i)
    for (const int32_t rows : {1, 2})
      for (const int32_t blocks : {4, 5}) run(rows, rows, blocks);
  EXPECT_EQ(stream_.num_recorded, 4);
  EXPECT_EQ(stream_.num_replayed, 8);
}

TEST_F(RecordedStepsTest, StepsWithPromptsAreNot) {
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(2, 7, 1), 1);
  EXPECT_EQ(stream_.num_recorded, 0);
}

TEST_F(RecordedStepsTest, TheLeastRecentlyUsedShapeMakesRoom) {
  const auto most = static_cast<int32_t>(kMaxRecordings);
  for (int i = 0; i < 2; ++i)
    for (int32_t blocks = 0; blocks < most; ++blocks) run(1, 1, blocks);
  run(1, 1, 0);     // becomes the most recently used
  run(1, 1, most);  // replaces shape 1
  EXPECT_EQ(stream_.num_recorded, most);
  run(1, 1, 0);
  EXPECT_EQ(stream_.num_recorded, most);
  run(1, 1, 1);
  run(1, 1, 1);
  EXPECT_EQ(stream_.num_recorded, most + 1);
}

TEST_F(RecordedStepsTest, ADeviceThatGainsNothingIsAskedOnce) {
  stream_.can_record = false;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(run(1, 1, 1), 1);
  EXPECT_EQ(stream_.num_recorded, 1);
}

TEST_F(RecordedStepsTest, AFailedRecordingIsNoFailedStep) {
  stream_.record_status = internal_error("no room for a graph");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(run(1, 1, 1), 1);
  EXPECT_EQ(stream_.num_recorded, 1);
}

}  // namespace
}  // namespace nereid::exec
