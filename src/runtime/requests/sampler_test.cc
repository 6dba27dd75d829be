// The sampler and the runner's slot sampler on a real CPU stream: slot loads, histories, lists, two
// steps in flight, results, logits.
#include "runtime/requests/sampler.h"
#include "runtime/testing/edit_payload.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "exec/slot_sampler.h"
#include "kernels/open.h"
#include "sched/sequence.h"
#include "tensor/device.h"

namespace nereid::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kSampledVocab = 32, kSlots = 8, kMaxLength = 64;

std::vector<float> logits_row(int seed) {
  std::vector<float> x;
  for (int32_t id = 0; id < kSampledVocab; ++id)
    x.push_back(static_cast<float>((id * 13 + seed * 5) % 29) * 0.25f - 3);
  return x;
}

sched::SequenceSpec greedy_spec(std::vector<TokenId> prompt) {
  static RequestId id = 0;
  sched::SequenceSpec spec;
  spec.id = ++id;
  spec.prompt = std::move(prompt);
  spec.max_new_tokens = 10;
  return spec;
}

sched::SequenceSpec spec_with_log_probs(std::vector<TokenId> prompt) {
  sched::SequenceSpec spec = greedy_spec(std::move(prompt));
  spec.output.return_log_probs = true;
  spec.output.num_top_log_probs = 32;
  return spec;
}

sched::Sequence make(sched::SequenceSpec spec) { return {std::move(spec), kMaxLength, 16, 1}; }

// The row that samples the token of `position`.
sched::ScheduledRow row_at(sched::Sequence& sequence, int32_t slot, int32_t position) {
  return {
      .sequence = &sequence, .slot = slot, .start = position - 1, .num_tokens = 1, .samples = true};
}
sched::ScheduledRow row_of(sched::Sequence& sequence, int32_t slot) {
  return row_at(sequence, slot, sequence.num_prompt());
}

// Results with their own memory.
struct Copied {
  TokenId token;
  float log_prob, full_log_prob;
  std::vector<std::pair<TokenId, float>> top;
  bool operator==(const Copied&) const = default;

  float at(TokenId id) const {
    for (const auto& [token_id, value] : top)
      if (token_id == id) return value;
    return -INFINITY;
  }
};

class SamplerTest : public ::testing::Test {
 protected:
  SamplerTest() { reset(true); }

  void reset(bool normalize) {
    device_sampler_.reset();
    opened_ = kernels::open_device("cpu", {.num_threads = 1}).value();
    stream_ = opened_.device->create_stream().value();
    sampler_ = std::make_unique<Sampler>(Sampler::Options{
        .max_rows = kSlots, .vocab_size = kSampledVocab, .normalize_log_probs = normalize});
    device_sampler_ =
        exec::SlotSampler::create(
            *opened_.device, opened_.registry, {},
            {.max_rows = kSlots, .max_sequence_length = kMaxLength, .max_logits = kSlots},
            kSampledVocab)
            .value();
  }

  struct Flying {
    std::unique_ptr<Event> event;
    int32_t area = 0;
    std::vector<sched::ScheduledRow> rows;
    std::shared_ptr<std::vector<float>> logits;
  };

  // Submits a step over these logits, in order of rows. `drafts`: of the last row.
  Flying launch(const std::vector<sched::ScheduledRow>& rows,
                const std::vector<std::vector<float>>& logits,
                const std::vector<TokenId>& drafts = {}) {
    Flying step{.rows = rows, .logits = std::make_shared<std::vector<float>>()};
    for (const auto& x : logits) step.logits->insert(step.logits->end(), x.begin(), x.end());
    step.area = std::exchange(turn_, turn_ ^ 1);
    exec::StepMessage content;
    for (const sched::ScheduledRow& row : rows) {
      exec::StepRow out{.slot = row.slot,
                        .start = row.start,
                        .num_tokens = row.num_tokens,
                        .num_logits = row.num_logits()};
      sampler_->add(row, out, content);
      content.rows.push_back(out);
      content.tokens.resize(content.tokens.size() + static_cast<size_t>(out.num_tokens));
    }
    std::ranges::copy(drafts, content.tokens.end() - static_cast<ptrdiff_t>(drafts.size()));
    std::vector<std::byte> message;
    exec::encode(content, message);
    EXPECT_TRUE(device_sampler_->stage(exec::decode(message).value(), step.area).ok());
    step.event =
        *stream_->submit([area = step.area, data = step.logits->data(),
                          count = static_cast<int64_t>(logits.size()), this](Stream& s) -> Status {
          RETURN_IF_ERROR(device_sampler_->send(area, s));
          return device_sampler_->run(area, View::matrix(data, DType::kF32, count, kSampledVocab),
                                      slot_tokens_.data(), s);
        });
    return step;
  }

  std::vector<Copied> finish(const Flying& step) {
    EXPECT_TRUE(step.event->wait().ok());
    std::vector<Copied> copies;
    size_t index = 0;
    for (const exec::RowResult& result : device_sampler_->results(step.area)) {
      EXPECT_TRUE(result.status.ok()) << result.status;
      for (const sched::SampledTokens& d : sampler_->drawn(step.rows[index++], result)) {
        Copied& c = copies.emplace_back(Copied{d.token, d.log_prob, d.full_log_prob, {}});
        for (const TokenLogProb& t : d.top) c.top.push_back({t.token, t.log_prob});
      }
    }
    return copies;
  }

  std::vector<Copied> step(const std::vector<sched::ScheduledRow>& rows,
                           const std::vector<std::vector<float>>& logits) {
    return finish(launch(rows, logits));
  }

  kernels::OpenedDevice opened_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<exec::SlotSampler> device_sampler_;
  int32_t turn_ = 0;
  std::vector<int32_t> slot_tokens_ = std::vector<int32_t>(kSlots, -7);
};

std::vector<double> log_softmax(const std::vector<double>& x) {
  double sum = 0;
  for (double v : x) sum += std::exp(v);
  std::vector<double> out;
  for (double v : x) out.push_back(v - std::log(sum));
  return out;
}

TEST_F(SamplerTest, TheTwoOrdersDifferAsTheirFormulas) {
  constexpr float kTemperature = 0.5f, kPresence = 1.5f;
  for (const auto order : {SamplingOrder::kTemperatureFirst, SamplingOrder::kTemperatureLast}) {
    sched::SequenceSpec spec = spec_with_log_probs({3, 4, 5});
    spec.sampling.order = order;
    spec.sampling.temperature = kTemperature;
    spec.sampling.top_p = 1;
    spec.sampling.presence_penalty = kPresence;
    spec.sampling.repetition_penalty = 1.4f;
    sched::Sequence sequence = make(spec);
    const auto got = step({row_of(sequence, 2)}, {logits_row(1)});
    std::vector<double> want;
    for (int32_t id = 0; id < kSampledVocab; ++id) {
      double l = logits_row(1)[id];
      if (order == SamplingOrder::kTemperatureFirst) l /= kTemperature;
      if (id >= 3 && id <= 5) l = (l < 0 ? l * 1.4 : l / 1.4) - kPresence;
      if (order == SamplingOrder::kTemperatureLast) l /= kTemperature;
      want.push_back(l);
    }
    want = log_softmax(want);
    ASSERT_EQ(got[0].top.size(), size_t{kSampledVocab});
    for (const auto& [id, value] : got[0].top) EXPECT_NEAR(value, want[id], 1e-5) << id;
  }
}

TEST_F(SamplerTest, DrawnTokensArePenalisedBeforeTheHostKnowsThem) {
  sched::SequenceSpec spec = spec_with_log_probs({1});
  spec.sampling.frequency_penalty = 100;
  sched::Sequence sequence = make(spec);
  std::vector<TokenId> drawn;
  for (int32_t position = 1; position <= 6; ++position)
    drawn.push_back(step({row_at(sequence, 0, position)}, {logits_row(2)})[0].token);
  std::ranges::sort(drawn);
  EXPECT_EQ(std::ranges::adjacent_find(drawn), drawn.end()) << "a token came twice";
}

// Two drafts are accepted, the third is rejected: tokens equal those of single steps, and the slot
// continues behind them.
TEST_F(SamplerTest, ARowWithDraftsDrawsWhatStepsOneByOneDraw) {
  sched::SequenceSpec spec = spec_with_log_probs({1, 2, 3});
  spec.sampling.temperature = 1.5f;
  spec.sampling.top_k = 20;
  spec.sampling.seed = 3;
  spec.sampling.frequency_penalty = 2;
  spec.sampling.no_repeat_ngram_size = 1;
  spec.sampling.min_tokens = 2;
  spec.end_ids = {5, 6, 7, 8};
  spec.output.log_probs_mode = LogProbsMode::kRaw;
  sched::Sequence one_by_one = make(spec), drafted = make(spec);
  std::vector<Copied> want;
  std::vector<TokenId> drafts;
  for (int32_t i = 0; i < 5; ++i) {
    want.push_back(step({row_at(one_by_one, 0, 3 + i)}, {logits_row(i)})[0]);
    drafts.push_back(want.back().token);
  }
  drafts.resize(3);
  drafts[2] = (drafts[2] + 1) % kSampledVocab;
  reset(true);
  sched::ScheduledRow row{.sequence = &drafted,
                          .slot = 4,
                          .start = 2,
                          .num_tokens = 4,
                          .samples = true,
                          .num_drafts = 3,
                          .needs_host = true};
  sched::ScheduledRow other = row_at(one_by_one, 1, 3);
  const auto got = finish(
      launch({other, row},
             {logits_row(0), logits_row(0), logits_row(1), logits_row(2), logits_row(3)}, drafts));
  ASSERT_EQ(got.size(), 4u) << "one of the row before, three of this one";
  EXPECT_EQ(got[0], want[0]);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(got[1 + i], want[i]) << i;
  EXPECT_EQ(slot_tokens_[4], want[2].token);
  for (int32_t i = 3; i < 5; ++i)
    EXPECT_EQ(step({row_at(drafted, 4, 3 + i)}, {logits_row(i)})[0], want[static_cast<size_t>(i)]);
}

// The position fails when it is the first to be sampled.
TEST_F(SamplerTest, ADraftBehindWhichNothingCanBeDrawnDoesNotHold) {
  sched::Sequence sequence = make(greedy_spec({1, 2}));
  const std::vector<float> broken(kSampledVocab, NAN);
  const TokenId first = step({row_of(sequence, 0)}, {logits_row(1)})[0].token;
  reset(true);
  sched::ScheduledRow row{.sequence = &sequence,
                          .slot = 0,
                          .start = 1,
                          .num_tokens = 2,
                          .samples = true,
                          .num_drafts = 1};
  const auto got = finish(launch({row}, {logits_row(1), broken}, {first}));
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].token, first);
  EXPECT_EQ(step({row_at(sequence, 0, 3)}, {broken})[0].token, -1);
}

TEST_F(SamplerTest, ASlotIsLoadedAgainForAnotherSequence) {
  sched::SequenceSpec spec = spec_with_log_probs({1, 2});
  spec.sampling.repetition_penalty = 2;
  edit_payload(spec).logit_bias = {{7, 50.0f}};
  sched::Sequence biased = make(spec);
  sched::Sequence plain = make(spec_with_log_probs({1, 2}));
  EXPECT_EQ(step({row_of(biased, 3)}, {logits_row(3)})[0].token, 7);
  EXPECT_EQ(slot_tokens_[3], 7);
  const auto alone = step({row_of(plain, 4)}, {logits_row(3)});
  EXPECT_EQ(step({row_of(plain, 3)}, {logits_row(3)}), alone);
  // After a preemption the same token is sampled again.
  const auto first = step({row_of(biased, 5)}, {logits_row(3)});
  step({row_at(biased, 5, 3)}, {logits_row(4)});
  EXPECT_EQ(step({row_of(biased, 5)}, {logits_row(3)}), first);
}

TEST_F(SamplerTest, ListsGrowWhileTheStepBeforeIsInFlight) {
  std::vector<sched::Sequence> sequences;
  for (int32_t size : {2, 20, 200, 1000}) {
    sched::SequenceSpec spec = greedy_spec({1, 2});
    SequencePayload& payload = edit_payload(spec);
    for (int32_t i = 0; i < size; ++i) payload.bad_words.push_back({9, 9});
    payload.bad_words.push_back({1, 2, size % kSampledVocab});
    payload.logit_bias = {{size % kSampledVocab, 1000.0f}, {(size + 1) % kSampledVocab, 900.0f}};
    spec.sampling.no_repeat_ngram_size = 1;  // bans 1 and 2
    sequences.push_back(make(spec));
  }
  std::vector<Flying> flying;
  std::vector<TokenId> drawn;
  for (sched::Sequence& sequence : sequences) {
    if (flying.size() == 2) {
      drawn.push_back(finish(flying[0])[0].token);
      flying.erase(flying.begin());
    }
    flying.push_back(launch({row_of(sequence, 1)}, {logits_row(1)}));
  }
  for (const Flying& step : flying) drawn.push_back(finish(step)[0].token);
  // Each sequence's own bad word bans its most biased id.
  EXPECT_THAT(drawn, ElementsAre(3, 21, 201 % kSampledVocab, 1001 % kSampledVocab));
}

TEST_F(SamplerTest, RowsAloneAndTogetherGiveTheSameBits) {
  std::vector<sched::Sequence> sequences;
  for (int i = 0; i < kSlots; ++i) {
    sched::SequenceSpec spec = spec_with_log_probs({1, 2, 3, 1, 2});
    if (i == 0) spec = greedy_spec({4});
    if (i % 2) spec.sampling.top_k = 6;
    if (i % 3) spec.sampling.top_p = 0.8f;
    if (i % 4 == 1) spec.sampling.repetition_penalty = 1.3f;
    if (i % 4 == 2) spec.sampling.min_p = 0.1f;
    if (i % 4 == 3) spec.sampling.temperature = 1.7f, spec.sampling.no_repeat_ngram_size = 3;
    if (i == 5) spec.output.log_probs_mode = LogProbsMode::kRaw;
    if (i == 6) edit_payload(spec).embedding_bias.assign(kSampledVocab, 0.5f);
    spec.sampling.seed = static_cast<uint64_t>(i);
    sequences.push_back(make(spec));
  }
  std::vector<sched::ScheduledRow> rows;
  std::vector<std::vector<float>> logits;
  for (int i = 0; i < kSlots; ++i) {
    rows.push_back(row_of(sequences[static_cast<size_t>(i)], i));
    logits.push_back(logits_row(i));
  }
  const std::vector<Copied> together = step(rows, logits);
  reset(true);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].slot = static_cast<int32_t>(rows.size() - 1 - i);
    EXPECT_EQ(step({rows[i]}, {logits[i]})[0], together[i]) << i;
  }
}

TEST_F(SamplerTest, EndIdsAndStopTokensAreBannedBeforeMinTokens) {
  sched::SequenceSpec spec = spec_with_log_probs({1, 2});
  spec.sampling.min_tokens = 2;
  spec.end_ids = {8, 9};
  spec.stop_words = {{10}, {11, 12}};
  sched::Sequence sequence = make(spec);
  for (int32_t position = 2; position <= 4; ++position) {
    const Copied got = step({row_at(sequence, 0, position)}, {logits_row(1)})[0];
    for (TokenId id : {8, 9, 10})
      EXPECT_EQ(got.at(id) == -INFINITY, position < 4) << id << " at " << position;
    for (TokenId id : {11, 12}) EXPECT_GT(got.at(id), -INFINITY);
  }
}

TEST_F(SamplerTest, NormalisesReportedLogProbsOnlyWhenToldTo) {
  sched::SequenceSpec spec = spec_with_log_probs({1});
  spec.sampling.top_k = 1;
  for (const bool normalize : {true, false}) {
    reset(normalize);
    sched::Sequence sequence = make(spec);
    const Copied got = step({row_of(sequence, 0)}, {logits_row(1)})[0];
    EXPECT_EQ(got.full_log_prob, got.at(got.token));
    EXPECT_LT(got.full_log_prob, -0.1f);
    EXPECT_FLOAT_EQ(got.log_prob, normalize ? 0 : got.full_log_prob);
  }
}

TEST_F(SamplerTest, RawLogProbsIgnoreEverythingThatWasDoneToTheLogits) {
  sched::SequenceSpec spec = spec_with_log_probs({1, 2});
  spec.output.log_probs_mode = LogProbsMode::kRaw;
  sched::Sequence plain = make(spec);
  const Copied want = step({row_of(plain, 0)}, {logits_row(1)})[0];
  spec.id += 1000;
  spec.sampling.temperature = 0.3f;
  spec.sampling.top_k = 3;
  edit_payload(spec).logit_bias = {{20, 60.0f}};
  sched::Sequence biased = make(spec);
  const Copied got = step({row_of(biased, 1)}, {logits_row(1)})[0];
  EXPECT_EQ(got.top, want.top);
  EXPECT_EQ(got.token, 20);
  EXPECT_EQ(got.log_prob, want.at(20));
}

TEST_F(SamplerTest, BeamsGetTheLikeliestTokensAndDrawNone) {
  sched::SequenceSpec spec = greedy_spec({1, 2});
  spec.sampling.beam_width = 3;
  spec.sampling.top_k = 2;
  sched::Sequence sequence = make(spec);
  const std::vector<float> x = logits_row(4);
  const Copied got = step({row_of(sequence, 6)}, {x})[0];
  ASSERT_EQ(got.top.size(), 6u);
  const std::vector<double> want = log_softmax({x.begin(), x.end()});
  for (const auto& [id, value] : got.top) {
    EXPECT_NEAR(value, want[id], 1e-5);
    EXPECT_LT(std::ranges::count_if(want, [&, v = value](double w) { return w > v + 1e-4; }), 6);
  }
  EXPECT_EQ(got.token, got.top[0].first);
  EXPECT_EQ(slot_tokens_[6], -7);
}

TEST_F(SamplerTest, LogitsThatAreNotFiniteFailOnlyTheirRow) {
  sched::Sequence a = make(greedy_spec({1})), b = make(spec_with_log_probs({1}));
  std::vector<float> broken = logits_row(1);
  broken[5] = NAN;
  const auto got = step({row_of(a, 0), row_of(b, 1)}, {broken, logits_row(1)});
  EXPECT_EQ(got[0].token, -1);
  EXPECT_GE(got[1].token, 0);
}

TEST_F(SamplerTest, ContextAndGenerationLogitsAreTheRawOnes) {
  sched::SequenceSpec spec = greedy_spec({1, 2, 3, 4});
  spec.output.return_context_logits = true;
  spec.output.return_generation_logits = true;
  edit_payload(spec).logit_bias = {{2, 30.0f}};
  sched::Sequence wanted = make(spec), other = make(greedy_spec({1, 2}));
  sched::ScheduledRow chunk{.sequence = &wanted, .slot = 0, .num_tokens = 3, .all_logits = true};
  const auto first = launch({row_of(other, 1), chunk},
                            {logits_row(0), logits_row(1), logits_row(2), logits_row(3)});
  const auto copied = finish(first);
  EXPECT_EQ(copied.size(), 1u);
  const auto logits = [&](const Flying& step, size_t i) {
    return device_sampler_->results(step.area)[i].logits;
  };
  ASSERT_EQ(logits(first, 1).size(), 3u * kSampledVocab);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(std::ranges::equal(logits(first, 1).subspan(i * kSampledVocab, kSampledVocab),
                                   logits_row(i + 1)));
  EXPECT_THAT(logits(first, 0), IsEmpty());

  sched::ScheduledRow last{.sequence = &wanted,
                           .slot = 0,
                           .start = 3,
                           .num_tokens = 1,
                           .samples = true,
                           .all_logits = true};
  const auto second = launch({last, row_of(other, 1)}, {logits_row(5), logits_row(6)});
  EXPECT_EQ(finish(second)[0].token, 2);
  EXPECT_TRUE(std::ranges::equal(logits(second, 0), logits_row(5)));
  EXPECT_THAT(logits(second, 1), IsEmpty());
  const auto third = launch({row_at(wanted, 0, 5)}, {logits_row(7)});
  finish(third);
  EXPECT_TRUE(std::ranges::equal(logits(third, 0), logits_row(7)));
}

}  // namespace
}  // namespace nereid::runtime
