// Tiny models of families with other layers or caches (windows, mixtures of experts, latent
// attention) on the CPU: in batches, in chunks, with prefix hits and after preemption a request
// gives bit for bit what it gives alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "base/testing/source_dir.h"
#include "runtime/testing/exactness.h"
#include "runtime/testing/test_config.h"

namespace nereid::runtime::exactness {
namespace {

const std::filesystem::path kTinyModels = std::filesystem::path(source_dir()) / "tests/models";
constexpr int32_t kTokensPerBlock = 16;

ExecutorConfig alone(KvCacheType type) {
  ExecutorConfig c = test_config();
  c.num_threads = 1;
  c.enable_overlap = false;
  c.kv_cache.type = type;
  c.kv_cache.enable_block_reuse = false;
  c.kv_cache.tokens_per_block = kTokensPerBlock;
  c.kv_cache.max_tokens = 4096;
  c.max_beam_width = 3;
  c.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_exactness_families_test";
  return c;
}

ExecutorConfig together(KvCacheType type) {
  ExecutorConfig c = alone(type);
  c.num_threads = 2;
  c.enable_overlap = true;
  c.kv_cache.enable_block_reuse = true;
  return c;
}

// Prompts of whole and partial blocks, two with a common prefix; greedy, sampled, beam search.
std::vector<Request> requests() {
  std::vector<Request> all;
  for (const int32_t length : {5, 32, 40, 70, 90, 91})
    for (const int32_t kind : {0, 1, 2}) {
      Request r;
      for (int32_t i = 0; i < length; ++i)
        r.input_token_ids.push_back(8 + (i * i + 5 * i + (length < 90 ? length : 0)) % 500);
      r.max_tokens = 48;
      r.sampling.min_tokens = 48;
      r.output.return_log_probs = true;
      if (kind == 1) {
        r.sampling.temperature = 4.0f;
        r.sampling.top_p = 0.98f;
        r.sampling.seed = static_cast<uint64_t>(length);
      }
      if (kind == 2) r.sampling.beam_width = 3;
      all.push_back(r);
    }
  return all;
}

// (model, KV cache type, weight format).
using Model = std::tuple<const char*, KvCacheType, const char*>;

class Families : public testing::TestWithParam<Model> {
 protected:
  static KvCacheType type() { return std::get<1>(GetParam()); }
  static bool speculates() { return std::string_view(std::get<0>(GetParam())).ends_with("-mtp"); }
  // Expectations are from steps without drafts.
  static ExecutorConfig together(KvCacheType type) {
    ExecutorConfig config = exactness::together(type);
    if (speculates()) config.speculation = "mtp";
    return config;
  }
  static std::unique_ptr<Executor> open(ExecutorConfig config) {
    config.weights = std::get<2>(GetParam());
    auto executor = Executor::create(kTinyModels / std::get<0>(GetParam()), config);
    if (!executor.ok()) ADD_FAILURE() << executor.status();
    return executor.ok() ? *std::move(executor) : nullptr;
  }
  static const std::vector<Outcome>& expected() {
    static std::map<Model, std::vector<Outcome>> known;
    const auto [it, is_new] = known.try_emplace(GetParam());
    const auto executor = is_new ? open(alone(type())) : nullptr;
    Client client;
    for (const Request& r : requests())
      if (executor) it->second.push_back(client.run(*executor, r));
    return it->second;
  }
  // All requests at once, `rounds` times or until `enough`.
  static ExecutorStats run_at_once(const ExecutorConfig& config, int rounds,
                                   bool (*enough)(const ExecutorStats&) = nullptr) {
    const std::vector<Outcome>& wanted = expected();
    const std::vector<Request> sent = requests();
    const auto executor = open(config);
    if (!executor || wanted.size() != sent.size()) return {};
    Client client;
    for (int round = 0; round < rounds; ++round) {
      if (enough && enough(executor->stats())) break;
      std::vector<RequestId> ids;
      for (const Request& r : sent) ids.push_back(client.send(*executor, r));
      for (size_t i = 0; i < sent.size(); ++i) {
        const Outcome got = client.wait(ids[i]);
        EXPECT_TRUE(got.status.ok()) << got.status;
        EXPECT_EQ(difference(wanted[i], got), "") << "request " << i << " in round " << round;
      }
    }
    return executor->stats();
  }
};

TEST_P(Families, InABatchTwice) {
  const ExecutorStats stats = run_at_once(together(type()), 2);
  EXPECT_GT(stats.kv_blocks_reused, 0);
  EXPECT_EQ(stats.num_drafts > 0, speculates());
}

TEST_P(Families, InChunks) {
  ExecutorConfig config = together(type());
  config.max_num_tokens = 7;
  run_at_once(config, 1);
}

TEST_P(Families, WithPauses) {
  ExecutorConfig config = together(type());
  config.kv_cache.max_tokens = 30 * kTokensPerBlock;
  // Requests may end before others arrive; then the round is repeated.
  constexpr int kMostRounds = 50;
  const auto paused = [](const ExecutorStats& s) { return s.num_preemptions > 0; };
  EXPECT_TRUE(paused(run_at_once(config, kMostRounds, paused)));
}

std::string name_of_model(const testing::TestParamInfo<Model>& info) {
  const auto& [model, cache, weights] = info.param;
  std::string name =
      fmt::format("{}{}_{}", model, cache == KvCacheType::kInt8 ? "Int8" : "", weights);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Tiny, Families,
                         testing::Combine(testing::Values("gemma3", "mixtral", "qwen3_moe-dense",
                                                          "deepseek_v2", "deepseek_v3"),
                                          testing::Values(KvCacheType::kAuto, KvCacheType::kInt8),
                                          testing::Values("auto")),
                         name_of_model);
// Post-norms and narrow embeddings; clipped queries, keys and values.
INSTANTIATE_TEST_SUITE_P(Older, Families,
                         testing::Combine(testing::Values("opt-narrow", "mpt-clip"),
                                          testing::Values(KvCacheType::kAuto),
                                          testing::Values("auto")),
                         name_of_model);
// Drafts come from the model's MTP layer.
INSTANTIATE_TEST_SUITE_P(MultiTokenPrediction, Families,
                         testing::Combine(testing::Values("../heads/deepseek_v3-mtp"),
                                          testing::Values(KvCacheType::kAuto, KvCacheType::kInt8),
                                          testing::Values("auto")),
                         name_of_model);
INSTANTIATE_TEST_SUITE_P(RoundedExperts, Families,
                         testing::Combine(testing::Values("mixtral"),
                                          testing::Values(KvCacheType::kAuto),
                                          testing::Values("int4", "fp8")),
                         name_of_model);

}  // namespace
}  // namespace nereid::runtime::exactness
