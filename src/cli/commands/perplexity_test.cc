// Perplexity of the quick-start model on text outside of its training data.
#include <tuple>

#include "cli/commands/perplexity.h"

#include <gmock/gmock.h>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::cli {
namespace {

const std::string kModel = source_dir() + "/models/quickstart";
const std::string kText = source_dir() + "/tests/quality/held_out.txt";
constexpr size_t kTokens = 3000;

class PerplexityTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto tokenizer = text::Tokenizer::load(kModel);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    ids_ = (*tokenizer)->encode(read_file(kText).value()).value();
    ASSERT_GT(ids_.size(), kTokens);
    ids_.resize(kTokens);
  }
  static std::unique_ptr<Executor> open(const std::string& weights) {
    ExecutorConfig config;
    config.num_threads = 2;
    config.max_batch_size = 1;
    config.weights = weights;
    config.kv_cache.max_tokens = 1024;
    auto executor = Executor::create(kModel, config);
    EXPECT_TRUE(executor.ok()) << executor.status();
    return *std::move(executor);
  }

  std::vector<TokenId> ids_;
};

// Expected values in float32 arithmetic, by `tests/quality/perplexity.py models/quickstart
// tests/quality/held_out.txt 512 STRIDE 3000` from transformers' log-probabilities.
TEST_F(PerplexityTest, EqualsTheGuidesOfTransformers) {
  const auto model = open("bf16");
  for (const auto& [stride, expected, scored] :
       {std::tuple(512, 2.18475, 2994), std::tuple(200, 2.10167, 2999)}) {
    int64_t last = 0;
    const auto score =
        score_text(*model, nullptr, ids_, {512, stride}, [&](int64_t done, const TextScore&) {
          EXPECT_GT(done, last);
          last = done;
        });
    ASSERT_TRUE(score.ok()) << score.status();
    EXPECT_EQ(score->num_scored, scored);
    EXPECT_EQ(last, ids_.size());
    EXPECT_NEAR(score->perplexity(), expected, 0.005 * expected);
  }
}

TEST_F(PerplexityTest, DivergenceIsThatOfTheNextToken) {
  ids_.resize(600);
  const auto model = open("bf16"), rounded = open("int4");
  const auto same = score_text(*model, model.get(), ids_, {512, 512});
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_NEAR(same->divergence, 0, 1e-3);
  EXPECT_EQ(same->num_same_best, same->num_scored);
  const auto far = score_text(*rounded, model.get(), ids_, {512, 512});
  ASSERT_TRUE(far.ok()) << far.status();
  const auto count = static_cast<double>(far->num_scored);
  EXPECT_GT(far->divergence / count, 1e-4);
  EXPECT_LT(far->divergence / count, 0.3);
  EXPECT_LT(far->num_same_best, far->num_scored);
  EXPECT_GT(static_cast<double>(far->num_same_best), 0.8 * count);
}

TEST_F(PerplexityTest, TooLittleText) {
  const auto model = open("bf16");
  EXPECT_THAT(score_text(*model, nullptr, {ids_.data(), 1}, {512, 512}).status().ToString(),
              testing::HasSubstr("the text has 1 tokens; at least 2"));
  const auto two = score_text(*model, nullptr, {ids_.data(), 2}, {512, 512});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->num_scored, 1);
}

}  // namespace
}  // namespace nereid::cli
