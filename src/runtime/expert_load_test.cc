// Tokens of each expert, as the executor counts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/testing/source_dir.h"
#include "nereid/executor.h"
#include "runtime/testing/test_client.h"

namespace nereid::runtime {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kLoadPrompt = 13, kLoadTokens = 9,
                  kLoadPicked = 2;  // mixtral's num_experts_per_tok

ExecutorConfig counting_config(bool counts) {
  ExecutorConfig config;
  config.device = "cpu";
  config.num_threads = 1;
  config.expert_load = counts;
  config.tp_invariant = true;
  config.kv_cache.enable_block_reuse = false;  // every token of the prompt is computed
  config.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_expert_load_test";
  return config;
}

StatusOr<std::unique_ptr<Executor>> open_counting(const ExecutorConfig& config,
                                                  const char* model = "mixtral") {
  return Executor::create(std::filesystem::path(source_dir()) / "tests/models" / model, config);
}

// Counts after `num_requests` requests that run together.
std::vector<ExpertLoad> expert_counts(const ExecutorConfig& config, int num_requests) {
  TestClient client;
  const auto executor = open_counting(config).value();
  std::vector<RequestId> ids;
  for (int i = 0; i < num_requests; ++i) {
    Request request;
    request.input_token_ids.resize(kLoadPrompt);
    std::iota(request.input_token_ids.begin(), request.input_token_ids.end(), 5 + i);
    request.max_tokens = kLoadTokens;
    ids.push_back(client.send(*executor, std::move(request)));
  }
  for (const RequestId id : ids) EXPECT_EQ(client.wait(id).tokens.size(), size_t{kLoadTokens});
  return executor->expert_load();
}

int64_t sum_of_load(const ExpertLoad& load) {
  return std::accumulate(load.tokens.begin(), load.tokens.end(), int64_t{0});
}

// The last layer routes only the tokens whose logits are drawn from.
TEST(ExpertLoads, HaveEachTokenOfEachLayer) {
  ExecutorConfig config = counting_config(true);
  config.enable_overlap = false;  // no step behind the last token
  const auto one = expert_counts(config, 1);
  ASSERT_GE(one.size(), 2u);
  for (size_t l = 0; l < one.size(); ++l) {
    EXPECT_EQ(one[l].layer, static_cast<int32_t>(l));
    const bool is_last = l + 1 == one.size();
    EXPECT_EQ(sum_of_load(one[l]),
              kLoadPicked * (is_last ? kLoadTokens : kLoadPrompt + kLoadTokens - 1));
  }
}

TEST(ExpertLoads, AreThoseOfOneRankOnAnyRanks) {
  ExecutorConfig alone = counting_config(true);
  alone.enable_overlap = false;
  const auto expected = expert_counts(alone, 3);
  for (const auto& [tp, pp] : {std::pair(2, 1), std::pair(1, 2), std::pair(2, 2)}) {
    ExecutorConfig config = alone;
    config.tensor_parallel = std::to_string(tp);
    config.expert_parallel = tp;
    config.pipeline_parallel = pp;
    const auto got = expert_counts(config, 3);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t l = 0; l < got.size(); ++l) {
      EXPECT_EQ(got[l].layer, expected[l].layer);
      EXPECT_EQ(got[l].tokens, expected[l].tokens) << "layer " << l << " tp " << tp << " pp " << pp;
    }
  }
}

TEST(ExpertLoads, AreEmptyWithoutTheOptionOrWithoutExperts) {
  EXPECT_THAT(expert_counts(counting_config(false), 1), IsEmpty());
  EXPECT_THAT(open_counting(counting_config(true), "llama").value()->expert_load(), IsEmpty());
}

TEST(ExpertLoads, AreRefusedOfRanksInProcesses) {
  ExecutorConfig config = counting_config(true);
  config.tensor_parallel = "2";
  config.expert_parallel = 2;
  config.rank_processes = true;
  EXPECT_THAT(open_counting(config).status().ToString(),
              HasSubstr("expert_load: true is for ranks that are"));
}

}  // namespace
}  // namespace nereid::runtime
