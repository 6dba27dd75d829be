#include "cli/load/dataset.h"
#include "base/testing/source_dir.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nereid::cli {
namespace {

using testing::HasSubstr;

std::string dataset_error(std::string_view text) {
  const auto requests = parse_dataset(text);
  return requests.ok() ? "accepted" : std::string(message(requests.status()));
}

TEST(Dataset, LinesComeBackAsTheyWere) {
  const std::string text =
      "{\"task_id\":0,\"prompt\":\"a b\",\"output_tokens\":4}\n\n"
      "{\"task_id\":1,\"input_ids\":[1,2,3],\"output_tokens\":5}\n";
  const auto requests = parse_dataset(text + R"({"task_id":2,"logits":[7],"output_tokens":1})");
  ASSERT_TRUE(requests.ok()) << requests.status();
  ASSERT_EQ(requests->size(), 3u);
  std::string again;
  for (const BenchRequest& request : *requests)
    again += json::serialize(dataset_line(request)) + "\n";
  EXPECT_EQ(again,
            "{\"task_id\":0,\"prompt\":\"a b\",\"output_tokens\":4}\n"
            "{\"task_id\":1,\"input_ids\":[1,2,3],\"output_tokens\":5}\n"
            "{\"task_id\":2,\"input_ids\":[7],\"output_tokens\":1}\n");
}

TEST(Dataset, BadLinesAreNamed) {
  EXPECT_THAT(dataset_error("{\"prompt\":\"a\",\"output_tokens\":1}\n{"), HasSubstr("line 2: "));
  EXPECT_THAT(dataset_error("\n"), HasSubstr("there is no request"));
  EXPECT_THAT(dataset_error("[]"), HasSubstr("is not a JSON object"));
  EXPECT_THAT(dataset_error(R"({"output_tokens":1})"), HasSubstr("one of prompt and input_ids"));
  EXPECT_THAT(dataset_error(R"({"prompt":"a","input_ids":[1],"output_tokens":1})"),
              HasSubstr("one of prompt and input_ids"));
  EXPECT_THAT(dataset_error(R"({"prompt":"a"})"), HasSubstr("output_tokens: is missing"));
  EXPECT_THAT(dataset_error(R"({"prompt":"a","output_tokens":0})"), HasSubstr("0 is not in"));
  EXPECT_THAT(dataset_error(R"({"input_ids":[-1],"output_tokens":1})"),
              HasSubstr("-1 is no token"));
  EXPECT_THAT(dataset_error(R"({"prompt":"a","output_tokens":1,"media_paths":["x"]})"),
              HasSubstr("media_paths: is not supported yet"));
}

TEST(Dataset, LengthsFollowTheirDistributions) {
  const auto normal = normal_lengths(20000, 100, 10, 7, 0);
  const double mean = std::accumulate(normal.begin(), normal.end(), 0.0) / 20000;
  double squares = 0;
  for (const int64_t length : normal) {
    const double off = static_cast<double>(length) - mean;
    squares += off * off;
  }
  EXPECT_NEAR(mean, 100, 0.5);
  EXPECT_NEAR(std::sqrt(squares / 20000), 10, 0.3);
  EXPECT_EQ(normal, normal_lengths(20000, 100, 10, 7, 0));
  EXPECT_NE(normal, normal_lengths(20000, 100, 10, 8, 0));
  for (const int64_t length : normal_lengths(1000, 1, 100, 7, 0)) EXPECT_GE(length, 1);

  const auto uniform = uniform_lengths(1000, 5, 8, 7, 0);
  for (int64_t length = 5; length <= 8; ++length)
    EXPECT_GT(std::ranges::count(uniform, length), 150);
  EXPECT_EQ(*std::ranges::min_element(uniform), 5);
  EXPECT_EQ(*std::ranges::max_element(uniform), 8);
}

TEST(Dataset, RandomTextHasThatManyTokens) {
  const auto tokenizer = text::Tokenizer::load(source_dir() + "/models/quickstart");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  int num_exact = 0;
  for (uint64_t lane = 0; lane < 20; ++lane) {
    const std::string text = random_text(50, tokenizer->get(), 3, lane);
    const auto ids = (*tokenizer)->encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(ids.ok());
    EXPECT_NEAR(static_cast<double>(ids->size()), 50, 5) << text;
    num_exact += ids->size() == 50;
  }
  EXPECT_GE(num_exact, 15);
  EXPECT_EQ(random_text(3, nullptr, 3, 0), random_text(3, nullptr, 3, 0));
  EXPECT_EQ(std::ranges::count(random_text(30, nullptr, 3, 0), ' '), 29);
}

}  // namespace
}  // namespace nereid::cli
