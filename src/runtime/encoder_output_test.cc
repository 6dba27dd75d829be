// Outputs of encoders and masks of cross attention: those of Hugging Face transformers
// (tests/golden/encoder), and what requests get refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/testing/encoder_golden.h"
#include "runtime/testing/exactness.h"

namespace nereid::runtime::exactness {
namespace {

using ::testing::HasSubstr;

class EncoderMasks : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto executor =
        Executor::create(kSource / "tests/encoder_models" / GetParam(), encoder_config());
    ASSERT_TRUE(executor.ok()) << executor.status();
    executor_ = *std::move(executor);
    auto file = io::TensorFile::open(kSource / "tests/golden/encoder" /
                                     (std::string(GetParam()) + "_masks.safetensors"));
    ASSERT_TRUE(file.ok()) << file.status();
    golden_ = std::make_unique<io::TensorFile>(*std::move(file));
  }
  const io::StoredTensor& tensor(const std::string& name) const {
    const auto found = std::ranges::find(golden_->tensors(), name, &io::StoredTensor::name);
    EXPECT_NE(found, golden_->tensors().end()) << name;
    return *found;
  }
  template <class T>
  std::vector<T> values(const std::string& name) const {
    const auto* const numbers = reinterpret_cast<const T*>(tensor(name).data.data());
    return {numbers, numbers + tensor(name).data.size() / sizeof(T)};
  }
  CrossAttentionMask mask(size_t i) const {
    const std::string name = fmt::format("mask.{}", i);
    return {static_cast<int32_t>(tensor(name).shape[1]), values<uint8_t>(name)};
  }
  std::string error(const Request& request) {
    const auto id = executor_->enqueue(request);
    return id.ok() ? "" : std::string(id.status().message());
  }

  std::unique_ptr<Executor> executor_;
  std::unique_ptr<io::TensorFile> golden_;
  Client client_;
};

// The engine rounds activations to bf16, transformers has f32.
TEST_P(EncoderMasks, OutputsEqualTransformers) {
  constexpr double kTolerance = 0.03;  // of the root mean square
  const std::vector<Case> cases = golden_cases(GetParam(), executor_->encoder());
  for (size_t i = 0; i < cases.size(); ++i) {
    Request request = cases[i].request;
    request.output.return_encoder_output = true;
    const Outcome got = client_.run(*executor_, request);
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(got.sequences[0][0].tokens, cases[i].greedy);
    const std::vector<float> wanted = values<float>(fmt::format("output.{}", i));
    ASSERT_EQ(got.encoder_output.size(), wanted.size());
    EXPECT_EQ(executor_->encoder().output_width, tensor(fmt::format("output.{}", i)).shape[1]);
    double squares = 0, errors = 0;
    for (size_t at = 0; at < wanted.size(); ++at) {
      squares += double{wanted[at]} * wanted[at];
      errors += std::pow(double{wanted[at]} - got.encoder_output[at], 2);
    }
    EXPECT_LT(std::sqrt(errors / squares), kTolerance) << "case " << i;
  }
}

// Log-probabilities of the greedy tokens as a prompt, each position with its row of the mask.
TEST_P(EncoderMasks, MasksEqualTransformers) {
  constexpr double kTolerance = 0.4, kMeanTolerance = 0.05;
  double sum = 0;
  int count = 0;
  const std::vector<Case> cases = golden_cases(GetParam(), executor_->encoder());
  double largest_change = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    Request request = cases[i].request;
    request.input_token_ids.insert(request.input_token_ids.end(), cases[i].greedy.begin(),
                                   cases[i].greedy.end());
    request.max_tokens = 1;
    request.output.num_prompt_log_probs = 0;
    const Outcome plain = client_.run(*executor_, request);
    request.cross_attention_mask = mask(i);
    const Outcome got = client_.run(*executor_, request);
    ASSERT_TRUE(got.status.ok()) << got.status;
    const std::vector<float> wanted = values<float>(fmt::format("log_probs.{}", i));
    ASSERT_GE(got.prompt_log_probs.size(), wanted.size());
    const size_t first = got.prompt_log_probs.size() - wanted.size();
    for (size_t t = 0; t < wanted.size(); ++t) {
      EXPECT_NEAR(got.prompt_log_probs[first + t], wanted[t], kTolerance)
          << "case " << i << " token " << t;
      sum += std::abs(got.prompt_log_probs[first + t] - wanted[t]);
      ++count;
      largest_change = std::max<double>(
          largest_change,
          std::abs(got.prompt_log_probs[first + t] - plain.prompt_log_probs[first + t]));
    }
  }
  EXPECT_LT(sum / count, kMeanTolerance);
  EXPECT_GT(largest_change, 4 * kTolerance);
}

TEST_P(EncoderMasks, AMaskOfAllPositionsChangesNothing) {
  const Case c = golden_cases(GetParam(), executor_->encoder())[1];
  Request request = c.request;
  const Outcome expected = client_.run(*executor_, request);
  CrossAttentionMask all = mask(1);
  std::ranges::fill(all.attends, uint8_t{1});
  request.cross_attention_mask = all;
  EXPECT_EQ(difference(expected, client_.run(*executor_, request)), "");
  all.attends.resize(static_cast<size_t>(all.num_positions));  // one row, of all positions
  request.cross_attention_mask = all;
  EXPECT_EQ(difference(expected, client_.run(*executor_, request)), "");
}

// Rows behind the prompt are those of the tokens' positions: a mask written out to the end equals
// one whose last row goes on, and none sees nothing.
TEST_P(EncoderMasks, RowsAreThoseOfPositions) {
  Request request = golden_cases(GetParam(), executor_->encoder())[2].request;
  CrossAttentionMask& mask = request.cross_attention_mask.emplace(this->mask(2));
  const auto columns = static_cast<size_t>(mask.num_positions);
  mask.attends.resize(2 * columns);
  std::fill_n(mask.attends.begin(), columns, uint8_t{0});
  const Outcome expected = client_.run(*executor_, request);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  const std::vector<uint8_t> last(mask.attends.end() - static_cast<ptrdiff_t>(columns),
                                  mask.attends.end());
  for (int i = 0; i < 40; ++i) mask.attends.insert(mask.attends.end(), last.begin(), last.end());
  EXPECT_EQ(difference(expected, client_.run(*executor_, request)), "");
  std::fill(mask.attends.begin() + static_cast<ptrdiff_t>(6 * columns), mask.attends.end(),
            uint8_t{0});
  const Outcome other = client_.run(*executor_, request);
  ASSERT_TRUE(other.status.ok()) << other.status;
  EXPECT_NE(difference(expected, other), "");
}

TEST_P(EncoderMasks, OneOutputForAllSequences) {
  Request request = golden_cases(GetParam(), executor_->encoder())[0].request;
  request.output.return_encoder_output = true;
  const Outcome one = client_.run(*executor_, request);
  request.sampling.num_return_sequences = 3;
  request.sampling.top_k = 5;
  const Outcome three = client_.run(*executor_, request);
  ASSERT_EQ(three.sequences.size(), 3u);
  EXPECT_EQ(one.encoder_output, three.encoder_output);
  EXPECT_FALSE(one.encoder_output.empty());
}

TEST_P(EncoderMasks, FaultsAreNamed) {
  const Request good = golden_cases(GetParam(), executor_->encoder())[0].request;
  const auto error = [&](const std::function<void(CrossAttentionMask&)>& edit) {
    Request request = good;
    edit(request.cross_attention_mask.emplace(mask(0)));
    return this->error(request);
  };
  EXPECT_THAT(error([](CrossAttentionMask& m) { ++m.num_positions; }),
              HasSubstr("cross_attention_mask: "));
  EXPECT_THAT(error([](CrossAttentionMask& m) { m.num_positions = 0; }),
              HasSubstr("cross_attention_mask: 0 columns; the encoder's output has "));
  EXPECT_THAT(error([](CrossAttentionMask& m) { m.attends.clear(); }),
              HasSubstr("cross_attention_mask: 0 numbers are no rows of "));
  EXPECT_THAT(error([](CrossAttentionMask& m) { m.attends.pop_back(); }), HasSubstr("no rows of"));
  EXPECT_THAT(error([&](CrossAttentionMask& m) {
                m.attends.resize(
                    static_cast<size_t>(m.num_positions * (executor_->max_sequence_length() + 1)));
              }),
              HasSubstr("no rows of"));
  EXPECT_THAT(error([](CrossAttentionMask& m) { m.attends[1] = 2; }),
              HasSubstr("cross_attention_mask: 2 at row 0, position 1; only 0 and 1 are allowed"));
}

INSTANTIATE_TEST_SUITE_P(Models, EncoderMasks, ::testing::Values("t5-gated", "bart", "whisper"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(EncoderOutputOptions, OutputsCountAsLogits) {
  ExecutorConfig config = encoder_config();
  config.max_logits_bytes = 512;
  const auto executor = Executor::create(kSource / "tests/encoder_models/bart", config);
  ASSERT_TRUE(executor.ok()) << executor.status();
  Request request = golden_cases("bart", (*executor)->encoder())[0].request;
  request.output.return_encoder_output = true;
  EXPECT_THAT(std::string((*executor)->enqueue(request).status().message()),
              HasSubstr("return_encoder_output: 5 positions of 32 numbers are 640 bytes; at most "
                        "512 are allowed (max_logits_bytes)"));
}

TEST(EncoderOutputOptions, OtherModelsHaveNone) {
  const auto executor = Executor::create(kSource / "tests/models/llama", encoder_config());
  ASSERT_TRUE(executor.ok()) << executor.status();
  Request request;
  request.input_token_ids = {5, 6};
  request.max_tokens = 2;
  request.output.return_encoder_output = true;
  EXPECT_THAT(std::string((*executor)->enqueue(request).status().message()),
              HasSubstr("return_encoder_output: only for encoder-decoder models"));
  request.output.return_encoder_output = false;
  request.cross_attention_mask = CrossAttentionMask{1, {1}};
  EXPECT_THAT(std::string((*executor)->enqueue(request).status().message()),
              HasSubstr("cross_attention_mask: the model has no cross attention"));
}

}  // namespace
}  // namespace nereid::runtime::exactness
