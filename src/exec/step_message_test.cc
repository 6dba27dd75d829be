// Message encoding; foreign bytes are refused or harmless.
#include "exec/step_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "exec/slot_sampler.h"
#include "exec/step_data.h"
#include "exec/test_harness.h"
#include "kernels/open.h"

namespace nereid::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RunnerLimits kMessageLimits = [] {
  RunnerLimits limits{3, 8, 20, 10, 4};
  limits.has_trees = true;
  return limits;
}();
constexpr int32_t kMessageVocab = 16;

// Three rows, one with an external embedding and a draft; copies; slots with lists, with a history.
StepMessage full_step() {
  const Ids tokens = {7, kTokenExternal, 9}, one = {kTokenOnDevice}, blocks = {5, 6, 7};
  StepMessage step =
      step_of({{2, 3, tokens, blocks, 1}, {0, 0, one, blocks, 0}, {1, 9, one, blocks, 1}}, 1,
              kMessageLimits.block_tokens, {{1, 2, 0}, {3, 4, 0}});
  step.onboards = {{16, 3, 0}};
  step.embeddings = {to_bf16(1), to_bf16(-2)};
  step.rows[0].num_drafts = 1;
  step.rows[0].num_logits = 2;
  step.rows[0].has_tree = 1;
  step.parents = {kNoParent};
  step.loads[0].params.num_bad_words = 2;
  step.loads[0].params.num_bad_tokens = 3;
  step.loads[0].params.num_end_ids = 1;
  step.loads[0].num_cells = 6;
  step.cells = {4, 1, 3, 7, 8, 9};
  step.loads[1].params.keeps_history = 1;
  step.loads[1].params.ngram = 2;
  step.histories = {{1, 10}};
  step.history_tokens = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  step.rows[2].has_mask = 1;
  return step;
}

Masks full_masks() {
  Masks masks;
  masks.rows = {2};
  masks.words = {0xfff0};
  return masks;
}

template <class Arrays>
std::vector<std::byte> encoded(const Arrays& arrays) {
  std::vector<std::byte> message;
  encode(arrays, message);
  return message;
}

TEST(StepMessage, SurvivesItsBytes) {
  const StepMessage step = full_step();
  const std::vector<std::byte> message = encoded(step);
  const StepMessageView view = decode(message).value();
  ASSERT_EQ(view.rows.size(), 3u);
  EXPECT_EQ(view.rows[0].num_tokens, 3);
  EXPECT_EQ(view.rows[0].first_sampled(), 5);
  EXPECT_THAT(view.parents, ElementsAre(kNoParent));
  EXPECT_EQ(view.rows[2].end(), 10);
  EXPECT_THAT(view.tokens, ElementsAre(7, -2, 9, -1, -1));
  ASSERT_EQ(view.embeddings.size(), 2u);
  EXPECT_EQ(to_float(view.embeddings[1]), -2);
  EXPECT_THAT(view.blocks, ElementsAre(5, 6, 5, 5, 6, 7));
  ASSERT_EQ(view.copies.size(), 2u);
  EXPECT_EQ(view.copies[1].to, 4);
  ASSERT_EQ(view.onboards.size(), 1u);
  EXPECT_EQ(view.onboards[0].from, 16);
  ASSERT_EQ(view.loads.size(), 2u);
  EXPECT_EQ(view.loads[0].params.num_bad_words, 2);
  EXPECT_EQ(view.loads[1].slot, 1);
  EXPECT_THAT(view.cells, ElementsAre(4, 1, 3, 7, 8, 9));
  EXPECT_EQ(view.histories[0].num_tokens, 10);
  EXPECT_EQ(view.history_tokens.size(), 10u);
  EXPECT_EQ(view.rows[2].has_mask, 1);
  const std::vector<std::byte> mask_message = encoded(full_masks());
  const MaskView masks = decode_masks(mask_message).value();
  EXPECT_THAT(masks.rows, ElementsAre(2));
  EXPECT_THAT(masks.words, ElementsAre(0xfff0u));
  EXPECT_TRUE(decode(encoded(StepMessage())).value().rows.empty());
}

TEST(StepMessage, RefusesBytesThatAreNone) {
  const std::vector<std::byte> good = encoded(full_step()), masks = encoded(full_masks());
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode(std::span(good).first(size)).ok()) << size;
  for (size_t size = 0; size < masks.size(); ++size)
    EXPECT_FALSE(decode_masks(std::span(masks).first(size)).ok()) << size;
  EXPECT_FALSE(decode(masks).ok());
  EXPECT_THAT(decode_masks(good).status().ToString(), HasSubstr("is not a message of masks"));
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 8);
  EXPECT_THAT(decode(longer).status().ToString(), HasSubstr("does not hold what its counts say"));
  EXPECT_THAT(decode(std::span(longer).subspan(4)).status().ToString(), HasSubstr("an address"));
  for (const size_t at : {0, 4}) {
    std::vector<std::byte> other = good;
    other[at] ^= std::byte{2};
    EXPECT_THAT(decode(other).status().ToString(), HasSubstr("is not a message of"));
  }
}

class SlotSamplerTest : public ::testing::Test {
 protected:
  // Status of staging, or of its i-th row.
  Status staged(const StepMessage& step) {
    const std::vector<std::byte> message = encoded(step);
    return sampler_->stage(decode(message).value(), 0);
  }
  // The error of full_step()'s masks after `change`.
  std::string masks_error(const std::function<void(Masks&)>& change) {
    Masks masks = full_masks();
    change(masks);
    const std::vector<std::byte> message = encoded(masks);
    return sampler_->set_masks(decode_masks(message).value(), 0).ToString();
  }
  std::string error(const std::function<void(StepMessage&)>& change) {
    StepMessage step = full_step();
    change(step);
    return staged(step).ToString();
  }

  kernels::OpenedDevice opened_ = kernels::open_device("cpu", {.num_threads = 1}).value();
  std::unique_ptr<SlotSampler> sampler_ =
      SlotSampler::create(*opened_.device, opened_.registry, {}, kMessageLimits, kMessageVocab)
          .value();
};

TEST_F(SlotSamplerTest, RefusesWhatWouldReachOutside) {
  EXPECT_TRUE(staged(full_step()).ok());
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].slot = 3; }), HasSubstr("load: slot 3"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].slot = -1; }), HasSubstr("load: slot -1"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].num_cells = 5; }),
              HasSubstr("load of slot 2: num_cells 5 is not in [6, 6]"));
  EXPECT_THAT(error([](StepMessage& s) { s.cells.pop_back(); }), HasSubstr("6 is not in [0, 5]"));
  EXPECT_THAT(error([](StepMessage& s) { s.cells.push_back(0); }),
              HasSubstr("1 cells and 0 tokens"));
  EXPECT_THAT(error([](StepMessage& s) { s.cells[2] = 4; }), HasSubstr("end of a bad word 4"));
  EXPECT_THAT(error([](StepMessage& s) { s.cells[1] = -1; }), HasSubstr("end of a bad word -1"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].params.lists = 8; }), HasSubstr("lists 8"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].params.num_top = 33; }),
              HasSubstr("num_top 33"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].params.num_bad_words = -2; }),
              HasSubstr("num_bad_words -2"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].params.has_dense_bias = 1; }),
              HasSubstr("is not in [22, 22]"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].params.penalty_begin = -1; }),
              HasSubstr("penalty_begin -1"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].params.min_p_gap = 1; }),
              HasSubstr("min_p_gap 1"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].params.repetition = 0; }),
              HasSubstr("repetition 0"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads[0].params.top_p = NAN; }), HasSubstr("is nan"));
  EXPECT_THAT(error([](StepMessage& s) { s.histories[0].slot = 3; }), HasSubstr("history: slot 3"));
  EXPECT_THAT(error([](StepMessage& s) { s.histories[0].num_tokens = 21; }),
              HasSubstr("tokens 21"));
  EXPECT_THAT(error([](StepMessage& s) { s.histories[0].num_tokens = 11; }), HasSubstr("[0, 10]"));
  EXPECT_THAT(error([](StepMessage& s) { s.history_tokens[3] = -1; }), HasSubstr("token -1"));
  EXPECT_THAT(error([](StepMessage& s) { s.loads.assign(4, s.loads[1]); }),
              HasSubstr("number of loads"));
  EXPECT_THAT(error([](StepMessage& s) { s.rows[2].slot = 2; }),
              HasSubstr("two rows draw for slot 2"));
  EXPECT_THAT(error([](StepMessage& s) { s.rows[1].has_mask = 1; }),
              HasSubstr("has_mask 1 of a row"));
  EXPECT_THAT(error([](StepMessage& s) { s.rows[0].has_mask = 1; }), HasSubstr("and has_tree 1"));
  EXPECT_TRUE(staged(full_step()).ok()) << "nothing is left of what was refused";
}

TEST_F(SlotSamplerTest, RefusesMasksThatAreNotTheStepS) {
  ASSERT_TRUE(staged(full_step()).ok());
  EXPECT_THAT(masks_error([](Masks& m) { m.words.clear(); }),
              HasSubstr("0 words of masks; 1 masks need 1"));
  EXPECT_THAT(masks_error([](Masks& m) { m.rows[0] = 1; }),
              HasSubstr("row 1, whose has_mask is 0"));
  EXPECT_THAT(masks_error([](Masks& m) { m.rows[0] = 3; }), HasSubstr("row 3 behind that of"));
  EXPECT_THAT(masks_error([](Masks& m) { m.rows[0] = -1; }), HasSubstr("row -1 behind that of"));
  EXPECT_THAT(masks_error([](Masks& m) { m.rows = {2, 2}; }), HasSubstr("row 2 behind that of"));
  EXPECT_EQ(masks_error([](Masks&) {}), "OK");
  EXPECT_THAT(masks_error([](Masks&) {}), HasSubstr("without masked rows"));
}

TEST_F(SlotSamplerTest, RowsWhoseEmbeddingsAreNotThereFailAlone) {
  const std::vector<std::byte> message = encoded(full_step());
  ASSERT_TRUE(sampler_->stage(decode(message).value(), 0, resource_exhausted("no room")).ok());
  const StepResult results = sampler_->results(0);
  EXPECT_THAT(results[0].status.ToString(), HasSubstr("no room"));
  EXPECT_TRUE(results[1].status.ok());
  EXPECT_TRUE(results[2].status.ok());
}

TEST_F(SlotSamplerTest, BeamsHaveNoDrafts) {
  StepMessage step = full_step();
  step.loads[0].params.draws = 0;
  ASSERT_TRUE(staged(step).ok());
  const Status status = sampler_->results(0)[0].status;
  EXPECT_THAT(status.ToString(), HasSubstr("1 drafts of a slot that does not sample"));
}

TEST_F(SlotSamplerTest, DrawsWhatTheMaskAllows) {
  const auto stream = opened_.device->create_stream().value();
  constexpr uint32_t kNone = 0;  // the row gets no mask
  for (const uint32_t allowed : {5u, 11u, kNone}) {
    ASSERT_TRUE(staged(full_step()).ok());
    EXPECT_EQ(masks_error([&](Masks& m) {
                if (allowed == kNone) m.clear();
                if (allowed != kNone) m.words = {1u << allowed};
              }),
              "OK");
    std::vector<float> logits(3 * kMessageVocab);
    Ids slot_tokens(kMessageLimits.max_rows);
    auto event = stream->submit([&](Stream& s) -> Status {
      RETURN_IF_ERROR(sampler_->send(0, s));
      return sampler_->run(0, View::matrix(logits.data(), DType::kF32, 3, kMessageVocab),
                           slot_tokens.data(), s);
    });
    ASSERT_TRUE((*event)->wait().ok());
    EXPECT_EQ(sampler_->results(0)[2].drawn[0].token, static_cast<int32_t>(allowed));
    EXPECT_EQ(slot_tokens[1], static_cast<int32_t>(allowed));
  }
}

// Random words of messages are replaced; messages that pass the checks are executed.
TEST_F(SlotSamplerTest, ForeignMessagesDoNoHarm) {
  const std::vector<std::byte> good = encoded(full_step());
  const std::vector<CacheGroup> groups(1);
  std::vector<std::byte> block(StepData::max_bytes(kMessageLimits, 1) + 64);
  const auto stream = opened_.device->create_stream().value();
  std::vector<float> logits(static_cast<size_t>(kMessageLimits.max_rows) * kMessageVocab);
  Ids slot_tokens(kMessageLimits.max_rows);
  std::mt19937 random(1);
  const int32_t values[] = {
      -1, 0, 1, 2, 3, 4, 7, 16, 100, 0x7fffffff, std::numeric_limits<int32_t>::min(), 0x7f800000};
  int num_run = 0;
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> message = good;
    for (int changes = 1 + static_cast<int>(random() % 2); changes > 0; --changes)
      std::memcpy(&message[random() % (message.size() / 4) * 4],
                  &values[random() % std::size(values)], 4);
    const auto view = decode(message);
    if (!view.ok()) continue;
    const auto data = StepData::pack(*view, groups, kMessageLimits, kMessageVocab, block.data());
    if (!data.ok() || !sampler_->stage(*view, 0).ok()) continue;
    if (std::ranges::any_of(view->rows, [](const StepRow& row) { return row.has_mask != 0; })) {
      std::vector<std::byte> masks = encoded(full_masks());
      if (random() % 2)
        std::memcpy(&masks[random() % (masks.size() / 4) * 4],
                    &values[random() % std::size(values)], 4);
      const auto mask_view = decode_masks(masks);
      if (!mask_view.ok() || !sampler_->set_masks(*mask_view, 0).ok()) continue;
    }
    ++num_run;
    for (float& x : logits) x = static_cast<float>(random() % 64);
    auto event = stream->submit([&](Stream& s) -> Status {
      RETURN_IF_ERROR(sampler_->send(0, s));
      return sampler_->run(
          0, View::matrix(logits.data(), DType::kF32, data->num_logits, kMessageVocab),
          slot_tokens.data(), s);
    });
    ASSERT_TRUE((*event)->wait().ok());
    for (const RowResult& row : sampler_->results(0))
      for (const kernels::SampleResult& drawn : row.drawn) EXPECT_LT(drawn.token, kMessageVocab);
  }
  EXPECT_GT(num_run, 2000);
}

}  // namespace
}  // namespace nereid::exec
