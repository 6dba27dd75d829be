// Timeline of the batch through the executor: each chunk of a prompt, queues, and what it costs
// where nothing asks for it.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <vector>

#include "base/status.h"
#include "base/testing/source_dir.h"
#include "nereid/executor.h"
#include "runtime/testing/test_client.h"

namespace nereid::runtime {
namespace {

using Kind = BatchSpan::Kind;

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
