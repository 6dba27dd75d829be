// Scheduler: encoder inputs whose results some tokens read (pictures); one behaviour per test.
#include <gmock/gmock.h>

#include <cstdio>

#include "sched/test_requests.h"

namespace nereid::sched {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Pool: two blocks of four results; a step has 16 positions of encoder inputs.
Limits picture_limits() {
  Limits l = limits();
  l.max_encoder_length = l.max_encoder_tokens = 16;
  l.max_encoder_parts = 4;
  l.num_encoder_blocks = 2;
  return l;
}

EncoderSpec picture(const std::string& key, int32_t begin, int32_t end) {
  return {.key = key,
          .length = 2 * (end - begin),
          .num_results = end - begin,
          .begin = begin,
          .end = end};
}

SequenceSpec with_pictures(RequestId id, int32_t num_prompt, std::vector<EncoderSpec> pictures) {
  SequenceSpec s = spec(id, num_prompt, 2, 10 * static_cast<TokenId>(id));
  s.encoder_inputs = std::move(pictures);
  return s;
}

struct Step {
  std::vector<std::string> encoded, rows;
};

// Plans and commits a step.
Step run(Scheduler& sched) {
  const StepPlan plan = sched.plan(Time{});
  Step out;
  for (const PlannedEncode& e : plan.encodes) {
    const EncoderSpec& input = e.sequence->spec().encoder_inputs[e.input];
    EXPECT_EQ(e.blocks.size(), static_cast<size_t>((input.num_results - 1) / 4 + 1));
    out.encoded.push_back(input.key);
  }
  for (const ScheduledRow& row : plan.rows) {
    out.rows.push_back(fmt::format("{}: {}-{}", row.sequence->id(), row.start, row.end()));
    const std::vector<EncoderSpec>& inputs = row.sequence->spec().encoder_inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].begin < row.end() && inputs[i].end > row.start) {
        EXPECT_FALSE(row.sequence->result_blocks(i).empty()) << out.rows.back();
      }
    }
  }
  const SampledTokens drawn{.token = 7};
  for (const ScheduledRow& row : plan.rows) sched.commit(row, given(row, drawn));
  sched.check();
  return out;
}

TEST(SchedulerPictures, RowsEndBeforeAPictureThatIsNotThere) {
  Scheduler sched(picture_limits());
  ASSERT_TRUE(sched.submit(with_pictures(1, 20, {picture("a", 2, 8), picture("b", 10, 14)})).ok());
  const Step first = run(sched), second = run(sched);
  EXPECT_THAT(first.encoded, ElementsAre("a"));
  EXPECT_THAT(first.rows, ElementsAre("1: 0-10"));
  EXPECT_THAT(second.encoded, ElementsAre("b"));
  EXPECT_THAT(second.rows, ElementsAre("1: 10-20"));
}

TEST(SchedulerPictures, AWholePromptWaitsForAllOfItsPictures) {
  Limits l = picture_limits();
  l.policy.enable_chunked_context = false;
  l.num_encoder_blocks = 3;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(with_pictures(1, 20, {picture("a", 2, 8), picture("b", 10, 14)})).ok());
  const Step first = run(sched), second = run(sched);
  EXPECT_THAT(first.encoded, ElementsAre("a"));
  EXPECT_TRUE(first.rows.empty());
  EXPECT_THAT(second.encoded, ElementsAre("b"));
  EXPECT_THAT(second.rows, ElementsAre("1: 0-20"));
  const Status status =
      sched.submit(with_pictures(2, 30, {picture("a", 2, 8), picture("b", 10, 18)}));
  EXPECT_THAT(std::string(status.message()), HasSubstr("4 blocks of 4, there are 3"));
}

TEST(SchedulerPictures, EqualPicturesAreComputedOnce) {
  Scheduler sched(picture_limits());
  ASSERT_TRUE(sched.submit(with_pictures(1, 10, {picture("a", 2, 8)})).ok());
  ASSERT_TRUE(sched.submit(with_pictures(2, 10, {picture("a", 1, 7)})).ok());
  const Step step = run(sched);
  EXPECT_THAT(step.encoded, ElementsAre("a"));
  EXPECT_THAT(step.rows, ElementsAre("1: 0-10", "2: 0-10"));
  EXPECT_EQ(sched.encoder_cache().num_hits(), 1);
}

// A picture that all tokens from `begin` on may read, of a block.
EncoderSpec lasting(const std::string& key, int32_t begin) {
  return {.key = key, .length = 4, .num_results = 4, .begin = begin};
}

// A sequence with room for one of its two results holds none.
TEST(SchedulerPictures, ResultsOfAllLaterTokensAreHeldTogether) {
  Scheduler sched(picture_limits());
  ASSERT_TRUE(sched.submit(with_pictures(1, 6, {lasting("a", 0)})).ok());
  ASSERT_TRUE(sched.submit(with_pictures(2, 10, {lasting("b", 2), lasting("c", 5)})).ok());
  const Step first = run(sched);
  EXPECT_THAT(first.encoded, ElementsAre("a"));
  EXPECT_THAT(first.rows, ElementsAre("1: 0-6"));
  EXPECT_EQ(sched.encoder_cache().num_holders(), 1);
  std::vector<std::string> encoded;
  while (!sched.idle()) {
    const Step step = run(sched);
    encoded.insert(encoded.end(), step.encoded.begin(), step.encoded.end());
  }
  EXPECT_THAT(encoded, ElementsAre("b", "c"));
  EXPECT_EQ(sched.encoder_cache().num_holders(), 0);
  const Status status =
      sched.submit(with_pictures(3, 10, {lasting("a", 1), lasting("b", 2), lasting("c", 3)}));
  EXPECT_THAT(std::string(status.message()), HasSubstr("3 blocks of 4, there are 2"));
}

// The tokens of both pictures are in the same ids, and each block of the prompt is found.
TEST(SchedulerPictures, AFoundPrefixAsksForNoPicture) {
  Scheduler sched(picture_limits());
  SequenceSpec one = with_pictures(1, 10, {picture("a", 2, 8)});
  ASSERT_TRUE(sched.submit(one).ok());
  while (!sched.idle()) run(sched);
  one.id = 2;
  ASSERT_TRUE(sched.submit(one).ok());
  const Step step = run(sched);
  EXPECT_TRUE(step.encoded.empty());
  EXPECT_THAT(step.rows, ElementsAre("2: 9-10"));
  EXPECT_EQ(sched.encoder_cache().num_hits(), 0);
}

TEST(SchedulerPictures, AnEarlierSequenceTakesTheResultsOfALaterOne) {
  Limits l = picture_limits();
  l.max_num_tokens = 8;
  l.policy.chunking_policy = ChunkingPolicy::kEqualProgress;
  Scheduler sched(l);
  ASSERT_TRUE(sched.submit(with_pictures(1, 20, {picture("a", 8, 14)})).ok());
  ASSERT_TRUE(sched.submit(with_pictures(2, 20, {picture("b", 0, 6)})).ok());
  std::vector<std::string> encoded;
  while (!sched.idle())
    for (const std::string& key : run(sched).encoded) encoded.push_back(key);
  EXPECT_THAT(encoded, ElementsAre("b", "a", "b"));
}

// A prompt of 20 tokens, of which [6, 13) attend to one another, beside a longer one.
TEST(SchedulerPictures, NoRowEndsInsideAWholeSpan) {
  for (const ChunkingPolicy policy :
       {ChunkingPolicy::kFirstComeFirstServed, ChunkingPolicy::kEqualProgress})
    for (const int32_t most : {7, 8, 9, 11, 15, 64}) {
      Limits l = limits();
      l.max_num_tokens = most;
      l.policy.chunking_policy = policy;
      Scheduler sched(l);
      SequenceSpec whole = spec(1, 20, 2);
      whole.whole_spans = {{6, 13}};
      ASSERT_TRUE(sched.submit(whole).ok());
      ASSERT_TRUE(sched.submit(spec(2, 30, 2, 500)).ok());
      int32_t num_steps = 0;
      for (; !sched.idle() && num_steps < 100; ++num_steps) {
        for (const std::string& row : run(sched).rows) {
          int32_t id = 0, start = 0, end = 0;
          ASSERT_EQ(std::sscanf(row.c_str(), "%d: %d-%d", &id, &start, &end), 3);
          EXPECT_FALSE(id == 1 && end > 6 && end < 13) << most << ": " << row;
        }
      }
      EXPECT_LT(num_steps, 100) << most;
    }
}

TEST(SchedulerPictures, AWholeSpanWaitsForAllOfItsPictures) {
  Limits l = picture_limits();
  l.num_encoder_blocks = 3;
  Scheduler sched(l);
  SequenceSpec whole = with_pictures(1, 20, {picture("a", 2, 8), picture("b", 10, 14)});
  whole.whole_spans = {{0, 20}};
  ASSERT_TRUE(sched.submit(whole).ok());
  const Step first = run(sched), second = run(sched);
  EXPECT_THAT(first.encoded, ElementsAre("a"));
  EXPECT_TRUE(first.rows.empty());
  EXPECT_THAT(second.encoded, ElementsAre("b"));
  EXPECT_THAT(second.rows, ElementsAre("1: 0-20"));
  whole.id = 2;
  whole.encoder_inputs[1] = picture("b", 10, 18);
  EXPECT_THAT(std::string(sched.submit(whole).message()), HasSubstr("4 blocks of 4, there are 3"));
}

TEST(SchedulerPictures, AWholeSpanLargerThanAStepIsRefused) {
  Limits l = limits();
  l.max_num_tokens = 8;
  Scheduler sched(l);
  SequenceSpec whole = spec(1, 20);
  whole.whole_spans = {{2, 11}};
  EXPECT_THAT(std::string(sched.submit(whole).message()),
              HasSubstr("tokens [2, 11) attend to one another and need one step, which has 8 "
                        "tokens; raise max_num_tokens to at least 9"));
  l.max_num_tokens = 64;
  Scheduler other(l);
  whole.output.return_context_logits = true;
  EXPECT_THAT(std::string(other.submit(whole).message()),
              HasSubstr("1 tokens with logits; raise max_num_tokens to at least 9, or ask for"));
}

TEST(SchedulerPictures, APictureLargerThanThePoolIsRefused) {
  Limits l = picture_limits();
  l.max_encoder_length = l.max_encoder_tokens = 64;
  Scheduler sched(l);
  const Status status = sched.submit(with_pictures(1, 20, {picture("a", 2, 12)}));
  EXPECT_THAT(std::string(status.message()), HasSubstr("3 blocks of 4, there are 2"));
}

}  // namespace
}  // namespace nereid::sched
