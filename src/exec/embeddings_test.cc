// Steps with external embeddings, on a small made-up plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <utility>

#include "exec/test_engine.h"
#include "exec/test_harness.h"
#include "io/engine_file.h"
#include "kernels/api/pack.h"
#include "kernels/open.h"
#include "tensor/wrapped_device.h"

namespace nereid::exec {
namespace {

using ::testing::HasSubstr;

const RunnerLimits kEmbeddingLimits = roomy_limits(4, 32, 64, 4);
const Ids kText = {1, 5, 9, 2, 30, 31, 0, 7, 7, 8, 11};

// Refuses allocations while `is_stingy` is set.
class StingyDevice : public WrappedDevice {
 public:
  using WrappedDevice::WrappedDevice;
  StatusOr<Buffer> allocate(size_t bytes) override {
    if (is_stingy) return resource_exhausted("{} bytes wanted", bytes);
    return inner().allocate(bytes);
  }

  std::atomic<bool> is_stingy = false;
};

class EmbeddingsTest : public ::testing::Test {
 protected:
  EmbeddingsTest() {
    auto opened = kernels::open_device("cpu", {.num_threads = 2}).value();
    auto stingy = std::make_unique<StingyDevice>(std::move(opened.device));
    device_ = stingy.get();
    opened.device = std::move(stingy);
    harness_ = std::make_unique<Harness>(path_, kEmbeddingLimits,
                                         StatusOr<kernels::OpenedDevice>(std::move(opened)));
  }

  // Appends the model's own embedding of a token.
  void append_own(StepMessage& step, int32_t token) const {
    const kernels::WeightView table = io::view_of(file_.plan().weights[0], file_.blob().data());
    for (int64_t c = 0; c < table.k; ++c)
      step.embeddings.push_back(to_bf16(kernels::weight_at(table, token, c)));
  }
  StatusOr<std::vector<float>> run(const StepMessage& step) {
    std::vector<std::byte> message;
    encode(step, message);
    auto ticket = harness_->runner().launch(message);
    if (!ticket.ok()) return ticket.status();
    std::vector<float> logits;
    RETURN_IF_ERROR(harness_->finish(*ticket, &logits).status());
    return logits;
  }
  // A row of tokens from `start` on; those with given(i) as external embeddings.
  template <class Given>
  StepMessage part(const Sequence& sequence, int32_t start, int32_t count, Given given) const {
    Ids tokens(kText.begin() + start, kText.begin() + start + count);
    StepMessage step = step_of({sequence.row(tokens, start, start + count == std::ssize(kText))}, 1,
                               kEmbeddingLimits.block_tokens);
    for (int32_t i = 0; i < count; ++i) {
      if (!given(start + i)) continue;
      append_own(step, tokens[static_cast<size_t>(i)]);
      step.tokens[static_cast<size_t>(i)] = kTokenExternal;
    }
    return step;
  }

  const std::filesystem::path path_ = write_engine(small_plan(), "embeddings_test");
  const io::EngineFile file_ = io::EngineFile::open(path_).value();
  StingyDevice* device_ = nullptr;
  std::unique_ptr<Harness> harness_;
};

TEST_F(EmbeddingsTest, ThoseOfTheModelAreItsTokens) {
  ASSERT_EQ(harness_->runner().embedding_width(), 32);
  const Sequence sequence(0, kEmbeddingLimits), other(1, kEmbeddingLimits);
  const auto expected = harness_->prefill(sequence, kText, 32);
  const auto size = static_cast<int32_t>(kText.size());
  for (const int32_t chunk : {11, 1, 3, 4})
    for (const int32_t every : {1, 2, 5}) {
      std::vector<float> logits;
      for (int32_t at = 0; at < size; at += chunk) {
        const auto got = run(
            part(other, at, std::min(chunk, size - at), [&](int32_t i) { return i % every == 0; }));
        ASSERT_TRUE(got.ok()) << got.status();
        logits = *got;
      }
      EXPECT_EQ(logits, expected) << chunk << " " << every;
    }
  StepMessage changed = part(other, 0, size, [](int32_t i) { return i == 0; });
  changed.embeddings[7] = to_bf16(3);
  EXPECT_NE(run(changed).value(), expected);
}

TEST_F(EmbeddingsTest, AsManyNumbersAsTheTokensNeed) {
  const Sequence sequence(0, kEmbeddingLimits);
  for (const size_t size : {0u, 31u, 33u, 64u}) {
    StepMessage step = part(sequence, 0, 5, [](int32_t i) { return i == 2; });
    step.embeddings.resize(size);
    EXPECT_THAT(run(step).status().ToString(),
                HasSubstr(fmt::format("{} numbers of embeddings; 1 tokens need 32", size)));
  }
}

// NaN in one row leaves the results of the next row unchanged.
TEST_F(EmbeddingsTest, NumbersThatAreNoneStayInTheirRow) {
  const Sequence sequence(0, kEmbeddingLimits), bad(1, kEmbeddingLimits);
  const auto expected = harness_->prefill(sequence, kText, 32);
  const Ids given = {kTokenExternal, 4};
  StepMessage step =
      step_of({bad.row(given, 0, 1), sequence.row(kText, 0, 1)}, 1, kEmbeddingLimits.block_tokens);
  step.embeddings.assign(32, to_bf16(std::numeric_limits<float>::quiet_NaN()));
  std::vector<std::byte> message;
  encode(step, message);
  auto ticket = harness_->runner().launch(message);
  const StepResult results = harness_->runner().wait(*ticket).value();
  EXPECT_EQ(results[0].drawn[0].token, -1);
  EXPECT_TRUE(std::isnan(results[0].logits[0]));
  EXPECT_EQ(std::vector<float>(results[1].logits.begin(), results[1].logits.end()), expected);
}

// Memory for embeddings is allocated on first use; without it only rows with embeddings fail.
TEST_F(EmbeddingsTest, WithoutMemoryTheirRowsFail) {
  const Sequence sequence(0, kEmbeddingLimits), plain(1, kEmbeddingLimits);
  const auto expected = harness_->prefill(sequence, kText, 32);
  StepMessage step = part(sequence, 0, 11, [](int32_t) { return true; });
  const StepMessage other = step_of({plain.row(kText, 0, 1)}, 1, kEmbeddingLimits.block_tokens);
  step.rows.push_back(other.rows[0]);
  step.tokens.insert(step.tokens.end(), other.tokens.begin(), other.tokens.end());
  step.blocks.insert(step.blocks.end(), other.blocks.begin(), other.blocks.end());
  step.loads.push_back(other.loads[0]);
  std::vector<std::byte> message;
  encode(step, message);
  for (int i = 0; i < 3; ++i) {
    device_->is_stingy = i != 1;
    auto ticket = harness_->runner().launch(message);
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    const StepResult results = harness_->runner().wait(*ticket).value();
    if (i == 0) {
      EXPECT_THAT(results[0].status.ToString(), HasSubstr("704 bytes of embeddings of one step"));
    } else {
      EXPECT_EQ(std::vector<float>(results[0].logits.begin(), results[0].logits.end()), expected);
    }
    EXPECT_EQ(std::vector<float>(results[1].logits.begin(), results[1].logits.end()), expected);
  }
}

}  // namespace
}  // namespace nereid::exec
