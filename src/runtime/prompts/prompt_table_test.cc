// Prompt tables on the shipped model, CPU. The exactness suite compares the ways to run them.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "io/engine_file.h"
#include "io/safetensors.h"
#include "kernels/api/pack.h"
#include "kernels/open.h"
#include "nereid/executor.h"
#include "runtime/prompts/prompt_table.h"

namespace nereid::runtime {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kTableModel = std::filesystem::path(source_dir()) / "models/quickstart";

ExecutorConfig table_config() {
  ExecutorConfig config;
  config.num_threads = 1;
  config.kv_cache.tokens_per_block = 16;
  config.kv_cache.max_tokens = 4096;
  config.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_prompt_table_test";
  return config;
}

Response last_of(Executor& executor, RequestId id) {
  std::vector<Response> some = executor.await_responses(id, std::chrono::seconds(60));
  if (some.empty() || !some.back().is_final) return {.status = internal_error("it has not ended")};
  return std::move(some.back());
}

class PromptTables : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    executor_ = Executor::create(kTableModel, table_config()).value();
  }
  static void TearDownTestSuite() { executor_ = nullptr; }

  // 40 tokens with repetitions.
  static Request text() {
    Request r;
    for (int32_t i = 0; i < 40; ++i) r.input_token_ids.push_back(100 + i % 19 * 7);
    r.max_tokens = 12;
    r.output.return_log_probs = true;
    r.output.num_top_log_probs = 3;
    return r;
  }
  // Tokens [first, last) of the text are table rows of constant `value`.
  static Request with_rows(size_t first, size_t last, float value) {
    Request r = text();
    PromptTable& table = r.prompt_table.emplace();
    table.width = executor_->embedding_width();
    table.values.assign(2 * static_cast<size_t>(table.width), to_bf16(value).bits);
    for (size_t i = first; i < last; ++i)
      r.input_token_ids[i] = executor_->vocab_size() + static_cast<TokenId>(i % 2);
    return r;
  }
  static Response run(const Request& r) {
    const auto id = executor_->enqueue(r);
    if (!id.ok()) return {.status = id.status(), .is_final = true};
    return last_of(*executor_, *id);
  }
  // Prefix cache blocks that the prompt hit.
  static int64_t reused(const Request& r) {
    const int64_t before = executor_->stats().kv_blocks_reused;
    EXPECT_TRUE(run(r).status.ok());
    return executor_->stats().kv_blocks_reused - before;
  }

  static inline std::unique_ptr<Executor> executor_;
};

// The engine's own embedding rows.
std::vector<uint16_t> own_rows(const std::vector<TokenId>& tokens) {
  const auto device = kernels::open_device("cpu", {.num_threads = 1}).value();
  convert::BuildOptions build;
  build.cache_dir = table_config().cache_dir;
  const auto path =
      convert::ensure_engine(kTableModel, device.registry, device.device->info(), build).value();
  const io::EngineFile engine = io::EngineFile::open(path).value();
  std::vector<uint16_t> rows;
  for (const io::Call& call : engine.plan().calls)
    if (const auto* embed = std::get_if<kernels::ids::Embed>(&call.op)) {
      const io::PlanWeight& weight = engine.plan().weights[static_cast<size_t>(embed->table)];
      const kernels::WeightView table = io::view_of(weight, engine.blob().data());
      for (const TokenId token : tokens)
        for (int64_t c = 0; c < table.k; ++c)
          rows.push_back(to_bf16(kernels::weight_at(table, token, c)).bits);
    }
  return rows;
}

void expect_same(const Response& a, const Response& b) {
  ASSERT_TRUE(a.status.ok() && b.status.ok()) << a.status << b.status;
  EXPECT_EQ(a.outputs[0].token_ids, b.outputs[0].token_ids);
  EXPECT_EQ(a.outputs[0].log_probs, b.outputs[0].log_probs);
}

TEST_F(PromptTables, TheModelsOwnRowsAreItsTokens) {
  const Response expected = run(text());
  for (const size_t every : {1, 3}) {
    Request r = text();
    PromptTable& table = r.prompt_table.emplace();
    table.width = executor_->embedding_width();
    table.values = own_rows(r.input_token_ids);
    for (size_t i = 0; i < r.input_token_ids.size(); i += every)
      r.input_token_ids[i] = executor_->vocab_size() + static_cast<TokenId>(i);
    expect_same(run(r), expected);
  }
}

TEST_F(PromptTables, EqualRowsShareTheirPrefix) {
  EXPECT_LE(reused(with_rows(4, 8, 0.5f)), 1) << "the text in front of the rows";
  EXPECT_GE(reused(with_rows(4, 8, 0.5f)), 2);
  EXPECT_LE(reused(with_rows(4, 8, 0.25f)), 1);
  Request r = with_rows(20, 24, 0.5f);
  r.cache_salt = "extra";
  EXPECT_EQ(reused(r), 0);
  r.prompt_table->extra_ids.assign(40, 0);
  EXPECT_GE(reused(r), 2);
  r.prompt_table->extra_ids[21] = 5;
  EXPECT_LE(reused(r), 2) << "the first block, and a part of the second";
  r.prompt_table->extra_ids[0] = 5;
  EXPECT_EQ(reused(r), 0);
  EXPECT_GE(reused(r), 2);
  const Response whole = run(with_rows(4, 8, 0.5f));
  Request unshared = with_rows(4, 8, 0.5f);
  unshared.cache_salt = "alone";
  expect_same(run(unshared), whole);
}

TEST_F(PromptTables, RowsThatAreNoNumbersFailTheirRequestOnly) {
  const Response expected = run(text());
  for (int i = 0; i < 3; ++i) {
    const auto bad = executor_->enqueue(
        with_rows(3, 5 + 10 * static_cast<size_t>(i), std::numeric_limits<float>::quiet_NaN()));
    const auto good = executor_->enqueue(text());
    ASSERT_TRUE(bad.ok() && good.ok());
    EXPECT_THAT(last_of(*executor_, *bad).status.ToString(), HasSubstr("not finite"));
    expect_same(last_of(*executor_, *good), expected);
    expect_same(run(text()), expected);
  }
}

TEST_F(PromptTables, IdsBehindTheTableAreRefused) {
  Request r = with_rows(3, 5, 0.5f);
  r.input_token_ids[9] = executor_->vocab_size() + 2;
  EXPECT_THAT(run(r).status.ToString(),
              HasSubstr(fmt::format("input_token_ids[9]: {} is not in [0, {})",
                                    executor_->vocab_size() + 2, executor_->vocab_size() + 2)));
  r.prompt_table = std::nullopt;
  EXPECT_THAT(run(r).status.ToString(), HasSubstr("input_token_ids[3]"));
}

// Table rows repeat in the text but are neither drafts nor in penalties or bans; the echo has them.
TEST_F(PromptTables, GuessesAndPenaltiesDoNotKnowThem) {
  ExecutorConfig config = table_config();
  config.speculation = "ngram";
  const auto speculating = Executor::create(kTableModel, config).value();
  Request r = with_rows(0, 40, 0.5f);
  r.input_token_ids[39] = 100;
  r.sampling.no_repeat_ngram_size = 2;
  r.sampling.repetition_penalty = 1.3f;
  r.sampling.frequency_penalty = 0.5f;
  r.output.exclude_input_from_output = false;
  for (const size_t num_ids : {size_t{40}, size_t{38}}) {
    r.input_token_ids.resize(num_ids);
    const Response expected = run(r);
    const auto id = speculating->enqueue(r);
    ASSERT_TRUE(id.ok()) << id.status();
    expect_same(last_of(*speculating, *id), expected);
    ASSERT_EQ(expected.outputs[0].token_ids.size(), num_ids + 12);
    EXPECT_TRUE(std::ranges::equal(std::span(expected.outputs[0].token_ids).first(num_ids),
                                   r.input_token_ids));
  }
}

// Three rows of that many columns, as PEFT saves them after prompt tuning.
void write_rows(const std::filesystem::path& dir, const std::vector<float>& numbers,
                int64_t columns) {
  std::filesystem::create_directories(dir);
  const auto count = static_cast<size_t>(3 * columns);
  const io::StoredTensor tensor{"prompt_embeddings",
                                "F32",
                                DType::kF32,
                                {3, columns},
                                std::as_bytes(std::span(numbers).first(count)),
                                nullptr};
  std::ofstream(dir / "adapter_model.safetensors", std::ios::binary)
      << io::serialize_safetensors(std::span(&tensor, 1));
  std::ofstream(dir / "adapter_config.json")
      << R"({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 3, "token_dim": 256})";
}

TEST_F(PromptTables, AnAdapterOfRowsStandsInFrontOfTheTokens) {
  const auto dir = std::filesystem::path(testing::TempDir()) / "nereid_prompt_tuning";
  std::filesystem::remove_all(dir);
  const auto width = static_cast<size_t>(executor_->embedding_width());
  std::vector<float> numbers;
  for (size_t i = 0; i < 3 * width; ++i) numbers.push_back(static_cast<float>(i % 37) / 64 - 0.25f);
  write_rows(dir, numbers, static_cast<int64_t>(width));
  ExecutorConfig config = table_config();
  config.enable_lora = true;
  config.lora_directories = {{7, dir}};
  const auto named = Executor::create(kTableModel, config).value();
  const auto ask = [&](Request r) {
    r.lora = LoraConfig{.task_id = 7};
    const auto id = named->enqueue(std::move(r));
    return id.ok() ? last_of(*named, *id) : Response{.status = id.status(), .is_final = true};
  };
  // The same rows in the request itself.
  Request own = with_rows(4, 8, 0.5f), more = own;
  own.sampling.prompt_ignore_length = 40;
  own.sampling.presence_penalty = 0.5f;
  more = own;
  more.sampling.prompt_ignore_length = 43;
  for (TokenId& id : more.input_token_ids) id += id >= executor_->vocab_size() ? 3 : 0;
  for (TokenId i = 2; i >= 0; --i)
    more.input_token_ids.insert(more.input_token_ids.begin(), executor_->vocab_size() + i);
  std::vector<uint16_t> rows;
  for (const float x : numbers) rows.push_back(to_bf16(x).bits);
  more.prompt_table->values.insert(more.prompt_table->values.begin(), rows.begin(), rows.end());
  const Response expected = run(more);
  expect_same(ask(own), expected);
  EXPECT_NE(run(own).outputs[0].log_probs, expected.outputs[0].log_probs) << "without the rows";
  own.output.exclude_input_from_output = false;
  const Response echoed = ask(own);
  ASSERT_TRUE(echoed.status.ok()) << echoed.status;
  EXPECT_TRUE(
      std::ranges::equal(std::span(echoed.outputs[0].token_ids).first(40), own.input_token_ids));
  // They count toward the length limit.
  own.input_token_ids.resize(static_cast<size_t>(named->max_sequence_length()) - 2, 100);
  own.max_tokens = 1;
  EXPECT_FALSE(ask(own).status.ok());
  write_rows(dir, numbers, 8);
  config.lora_directories = {{8, dir}};
  const auto narrow = Executor::create(kTableModel, config).value();
  Request r = text();
  r.lora = LoraConfig{.task_id = 8};
  EXPECT_THAT(narrow->enqueue(r).status().ToString(), HasSubstr("width: 8 is not 256"));
}

TEST(InputKeys, AreOfRowsAndExtraIds) {
  Request r;
  r.input_token_ids = {64, 1, 65, 64, 2};
  EXPECT_TRUE(input_keys(r, 64).empty());
  r.prompt_table = PromptTable{.values = {1, 2, 3, 4}, .width = 2, .extra_ids = {}};
  const auto keys = input_keys(r, 64);
  ASSERT_EQ(keys.size(), 5u);
  EXPECT_EQ(keys[0], keys[3]);
  EXPECT_NE(keys[0], keys[2]);
  EXPECT_EQ(keys[1], sched::InputKey());
  r.prompt_table->values[3] = 5;
  r.prompt_table->extra_ids = {0, 9, 0, 7, 0};
  const auto others = input_keys(r, 64);
  EXPECT_EQ(others[0], keys[0]);
  EXPECT_NE(others[1], sched::InputKey());
  EXPECT_NE(others[2], keys[2]);
  EXPECT_NE(others[3], keys[3]);
  EXPECT_EQ(others[4], sched::InputKey());
}

}  // namespace
}  // namespace nereid::runtime
