// All tiny models on ranks that are threads of this process, or processes: with tp_invariant, bit
// for bit what one rank gives. A model that cannot be divided so is refused by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/testing/source_dir.h"
#include "models/family.h"
#include "runtime/testing/exactness.h"
#include "runtime/testing/test_config.h"

namespace nereid::runtime::exactness {
namespace {

const std::filesystem::path kRankModels = std::filesystem::path(source_dir()) / "tests/models";

std::vector<std::string> models_on_ranks() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kRankModels))
    if (std::filesystem::exists(entry.path() / "config.json"))
      names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

struct Ranks {
  int tp = 1, pp = 1, ep = 1;
  bool processes = false;
};

ExecutorConfig on(const Ranks& ranks) {
  ExecutorConfig c = test_config();
  c.num_threads = 1;
  c.tp_invariant = true;
  c.tensor_parallel = std::to_string(ranks.tp);
  c.pipeline_parallel = ranks.pp;
  c.expert_parallel = ranks.ep;
  c.rank_processes = ranks.processes;
  c.kv_cache.tokens_per_block = 16;
  c.kv_cache.max_tokens = 2048;
  c.max_beam_width = 2;
  c.max_num_tokens = 48;
  c.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_exactness_ranks_test";
  return c;
}

// Greedy, sampled and beam search; the longest prompt is chunked.
std::vector<Request> rank_requests() {
  std::vector<Request> all;
  for (const int32_t length : {5, 33, 70})
    for (const int32_t kind : {0, 1, 2}) {
      Request r;
      for (int32_t i = 0; i < length; ++i)
        r.input_token_ids.push_back(8 + (i * i + 5 * i + length) % 200);
      r.max_tokens = 12;
      r.sampling.min_tokens = 12;
      r.output.return_log_probs = true;
      r.output.return_generation_logits = kind == 0;
      if (kind == 1) {
        r.sampling.temperature = 4.0f;
        r.sampling.top_p = 0.98f;
        r.sampling.seed = static_cast<uint64_t>(length);
      }
      if (kind == 2) r.sampling.beam_width = 2;
      all.push_back(r);
    }
  return all;
}

using RankCell = std::tuple<std::string, Ranks>;

class OnRanks : public testing::TestWithParam<RankCell> {
 protected:
  static StatusOr<std::unique_ptr<Executor>> open(const Ranks& ranks) {
    return Executor::create(kRankModels / std::get<0>(GetParam()), on(ranks));
  }
  static const std::vector<Outcome>& expected() {
    static std::map<std::string, std::vector<Outcome>> known;
    const auto [it, is_new] = known.try_emplace(std::get<0>(GetParam()));
    if (!is_new) return it->second;
    const auto executor = open({});
    EXPECT_TRUE(executor.ok()) << executor.status();
    Client client;
    if (executor.ok())
      for (const Request& r : rank_requests()) it->second.push_back(client.run(**executor, r));
    return it->second;
  }
};

// Models that two tensor ranks or two stages divide.
bool must_divide(std::string_view model, const Ranks& ranks) {
  constexpr std::string_view kModels[] = {"deepseek_v2", "gemma3", "llama",    "mixtral",
                                          "qwen2",       "qwen3",  "qwen3_moe"};
  return ranks.tp <= 2 && std::ranges::find(kModels, model) != std::end(kModels);
}

TEST_P(OnRanks, GivesTheBitsOfOneRank) {
  Ranks ranks = std::get<1>(GetParam());
  // Equal bits need experts that are divided by index only.
  const auto model = models::read_model(kRankModels / std::get<0>(GetParam()));
  ASSERT_TRUE(model.ok()) << model.status();
  if (model->traits.num_experts > 0) ranks.ep = ranks.tp;
  const auto executor = open(ranks);
  if (!executor.ok()) {
    EXPECT_FALSE(must_divide(std::get<0>(GetParam()), ranks)) << executor.status();
    // The error names the weight and its numbers.
    EXPECT_TRUE(absl::IsInvalidArgument(executor.status())) << executor.status();
    EXPECT_NE(executor.status().message().find("layers."), std::string_view::npos)
        << executor.status();
    return;
  }
  const std::vector<Outcome>& wanted = expected();
  const std::vector<Request> sent = rank_requests();
  ASSERT_EQ(wanted.size(), sent.size());
  Client client;
  std::vector<RequestId> ids;
  for (const Request& r : sent) ids.push_back(client.send(**executor, r));
  for (size_t i = 0; i < sent.size(); ++i)
    EXPECT_EQ(difference(wanted[i], client.wait(ids[i])), "") << "request " << i;
  const std::vector<RankStats> figures = (*executor)->ranks();
  ASSERT_EQ(std::ssize(figures), ranks.tp * ranks.pp);
  for (const RankStats& rank : figures) {
    EXPECT_GT(rank.num_steps, 0);
    EXPECT_GT(rank.exchange_seconds, 0);
  }
}

std::string name_of_cell(const testing::TestParamInfo<RankCell>& info) {
  const auto& [model, ranks] = info.param;
  std::string name = fmt::format("{}_tp{}_pp{}_ep{}", model, ranks.tp, ranks.pp, ranks.ep);
  if (ranks.processes) name += "_processes";
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(
    Tiny, OnRanks,
    testing::Combine(testing::ValuesIn(models_on_ranks()),
                     testing::Values(Ranks{2, 1, 1}, Ranks{4, 1, 1}, Ranks{1, 2, 1}, Ranks{2, 2, 1},
                                     Ranks{2, 1, 1, true}, Ranks{1, 2, 1, true})),
    name_of_cell);

}  // namespace
}  // namespace nereid::runtime::exactness
