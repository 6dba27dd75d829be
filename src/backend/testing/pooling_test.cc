// Embeddings of the tensorrt_llm model: inputs and outputs of requests with `pooling`.
#include "backend/testing/feature_fixture.h"

namespace nereid::backend {
namespace {

class PoolingTest : public FeatureTest {
 protected:
  static Conversation pool(const Ids& ids, const char* pooling, int32_t output_len = 0) {
    return Talk(server_, "tensorrt_llm",
                {ids_input("input_ids", ids),
                 int_input("input_lengths", static_cast<int32_t>(ids.size())),
                 int_input("request_output_len", output_len), text_input("pooling", {pooling})})
        .wait();
  }
  static std::vector<float> embedding(const Ids& ids, const char* pooling) {
    const Conversation c = pool(ids, pooling);
    EXPECT_TRUE(c.status.ok()) << c.status;
    EXPECT_EQ(c.outputs.size(), 1u);
    if (c.outputs.empty()) return {};
    EXPECT_EQ(c.outputs[0].size(), 1u) << "an embedding and no tokens";
    return elements<float>(c.outputs[0], "embedding");
  }
};

TEST_F(PoolingTest, TheLastStateOrTheMean) {
  const Ids ids = prompt();
  const auto last = embedding(ids, "last"), mean = embedding(ids, "mean");
  ASSERT_EQ(last.size(), 256u);
  ASSERT_EQ(mean.size(), 256u);
  EXPECT_NE(last, mean);
  EXPECT_EQ(embedding(ids, "last"), last) << "with a cached prefix";
  std::vector<double> sum(256);
  for (size_t n = 1; n <= ids.size(); ++n) {
    const auto state = embedding(Ids(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(n)), "last");
    for (size_t i = 0; i < 256; ++i) sum[i] += state[i];
  }
  for (size_t i = 0; i < 256; ++i)
    EXPECT_FLOAT_EQ(mean[i], static_cast<float>(sum[i] / static_cast<double>(ids.size())));
}

// Each embedding of a batch equals the one alone, also beside sequences that generate.
TEST_F(PoolingTest, InABatch) {
  const Ids whole = prompt();
  const auto width = static_cast<int64_t>(whole.size());
  const Ids lengths = {1, 3, static_cast<int32_t>(width) - 1, static_cast<int32_t>(width)};
  Ids ids;
  for (size_t i = 0; i < lengths.size(); ++i) ids.insert(ids.end(), whole.begin(), whole.end());
  Talk generating(
      server_, "tensorrt_llm",
      {ids_input("input_ids", whole), int_input("input_lengths", static_cast<int32_t>(width)),
       int_input("request_output_len", 64), int_input("end_id", -1)});
  const Conversation c = Talk(server_, "tensorrt_llm",
                              {make_output("input_ids", {4, width}, ids),
                               make_output("input_lengths", {4, 1}, lengths),
                               make_output("request_output_len", {4, 1}, Ids(4, 0)),
                               make_output("pooling", {4, 1}, std::vector<std::string>(4, "last"))})
                             .wait();
  EXPECT_TRUE(generating.wait().status.ok());
  ASSERT_TRUE(c.status.ok()) << c.status;
  ASSERT_EQ(c.outputs.size(), 4u);
  for (const auto& outputs : c.outputs) {
    const auto index = static_cast<size_t>(elements<int32_t>(outputs, "batch_index").at(0));
    const Ids part(whole.begin(), whole.begin() + lengths.at(index));
    EXPECT_EQ(elements<float>(outputs, "embedding"), embedding(part, "last")) << index;
  }
}

TEST_F(PoolingTest, Refusals) {
  const auto error = [](const Conversation& c) { return std::string(message(c.status)); };
  EXPECT_THAT(error(pool(prompt(), "max")),
              HasSubstr("'pooling' is 'max', expected last, mean or score"));
  EXPECT_THAT(error(pool(prompt(), "last", 3)),
              HasSubstr("'request_output_len' is 3, expected 0 with 'pooling'"));
  EXPECT_THAT(error(pool(prompt(), "")),
              HasSubstr("'request_output_len' is 0, expected at least 1"));
}

}  // namespace
}  // namespace nereid::backend
