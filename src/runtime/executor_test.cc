// The public Executor, shipped model, CPU: golden tokens, and equality of all ways to run requests.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/json.h"
#include "base/testing/source_dir.h"
#include "convert/engine_dir.h"
#include "convert/trtllm_checkpoint.h"
#include "kernels/open.h"
#include "nereid/executor.h"
#include "runtime/testing/test_client.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid::runtime {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

const std::filesystem::path kSource = source_dir();
const std::vector<TokenId> kEndIds = {3, 0};  // generation_config.json

struct Case {
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;  // first tokens, independent of rounding
  bool ends = false;            // followed by the end id
};

std::vector<TokenId> ids(const json::value& list) {
  std::vector<TokenId> out;
  for (const json::value& v : list.as_array()) out.push_back(static_cast<TokenId>(v.as_int64()));
  return out;
}

std::vector<Case> golden_cases() {
  const json::value golden = read_json_file(kSource / "tests/golden/target.json").value();
  std::vector<Case> cases;
  for (const json::value& v : golden.at("cases").as_array()) {
    Case c{ids(v.at("prompt_ids")), ids(v.at("greedy_ids"))};
    const json::value& end = v.at("end_index");
    const auto clear = static_cast<size_t>(v.at("clear_steps").as_int64());
    size_t usable = clear;
    if (!end.is_null() && static_cast<size_t>(end.as_int64()) < clear) {
      usable = static_cast<size_t>(end.as_int64());
      c.ends = true;
    }
    c.greedy.resize(std::min(c.greedy.size(), usable));
    cases.push_back(std::move(c));
  }
  return cases;
}

std::filesystem::path cache_dir() {
  return std::filesystem::path(testing::TempDir()) / "nereid_executor_test";
}

std::unique_ptr<Executor> open(ExecutorConfig config = {}) {
  if (config.num_threads == 0) config.num_threads = 1;
  config.cache_dir = cache_dir();
  auto executor = Executor::create(kSource / "models/quickstart", config);
  if (!executor.ok()) ADD_FAILURE() << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

Request request(const std::vector<TokenId>& prompt, int32_t max_tokens) {
  Request r;
  r.input_token_ids = prompt;
  r.max_tokens = max_tokens;
  r.end_ids = kEndIds;
  return r;
}

// The golden prompts, half greedy, half with different sampling parameters.
std::vector<Request> requests() {
  std::vector<Request> all;
  const auto cases = golden_cases();
  for (size_t i = 0; i < cases.size(); ++i) {
    if (cases[i].prompt.size() > 300) continue;
    Request r = request(cases[i].prompt, 24);
    r.streaming = i % 3 == 0;
    if (i % 2) {
      r.sampling.seed = i;
      r.sampling.temperature = 1.5f;
      if (i % 4 == 1) r.sampling.top_k = 20;
      if (i % 4 == 3) r.sampling.top_p = 0.95f;
    }
    all.push_back(std::move(r));
  }
  return all;
}

std::vector<std::vector<TokenId>> run_all(Executor& executor, const std::vector<Request>& all,
                                          bool one_at_a_time) {
  TestClient client;
  std::vector<RequestId> sent;
  std::vector<std::vector<TokenId>> out;
  for (const Request& r : all) {
    sent.push_back(client.send(executor, r));
    if (one_at_a_time) client.wait(sent.back());
  }
  for (RequestId id : sent) {
    const Received got = client.wait(id);
    EXPECT_TRUE(got.last.status.ok()) << got.last.status;
    out.push_back(got.tokens);
  }
  executor.drain(milliseconds(60000));
  EXPECT_EQ(executor.stats().kv_blocks_free, executor.stats().kv_blocks_total);
  return out;
}

TEST(Executor, GreedyTokensEqualTheGoldens) {
  TestClient client;
  auto executor = open();
  ASSERT_TRUE(executor);
  EXPECT_EQ(executor->default_end_ids(), kEndIds);
  EXPECT_EQ(executor->vocab_size(), 4096);
  EXPECT_EQ(executor->max_sequence_length(), 2048);
  EXPECT_FALSE(executor->memory().empty());
  for (const Case& c : golden_cases()) {
    const auto num = static_cast<int32_t>(c.greedy.size());
    if (num == 0) continue;
    const Received got = client.run(*executor, request(c.prompt, num + c.ends));
    EXPECT_EQ(got.tokens, c.greedy);
    EXPECT_EQ(got.reason(), c.ends ? FinishReason::kEndId : FinishReason::kLength);
  }
}

TEST(Executor, EveryWayGivesTheTokensOfOneAtATime) {
  ExecutorConfig plain;
  plain.enable_overlap = false;
  plain.kv_cache.enable_block_reuse = false;
  const auto all = requests();
  const auto expected = run_all(*open(plain), all, true);
  const auto expect_same = [&](const char* what, ExecutorConfig config,
                               bool one_at_a_time = false) {
    SCOPED_TRACE(what);
    auto executor = open(config);
    ASSERT_TRUE(executor);
    EXPECT_EQ(run_all(*executor, all, one_at_a_time), expected);
  };
  expect_same("batched, overlapped, reused", {});
  ExecutorConfig config = plain;
  expect_same("batched, nothing else", config);
  config = {};
  config.num_threads = 2;
  expect_same("two threads", config);
  for (int32_t chunk : {7, 32}) {
    config = {};
    config.max_num_tokens = chunk;
    expect_same("chunked", config);
  }
  std::vector<Request> twice = all;
  twice.insert(twice.end(), all.begin(), all.end());
  auto executor = open();
  auto got = run_all(*executor, twice, true);
  EXPECT_GT(executor->stats().kv_blocks_reused, 0);
  got.erase(got.begin(), got.begin() + static_cast<ptrdiff_t>(all.size()));
  EXPECT_EQ(got, expected) << "with prefix hits";
}

TEST(Executor, PreemptionChangesNothing) {
  std::vector<Request> all;
  for (const Case& c : golden_cases())
    if (c.prompt.size() < 60) all.push_back(request(c.prompt, 60));
  for (Request& r : all) r.end_ids = {};
  ExecutorConfig plain;
  const auto expected = run_all(*open(plain), all, true);
  ExecutorConfig tiny;
  tiny.kv_cache.max_tokens = 160;
  tiny.kv_cache.tokens_per_block = 16;
  auto executor = open(tiny);
  EXPECT_EQ(executor->max_sequence_length(), 160);
  EXPECT_EQ(run_all(*executor, all, false), expected);
  EXPECT_GT(executor->stats().num_preemptions, 0);
}

TEST(Executor, CancelsAmong64StreamsLeaveTheOthersAlone) {
  std::vector<Request> all;
  const auto base = requests();
  for (size_t i = 0; i < 64; ++i) {
    all.push_back(base[i % base.size()]);
    all.back().streaming = true;
    all.back().end_ids = {};
  }
  const auto expected = run_all(*open(), base.size() < 64 ? all : base, true);
  TestClient client;
  auto executor = open();
  std::vector<RequestId> sent;
  for (const Request& r : all) sent.push_back(client.send(*executor, r));
  std::mt19937 rng(5);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(milliseconds(rng() % 10));
    executor->cancel(sent[rng() % sent.size()]);
  }
  int cancelled = 0;
  for (size_t i = 0; i < sent.size(); ++i) {
    const Received got = client.wait(sent[i]);
    ASSERT_TRUE(got.last.status.ok()) << got.last.status;
    if (got.reason() == FinishReason::kCancelled) {
      ++cancelled;
      ASSERT_LE(got.tokens.size(), expected[i].size());
      EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), expected[i].begin()));
    } else {
      EXPECT_EQ(got.tokens, expected[i]) << "stream " << i;
    }
  }
  executor->drain(milliseconds(60000));
  EXPECT_EQ(executor->stats().num_cancelled, cancelled);
  EXPECT_EQ(executor->stats().kv_blocks_free, executor->stats().kv_blocks_total);
}

TEST(Executor, StopStringsAndStopWords) {
  TestClient client;
  auto executor = open();
  auto tokenizer = text::Tokenizer::load(kSource / "models/quickstart").value();
  const Case c = golden_cases().at(0);
  const Received whole = client.run(*executor, request(c.prompt, 30));
  Request r = request(c.prompt, 30);
  r.stop_words = {{whole.tokens[3], whole.tokens[4]}};
  const Received word = client.run(*executor, r);
  EXPECT_EQ(word.reason(), FinishReason::kStopWords);
  EXPECT_EQ(word.tokens, std::vector<TokenId>(whole.tokens.begin(), whole.tokens.begin() + 5));
  r.stop_words = {};
  r.stop_strings = {
      tokenizer->decode(std::vector<TokenId>{whole.tokens[5], whole.tokens[6]}, true)};
  for (const bool streaming : {false, true}) {
    r.streaming = streaming;
    const Received stopped = client.run(*executor, r);
    EXPECT_EQ(stopped.reason(), FinishReason::kStopWords);
    EXPECT_EQ(stopped.tokens, std::vector<TokenId>(whole.tokens.begin(), whole.tokens.begin() + 7));
  }
  executor->drain(milliseconds(60000));
  EXPECT_EQ(executor->stats().kv_blocks_free, executor->stats().kv_blocks_total);
}

TEST(Executor, MinTokensPostponesTheEnd) {
  TestClient client;
  auto executor = open();
  for (const Case& c : golden_cases()) {
    if (!c.ends) continue;
    Request r = request(c.prompt, 200);
    r.sampling.min_tokens = static_cast<int32_t>(c.greedy.size()) + 5;
    const Received got = client.run(*executor, r);
    EXPECT_GE(got.tokens.size(), c.greedy.size() + 5);
    EXPECT_TRUE(std::equal(c.greedy.begin(), c.greedy.end(), got.tokens.begin()));
    return;
  }
}

TEST(Executor, CreationErrorsNameTheOption) {
  const auto refusal = [](auto set) {
    ExecutorConfig config;
    config.num_threads = 1;
    config.cache_dir = cache_dir();
    set(config);
    auto executor = Executor::create(kSource / "models/quickstart", config);
    EXPECT_FALSE(executor.ok());
    return std::string(message(executor.status()));
  };
  EXPECT_THAT(refusal([](auto& c) { c.max_batch_size = -1; }), HasSubstr("max_batch_size: -1"));
  EXPECT_THAT(refusal([](auto& c) { c.kv_cache.tokens_per_block = 20; }),
              HasSubstr("tokens_per_block: 20 is not one of 16"));
  EXPECT_THAT(refusal([](auto& c) { c.forced_kernels = {"matmul:ref"}; }), HasSubstr("matmul:ref"));
  EXPECT_THAT(refusal([](auto& c) { c.forced_kernels = {"sample:none"}; }),
              HasSubstr("sample:none"));
  EXPECT_THAT(refusal([](auto& c) { c.device = "tpu"; }), HasSubstr("tpu"));
  EXPECT_THAT(refusal([](auto& c) { c.memory_bytes = 1000; }),
              HasSubstr("a memory budget of 0.0 MiB"));
  EXPECT_FALSE(Executor::create(kSource / "models/nowhere", {}).ok());
}

TEST(Executor, MemoryBudgetIsKept) {
  ExecutorConfig config;
  config.memory_bytes = 64 << 20;
  auto executor = open(config);
  ASSERT_TRUE(executor);
  int64_t total = 0;
  for (const MemoryUse& use : executor->memory()) total += use.bytes;
  EXPECT_LE(total, config.memory_bytes);
  EXPECT_GT(executor->stats().kv_blocks_total, 0);
}

TEST(Executor, AnEnginesLimitsStandForWhatIsLeftOpen) {
  const std::filesystem::path dir = cache_dir() / "limits";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  ASSERT_TRUE(convert::convert_checkpoint({.model_dir = kSource / "tests/models/llama",
                                           .output_dir = dir / "checkpoint",
                                           .dtype = "auto"})
                  .ok());
  const auto device = kernels::open_device("cpu", {.num_threads = 1});
  ASSERT_TRUE(device.ok()) << device.status();
  convert::EngineDirOptions options;
  options.checkpoint_dir = dir / "checkpoint";
  options.output_dir = dir / "engine";
  options.build_config = {{"max_batch_size", 48}, {"max_num_tokens", 99}};
  const Status built = convert::build_engine_dir(options, device->registry, device->device->info());
  ASSERT_TRUE(built.ok()) << built;
  const auto limits = [&](const char* model, int32_t batch, int32_t tokens) {
    ExecutorConfig config;
    config.num_threads = 1;
    config.cache_dir = cache_dir();
    config.max_batch_size = batch;
    config.max_num_tokens = tokens;
    const auto executor = Executor::create(dir / model, config);
    EXPECT_TRUE(executor.ok()) << executor.status();
    if (!executor.ok()) return std::pair(int64_t{0}, 0);
    TestClient client;
    client.run(**executor, request({1, 2, 3}, 1));
    (*executor)->drain(milliseconds(60000));
    const auto steps = (*executor)->latest_iteration_stats();
    const int32_t max_tokens = steps.empty() ? 0 : steps.front().max_num_tokens;
    return std::pair((*executor)->stats().max_batch_size, max_tokens);
  };
  EXPECT_EQ(limits("engine", 0, 0), std::pair(int64_t{48}, 99));
  EXPECT_EQ(limits("engine", 7, 64), std::pair(int64_t{7}, 64));
  EXPECT_EQ(limits("engine", 100, 100), std::pair(int64_t{48}, 99));
  EXPECT_EQ(limits("checkpoint", 0, 0), std::pair(int64_t{32}, 2048));
}

// The model's tokenizer with two tokens swapped.
std::filesystem::path draft_model_of_other_tokens() {
  const std::filesystem::path dir = cache_dir() / "other_tokens";
  std::filesystem::create_directories(dir);
  const auto options = std::filesystem::copy_options::overwrite_existing;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "models/quickstart-draft"))
    std::filesystem::copy_file(entry.path(), dir / entry.path().filename(), options);
  json::value tokens = read_json_file(kSource / "models/quickstart/tokenizer.json").value();
  json::object& vocab = tokens.at("model").at("vocab").as_object();
  std::swap(vocab.at("!"), vocab.at("?"));
  std::ofstream(dir / "tokenizer.json") << json::serialize(tokens);
  return dir;
}

TEST(ExecutorDraftModel, IsPartOfTheMemoryTableAndOfTheBudget) {
  ExecutorConfig config{.memory_bytes = 64 << 20, .max_batch_size = 16, .max_num_tokens = 256};
  const int64_t without = open(config)->stats().kv_blocks_total;
  config.draft_model = kSource / "models/quickstart-draft";
  const auto executor = open(config);
  EXPECT_LT(executor->stats().kv_blocks_total, without);
  int64_t bytes = 0;
  std::string lines;
  for (const MemoryUse& use : executor->memory()) {
    bytes += use.bytes;
    lines += use.what + "\n";
  }
  EXPECT_LE(bytes, config.memory_bytes);
  EXPECT_THAT(lines, HasSubstr("draft model: weights\n"));
  EXPECT_THAT(lines, HasSubstr("draft model: KV cache\n"));
  config.speculation = "none";
  EXPECT_EQ(open(config)->stats().kv_blocks_total, without) << "nobody asks it";
}

TEST(ExecutorDraftModel, OfOtherTokensIsRefused) {
  ExecutorConfig config{.num_threads = 1};
  config.cache_dir = cache_dir();
  const auto refusal = [&](const std::filesystem::path& draft_model) {
    config.draft_model = draft_model;
    const auto executor = Executor::create(kSource / "models/quickstart", config);
    return std::string(executor.status().message());
  };
  EXPECT_THAT(
      refusal(draft_model_of_other_tokens()),
      ::testing::MatchesRegex("draft_model: token [0-9]+ of '.*other_tokens' differs from the "
                              "model's"));
  const std::filesystem::path smaller = cache_dir() / "smaller";
  std::filesystem::create_directories(smaller);
  json::value facts = read_json_file(kSource / "models/quickstart-draft/config.json").value();
  facts.as_object()["vocab_size"] = 4000;
  std::ofstream(smaller / "config.json") << json::serialize(facts);
  config.random_weights = true;
  EXPECT_THAT(refusal(smaller), HasSubstr("has a vocabulary of 4000 tokens; allowed is the "
                                          "model's, 4096"));
  EXPECT_THAT(refusal(cache_dir() / "nothing"), HasSubstr("draft_model"));
}

}  // namespace
}  // namespace nereid::runtime
