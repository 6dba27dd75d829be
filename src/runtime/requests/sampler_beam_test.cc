// Beam search with sampling state that depends on each beam's own tokens.
#include <gmock/gmock.h>

#include <set>

#include "runtime/testing/engine_fixture.h"

namespace nereid::runtime {
namespace {

using ::testing::SizeIs;

constexpr int32_t kWidth = 4, kLength = 20;

Request without_repetition(std::vector<TokenId> prompt) {
  Request r = request(std::move(prompt), kLength);
  r.sampling.beam_width = kWidth;
  r.sampling.no_repeat_ngram_size = 1;
  r.output.return_log_probs = true;
  return r;
}

ExecutorConfig with_beams() {
  ExecutorConfig config;
  config.max_beam_width = kWidth;
  config.max_batch_size = 8;
  return config;
}

void expect_no_repetition(const Received& got, const std::vector<TokenId>& prompt) {
  ASSERT_TRUE(got.last.status.ok()) << got.last.status;
  ASSERT_THAT(got.last.outputs, SizeIs(kWidth));
  for (const SequenceOutput& beam : got.last.outputs) {
    ASSERT_THAT(beam.token_ids, SizeIs(kLength));
    std::set<TokenId> seen(prompt.begin(), prompt.end());
    for (TokenId token : beam.token_ids) EXPECT_TRUE(seen.insert(token).second) << token;
  }
}

// Beams take over each other's tokens at nearly every step; histories must follow.
TEST(SamplerBeams, AreEachBannedWhatTheySaidThemselves) {
  Fixture f(roomy(), with_beams());
  const std::vector<TokenId> first = {1, 2, 3}, second = {9, 8};
  const RequestId a = f.client.send(*f.executor, without_repetition(first));
  const RequestId b = f.client.send(*f.executor, without_repetition(second));
  expect_no_repetition(f.client.wait(a), first);
  expect_no_repetition(f.client.wait(b), second);
  f.expect_counts_add_up();
}

// The same prompt with other slots and neighbours.
TEST(SamplerBeams, GiveTheSameAloneAndBesideOthers) {
  Fixture alone(roomy(), with_beams()), together(roomy(), with_beams());
  const auto wish = [](TokenId id) {
    Request r = without_repetition({id, 5, id});
    r.sampling.no_repeat_ngram_size = 2;
    r.sampling.repetition_penalty = 1.3f;
    r.sampling.frequency_penalty = 0.4f;
    return r;
  };
  std::vector<RequestId> ids;
  for (TokenId id = 10; id < 16; ++id)
    ids.push_back(together.client.send(*together.executor, wish(id)));
  for (size_t i = 0; i < ids.size(); ++i) {
    const Received want = alone.client.run(*alone.executor, wish(10 + static_cast<TokenId>(i)));
    const Received got = together.client.wait(ids[i]);
    ASSERT_THAT(got.last.outputs, SizeIs(kWidth));
    for (size_t b = 0; b < kWidth; ++b) {
      EXPECT_EQ(got.last.outputs[b].token_ids, want.last.outputs[b].token_ids);
      EXPECT_EQ(got.last.outputs[b].log_probs, want.last.outputs[b].log_probs);
    }
  }
}

}  // namespace
}  // namespace nereid::runtime
