#include "runtime/outputs/batch_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/testing/source_dir.h"
#include "nereid/executor.h"
#include "runtime/testing/test_client.h"

namespace nereid::runtime {
namespace {

using namespace std::chrono_literals;  // NOLINT: literals
using Kind = BatchSpan::Kind;

constexpr Time kRecordBegin = Time(1000s);

class BatchRecorderTest : public ::testing::Test {
 protected:
  void ran(RequestId id, bool is_prefill, int32_t tokens, Duration begin, Duration end) {
    const BatchRecorder::Row row{id, is_prefill, tokens};
    recorder_.ran({&row, 1}, kRecordBegin + begin, kRecordBegin + end);
  }
  void seen(RequestId id, bool waits, bool was_started, Duration now) {
    recorder_.seen(id, kRecordBegin, 900, waits, was_started, kRecordBegin + now);
  }
  static std::string text(const BatchSequence& sequence) {
    std::string out;
    for (const BatchSpan& span : sequence.spans)
      out += fmt::format("{}:{:.0f}-{:.0f}({}) ", static_cast<int>(span.kind), span.begin, span.end,
                         span.tokens);
    return out;
  }
  BatchRecorder recorder_;
};

TEST_F(BatchRecorderTest, RecordsWhileSomebodyAsks) {
  EXPECT_FALSE(recorder_.is_recording(kRecordBegin));
  recorder_.take(kRecordBegin);
  EXPECT_TRUE(recorder_.is_recording(kRecordBegin + 9s));
  EXPECT_FALSE(recorder_.is_recording(kRecordBegin + 10s));
  recorder_.take(kRecordBegin + 20s);
  EXPECT_TRUE(recorder_.is_recording(kRecordBegin + 29s));
}

TEST_F(BatchRecorderTest, ASequenceWaitsComputesItsPromptDecodesAndPauses) {
  seen(7, true, false, 1s);
  seen(7, true, false, 2s);
  seen(7, false, true, 2s);
  ran(7, true, 512, 2s, 3s);
  ran(7, true, 388, 3s, 4s);
  ran(7, false, 1, 4s, 5s);
  ran(7, false, 3, 5s, 6s);
  seen(7, true, true, 8s);
  ran(7, false, 1, 8s, 9s);
  recorder_.generated(7, 5);
  recorder_.ended(7);
  const BatchTimeline timeline = recorder_.take(kRecordBegin + 10s);
  ASSERT_EQ(timeline.sequences.size(), 1u);
  const BatchSequence& s = timeline.sequences[0];
  EXPECT_EQ(text(s), "0:10-8(0) 1:8-7(512) 1:7-6(388) 2:6-4(4) 3:4-2(0) 2:2-1(1) ");
  EXPECT_EQ(s.prompt_tokens, 900);
  EXPECT_EQ(s.generated_tokens, 5);
  EXPECT_TRUE(s.ended);
  const json::value json = parse_json(to_json(timeline)).value();
  EXPECT_EQ(json::serialize(json.at("sequences").at(0).at("spans").at(1)),
            R"(["prefill",8000,7000,512])");
  EXPECT_TRUE(recorder_.take(kRecordBegin + 70s).sequences.empty())
      << "its last span ended a minute ago";
}

TEST_F(BatchRecorderTest, OverlappedStepsDoNotOverlapInABar) {
  seen(1, false, true, 0s);
  ran(1, true, 4, 0s, 3s);
  ran(1, false, 1, 1s, 5s);
  const BatchTimeline timeline = recorder_.take(kRecordBegin + 5s);
  EXPECT_EQ(text(timeline.sequences.at(0)), "1:5-2(4) 2:2-0(1) ");
}

TEST_F(BatchRecorderTest, TheNumberOfSpansIsBounded) {
  seen(1, false, true, 0s);
  const auto count = static_cast<int>(kMaxBatchSpans) + 10;
  for (int i = 0; i < count; ++i) ran(1, true, 2, i * 10ms, (i + 1) * 10ms);
  const BatchTimeline timeline = recorder_.take(kRecordBegin + 1s);
  const BatchSequence& s = timeline.sequences.at(0);
  ASSERT_EQ(s.spans.size(), kMaxBatchSpans);
  int32_t tokens = 0;
  for (const BatchSpan& span : s.spans) tokens += span.tokens;
  EXPECT_EQ(tokens, 2 * count);
  EXPECT_DOUBLE_EQ(s.spans[0].begin, 1);
}

TEST_F(BatchRecorderTest, TheNumberOfSequencesIsBounded) {
  const auto most = static_cast<RequestId>(kMaxBatchSequences);
  for (int round = 0; round < 2; ++round)
    for (RequestId id = 1; id <= most + 3; ++id) seen(id, true, false, 1s);
  EXPECT_EQ(recorder_.take(kRecordBegin + 2s).sequences.size(), kMaxBatchSequences);
  EXPECT_EQ(recorder_.take(kRecordBegin + 2s).num_left_out, 3);
  recorder_.ended(5);
  seen(most + 4, true, false, 2s);  // takes the place of one that has ended
  const BatchTimeline timeline = recorder_.take(kRecordBegin + 2s);
  EXPECT_EQ(timeline.num_left_out, 3);
  EXPECT_EQ(timeline.sequences.back().id, most + 4);
  recorder_.stop();
  EXPECT_TRUE(recorder_.take(kRecordBegin + 2s).sequences.empty());
}

constexpr int32_t kTimelinePrompt = 21, kTimelineChunk = 8, kTimelineTokens = 6;

class BatchTimelineTest : public ::testing::Test {
 protected:
  BatchTimelineTest() {
    ExecutorConfig config;
    config.device = "cpu";
    config.num_threads = 1;
    config.max_num_tokens = kTimelineChunk;
    config.max_batch_size = 1;
    config.kv_cache.enable_block_reuse = false;
    config.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_batch_timeline_test";
    executor_ = Executor::create(std::filesystem::path(source_dir()) / "tests/models/llama", config)
                    .value();
  }
  void run(int count) {
    std::vector<RequestId> ids;
    for (int i = 0; i < count; ++i) {
      Request request;
      request.input_token_ids.resize(kTimelinePrompt);
      std::iota(request.input_token_ids.begin(), request.input_token_ids.end(), 5 + i);
      request.max_tokens = kTimelineTokens;
      ids.push_back(client_.send(*executor_, std::move(request)));
    }
    for (const RequestId id : ids)
      EXPECT_EQ(client_.wait(id).tokens.size(), size_t{kTimelineTokens});
  }
  TestClient client_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(BatchTimelineTest, HasEachChunkAndTheTimeInTheQueue) {
  executor_->batch_timeline();
  run(3);
  const BatchTimeline timeline = executor_->batch_timeline();
  ASSERT_EQ(timeline.sequences.size(), 3u);
  for (const BatchSequence& s : timeline.sequences) {
    EXPECT_EQ(s.prompt_tokens, kTimelinePrompt);
    EXPECT_EQ(s.generated_tokens, kTimelineTokens);
    EXPECT_TRUE(s.ended);
    std::vector<int32_t> chunks;
    double before = timeline.seconds;
    for (const BatchSpan& span : s.spans) {
      EXPECT_GE(before, span.begin);
      EXPECT_GE(span.begin, span.end);
      before = span.end;
      if (span.kind == Kind::kPrefill) chunks.push_back(span.tokens);
      EXPECT_NE(span.kind, Kind::kPaused);
    }
    EXPECT_EQ(chunks, (std::vector<int32_t>{kTimelineChunk, kTimelineChunk,
                                            kTimelinePrompt - 2 * kTimelineChunk}));
    EXPECT_EQ(s.spans.back().kind, Kind::kDecode);
    EXPECT_GE(s.spans.back().tokens, kTimelineTokens - 1);
  }
  EXPECT_EQ(timeline.sequences[2].spans.front().kind, Kind::kQueued) << "one place in the batch";
}

TEST_F(BatchTimelineTest, NothingIsRecordedBeforeTheFirstCall) {
  run(1);
  EXPECT_TRUE(executor_->batch_timeline().sequences.empty());
  run(1);
  EXPECT_EQ(executor_->batch_timeline().sequences.size(), 1u);
}

}  // namespace
}  // namespace nereid::runtime
