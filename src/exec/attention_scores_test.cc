#include "exec/attention_scores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "kernels/open.h"
#include "tensor/wrapped_device.h"

namespace nereid::exec {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class AttentionScoresTest : public ::testing::Test {
 protected:
  class Device : public WrappedDevice {
   public:
    using WrappedDevice::WrappedDevice;
    StatusOr<Buffer> allocate(size_t bytes) override {
      if (is_stingy) return resource_exhausted("{} bytes wanted", bytes);
      return inner().allocate(bytes);
    }
    bool is_stingy = false;
  };

  // A row of 3 tokens without scores, and one of 2 tokens and 5 positions with those of `heads`.
  static StepMessage step_of(std::vector<ScoredHead> heads) {
    StepMessage step;
    step.rows = {{.num_tokens = 3, .cross_length = 5}, {.num_tokens = 2, .cross_length = 5}};
    step.rows[1].num_scored_heads = static_cast<int32_t>(heads.size());
    step.scored_heads = std::move(heads);
    return step;
  }
  Status stage(const StepMessage& step) {
    encode(step, message_);
    return scores_.stage(decode(message_).value(), 0);
  }
  std::string error(const StepMessage& step) {
    const Status status = stage(step);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    return std::string(message(status));
  }

  Device device_ = Device(kernels::open_device("cpu", {.num_threads = 1}).value().device);
  std::vector<std::byte> message_;
  AttentionScores scores_ = AttentionScores(device_, {.num_layers = 2, .num_heads = 4}, 1);
};

TEST_F(AttentionScoresTest, RowsGetTheScoresOfTheirHeads) {
  const StepMessage step = step_of({{1, 3}, {0, 2}});
  ASSERT_TRUE(stage(step).ok());
  const auto calls = scores_.calls(0);
  ASSERT_THAT(calls, SizeIs(2));
  EXPECT_EQ(calls[0].layer, 1);
  EXPECT_EQ(calls[1].head, 2);
  EXPECT_EQ(calls[1].first_token, 3);
  EXPECT_EQ(calls[1].num_tokens, 2);
  EXPECT_EQ(calls[1].out - calls[0].out, 10);
  for (int i = 0; i < 20; ++i) calls[0].out[i] = static_cast<float>(i);
  const auto stream = device_.create_stream().value();
  auto read = stream->submit([&](Stream& s) { return scores_.read(0, s); });
  ASSERT_TRUE((*read)->wait().ok());
  const RowResult plain[2] = {};
  const StepResult results = scores_.add_to(plain, 0);
  EXPECT_THAT(results[0].scores, SizeIs(0));
  ASSERT_THAT(results[1].scores, SizeIs(20));
  EXPECT_EQ(results[1].scores[19], 19);
  // A step without scores leaves results as they are.
  ASSERT_TRUE(stage(step_of({})).ok());
  EXPECT_THAT(scores_.calls(0), SizeIs(0));
  EXPECT_EQ(scores_.add_to(plain, 0).data(), plain);
}

TEST_F(AttentionScoresTest, WrongMessagesAreRefused) {
  EXPECT_THAT(error(step_of({{2, 0}})), HasSubstr("head 0 of layer 2; there are 4 heads and 2"));
  EXPECT_THAT(error(step_of({{0, 4}})), HasSubstr("head 4 of layer 0"));
  EXPECT_THAT(error(step_of({{0, -1}})), HasSubstr("head -1 of layer 0"));
  StepMessage step = step_of({{0, 1}});
  step.rows[1].num_scored_heads = 2;
  EXPECT_THAT(error(step), HasSubstr("2 scored heads of a row; 1 are left"));
  step.rows[1].num_scored_heads = -1;
  EXPECT_THAT(error(step), HasSubstr("-1 scored heads of a row"));
  step.rows[1].num_scored_heads = 0;
  EXPECT_THAT(error(step), HasSubstr("1 scored heads belong to no row"));
  step = step_of({{0, 1}});
  step.rows[1].cross_length = 0;
  EXPECT_THAT(error(step), HasSubstr("no encoder output"));
  step.rows[1].cross_length = 1 << 30;
  EXPECT_THAT(error(step), HasSubstr("more than 67108864 scores"));
  scores_ = AttentionScores();
  EXPECT_THAT(error(step_of({{0, 1}})), HasSubstr("the model has none"));
  EXPECT_TRUE(stage(step_of({})).ok());
}

TEST_F(AttentionScoresTest, WithoutMemoryTheirRowsFail) {
  device_.is_stingy = true;
  ASSERT_TRUE(stage(step_of({{0, 1}})).ok());
  EXPECT_THAT(scores_.calls(0), SizeIs(0));
  const RowResult plain[2] = {};
  const StepResult results = scores_.add_to(plain, 0);
  EXPECT_TRUE(results[0].status.ok());
  EXPECT_THAT(std::string(message(results[1].status)),
              HasSubstr("40 bytes of attention scores of one step"));
}

}  // namespace
}  // namespace nereid::exec
