// Every feature times every way to run it, shipped model, CPU: tokens, log-probabilities and logits
// equal, bit by bit, those of the same request alone, without chunks, cache or overlap.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string_view>

#include "exec/step_message.h"
#include "runtime/testing/exactness.h"
#include "runtime/testing/exactness_columns.h"
#include "runtime/testing/exactness_models.h"
#include "runtime/testing/exactness_proposer.h"
#include "runtime/testing/mixed_engine.h"

namespace nereid::runtime::exactness {
namespace {

using std::chrono::milliseconds;

constexpr int32_t kNumNewTokens = 24;
constexpr int32_t kWrongDraftIds = 1000;  // range of wrong drafts

std::unique_ptr<Executor> open(const ExecutorConfig& config, const Numerics& numerics,
                               bool in_second_process = false,
                               std::unique_ptr<Proposer> proposer = nullptr, bool late = false) {
  StatusOr<std::filesystem::path> model = exactness_model();
  if (!numerics.windows.empty()) model = mixed_engine(exactness_model(), config, numerics.windows);
  if (numerics.weights) model = engine_with(exactness_model(), config, *numerics.weights);
  if (!model.ok()) ADD_FAILURE() << model.status();
  auto executor = create_executor(model.value_or(exactness_model()), config, in_second_process,
                                  std::move(proposer), late);
  if (!executor.ok()) ADD_FAILURE() << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

const text::Tokenizer& tokenizer() {
  static const auto loaded = text::Tokenizer::load(exactness_model()).value();
  return *loaded;
}

Request bare_request(int prompt) {
  static const auto all = prompts(tokenizer());
  Request r;
  r.input_token_ids = all.at(static_cast<size_t>(prompt));
  r.max_tokens = kNumNewTokens;
  return r;
}

// Requests of the rows, and their expected outcomes.
struct Expectations {
  std::vector<Request> requests;
  std::vector<Outcome> outcomes;
};

const Outcome& outcome_of(const Expectations& e, std::string_view row) {
  const auto it = std::ranges::find(rows(), row, &Row::name);
  EXPECT_NE(it, rows().end()) << "no row " << row;
  return e.outcomes.at(static_cast<size_t>(it - rows().begin()));
}

Expectations run_plainly(const Numerics& numerics) {
  ExecutorConfig config = plain();
  numerics.set(config);
  Client client;
  Expectations e;
  const auto executor = open(config, numerics);
  if (!executor) return e;
  std::map<int, Outcome> bare_outcomes;  // by prompt
  for (const Row& row : rows()) {
    Request r = bare_request(row.prompt);
    const auto [bare, is_new] = bare_outcomes.try_emplace(row.prompt);
    if (is_new) bare->second = client.run(*executor, r);
    const auto tokens_of = [&](std::string_view name) {
      return outcome_of(e, name).sequences.at(0).at(0).tokens;
    };
    row.set(r, {bare->second.sequences.at(0).at(0).tokens, tokenizer(), *executor, tokens_of});
    e.requests.push_back(std::move(r));
    e.outcomes.push_back(client.run(*executor, e.requests.back()));
    EXPECT_TRUE(e.outcomes.back().status.ok()) << row.name << ": " << e.outcomes.back().status;
  }
  return e;
}

const Expectations& expected(const Numerics& numerics) {
  static std::map<std::string_view, Expectations> known;
  const auto [it, is_new] = known.try_emplace(numerics.name);
  if (is_new) it->second = run_plainly(numerics);
  return it->second;
}

std::unique_ptr<Proposer> row_proposer(const Expectations& e, bool in_trees) {
  return std::make_unique<RowProposer>(e.requests, e.outcomes, kWrongDraftIds, in_trees);
}

// Shares a block and a part of the next with the row, then diverges.
Request primer(const Request& row) {
  Request r;
  const size_t shared = (row.input_token_ids.size() - 1) / kBlock * kBlock - kBlock + 9;
  r.input_token_ids = {row.input_token_ids.begin(),
                       row.input_token_ids.begin() + static_cast<ptrdiff_t>(shared)};
  r.input_token_ids.resize(shared + 2 * kBlock, 77);
  r.max_tokens = 1;
  r.cache_salt = row.cache_salt;
  r.prompt_table = row.prompt_table;
  if (r.prompt_table) r.prompt_table->extra_ids.resize(r.input_token_ids.size());
  return r;
}

Request shaped(const Row& row, Request r, Way way) {
  if (way == Way::kPrimed) r.cache_salt += row.name;  // separates other rows' prefixes
  r.streaming = row.streams && (way == Way::kStreamed || way == Way::kStreamedWhole);
  if (way == Way::kStreamedWhole) r.return_all_generated_tokens = true;
  return r;
}

// Random other requests that hold memory for longer than the rows.
Request companion(size_t seed) {
  Request r = bare_request(static_cast<int>(seed % 3));
  r.input_token_ids.resize(r.input_token_ids.size() - seed % 13);
  r.max_tokens = 90;
  r.sampling.top_p = 1.0f;
  r.sampling.temperature = 5.0f;
  r.sampling.seed = seed;
  return r;
}

// No value: the executor cannot run the row.
using Outcomes = std::vector<std::optional<Outcome>>;

bool can_run(const ExecutorConfig& config, const Request& request) {
  return request.sampling.beam_width <= config.max_beam_width;
}

Outcomes run_together(Executor& executor, const std::vector<Request>& requests,
                      const ExecutorConfig& config) {
  Client client;
  std::vector<size_t> order(requests.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(requests.size()));
  std::vector<std::optional<RequestId>> ids(requests.size());
  std::vector<RequestId> others;
  for (const size_t i : order) {
    if (i % 8 == 0) others.push_back(client.send(executor, companion(i)));
    if (can_run(config, requests[i])) ids[i] = client.send(executor, requests[i]);
  }
  Outcomes out;
  for (const auto& id : ids)
    out.push_back(id ? std::optional<Outcome>(client.wait(*id)) : std::nullopt);
  for (const RequestId id : others) EXPECT_TRUE(client.wait(id).status.ok());
  return out;
}

Outcomes run_one_by_one(Executor& executor, const std::vector<Request>& requests, Way way,
                        const ExecutorConfig& config) {
  Client client;
  Outcomes out;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request r = shaped(rows()[i], requests[i], way);
    if (!can_run(config, r)) {
      out.emplace_back();
      continue;
    }
    if (way == Way::kTwice) client.run(executor, r);
    if (way == Way::kPrimed) client.run(executor, primer(r));
    out.push_back(client.run(executor, r));
    if (r.streaming) {
      EXPECT_GT(out.back()->num_responses, 1) << rows()[i].name;
    }
  }
  return out;
}

Outcomes run(Executor& executor, const std::vector<Request>& requests, Way way,
             const ExecutorConfig& config) {
  if (way == Way::kBatch) return run_together(executor, requests, config);
  if (way == Way::kRounds) run_one_by_one(executor, requests, way, config);
  return run_one_by_one(executor, requests, way, config);
}

struct Cell {
  Numerics numerics;
  Column column;
};

// Text of failures.
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.numerics.name << cell.column.name;
}

void set_ranks(const Column& column, ExecutorConfig& config) {
  config.tensor_parallel = std::to_string(column.tp);
  config.pipeline_parallel = column.pp;
}

class Exactness : public testing::TestWithParam<Cell> {};

TEST_P(Exactness, EveryRowEqualsItselfAlone) {
  const auto& [numerics, column] = GetParam();
  const Expectations& e = expected(numerics);
  ASSERT_EQ(e.outcomes.size(), rows().size());
  ExecutorConfig config = plain();
  numerics.set(config);
  if (column.propose) column.propose(config);
  if (column.set) column.set(config, column.argument);
  set_ranks(column, config);
  const bool needs_less = config.kv_cache.max_attention_window > 0;  // blocks are freed meanwhile
  const bool must_happen = column.happened && !needs_less;
  ExecutorStats stats;
  // Overlap of requests depends on the machine: without it they are sent again.
  constexpr int kTries = 20;
  for (int i = 0; i < kTries && (i == 0 || (must_happen && !column.happened(stats))); ++i) {
    const auto executor =
        open(config, numerics, column.in_second_process,
             column.is_speculated ? row_proposer(e, column.in_trees) : nullptr, column.is_late);
    ASSERT_TRUE(executor);
    const Outcomes got = run(*executor, e.requests, column.way, config);
    for (size_t row = 0; row < got.size(); ++row)
      if (got[row]) {
        EXPECT_EQ(difference(e.outcomes[row], *got[row]), "") << "row " << rows()[row].name;
      }
    executor->drain(milliseconds(60000));
    stats = executor->stats();
  }
  if (must_happen) {
    EXPECT_TRUE(column.happened(stats)) << "the column did not do its work";
  }
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
}

bool runs_with(const Column& column, const Numerics& numerics) {
  if (column.is_on_ranks() != numerics.is_of_ranks) return false;
  const std::string_view name = numerics.name;
  return name.empty() || name == "Ranks" || column.breadth == Breadth::kAll ||
         (column.breadth == Breadth::kCaches && numerics.is_of_cache);
}

std::vector<Cell> cells() {
  std::vector<Cell> out;
  for (const Numerics& numerics : all_numerics())
    for (const Column& column : columns())
      if (runs_with(column, numerics)) out.push_back({numerics, column});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Way, Exactness, testing::ValuesIn(cells()), [](const auto& info) {
  return info.param.numerics.name + info.param.column.name;
});

// All drafts but one are right; the engine continues without drafts.
TEST(Drafts, ThoseOfTheRequestChangeNothing) {
  const Expectations& e = expected(all_numerics().front());
  for (const char* speculation : {"none", "ngram"}) {
    ExecutorConfig config = plain();
    usual(config, 0);
    config.speculation = speculation;
    const auto executor = open(config, {});
    ASSERT_TRUE(executor);
    Client client;
    for (size_t i = 0; i < rows().size(); ++i) {
      Request r = e.requests[i];
      if (r.sampling.beam_width > 1 || r.guided_decoding) continue;  // no drafts with these
      r.draft_token_ids = e.outcomes[i].sequences.at(0).at(0).tokens;
      if (r.draft_token_ids.size() > 8) ++r.draft_token_ids[8];
      EXPECT_EQ(difference(e.outcomes[i], client.run(*executor, r)), "") << rows()[i].name;
    }
    const ExecutorStats stats = executor->stats();
    EXPECT_GT(stats.num_accepted_drafts, 200);
    EXPECT_LT(stats.num_accepted_drafts, stats.num_drafts);
  }
}

// A row with the outcome of its base would test nothing.
TEST(ExactnessRows, EachFeatureDoesSomething) {
  const Expectations& e = expected(all_numerics().front());
  ASSERT_EQ(e.outcomes.size(), rows().size());
  for (size_t i = 0; i < rows().size(); ++i) {
    const char* base = rows()[i].base;
    if (!base) continue;
    EXPECT_NE(difference(outcome_of(e, base), e.outcomes[i]), "")
        << rows()[i].name << " equals " << base;
  }
}

TEST(ExactnessRows, EachNumericsDoesSomething) {
  for (const Numerics& numerics : all_numerics().subspan(1)) {
    const Expectations& e = expected(numerics);
    const Outcome& usual_outcome = outcome_of(expected(all_numerics().front()), "top_k_log_probs");
    EXPECT_NE(difference(usual_outcome, outcome_of(e, "top_k_log_probs")), "") << numerics.name;
  }
}

TEST(SecondProcess, RefusesWhatIsNoMessageAndGoesOn) {
  ExecutorConfig config = plain();
  auto model = open_remote(exactness_model(), config);
  ASSERT_TRUE(model.ok()) << model.status();
  exec::Runner& runner = *model->runner;
  const TokenId tokens[] = {1, 2, 3};
  const int32_t block = 0;
  exec::StepMessage step;
  step.add({.slot = 0, .num_logits = 1, .samples = 1}, tokens, std::span(&block, 1), 1, kBlock);
  step.loads.push_back({.slot = 0});
  std::vector<std::byte> good, foreign;
  exec::encode(step, good);
  step.blocks[0] = runner.limits().num_blocks[0];
  exec::encode(step, foreign);
  const auto wait = [&](std::span<const std::byte> message) {
    auto ticket = runner.launch(message);
    const auto result = runner.wait(*ticket);
    return result.ok() && (*result)[0].drawn[0].token >= 0 ? "" : result.status().ToString();
  };
  EXPECT_EQ(wait(good), "");
  EXPECT_NE(wait(foreign).find("row 0: block"), std::string::npos);
  EXPECT_NE(wait(std::span(good).first(good.size() - 8)).find("does not hold"), std::string::npos);
  EXPECT_NE(wait({}).find("its header alone"), std::string::npos);
  EXPECT_EQ(wait(good), "");
}

// A layer with a window keeps the window plus one block, a layer without everything.
TEST(CacheGroups, AWindowHoldsOneBlockMoreAtSixteenWindows) {
  constexpr int32_t kWindow = 2 * kBlock, kLength = 16 * kWindow;
  for (const bool overlap : {false, true}) {
    ExecutorConfig config = plain();
    config.enable_overlap = overlap;
    const auto executor = open(config, {"", nullptr, {kWindow, 0}});
    ASSERT_TRUE(executor);
    Request r = bare_request(0);
    r.input_token_ids.resize(kBlock);
    r.max_tokens = kLength - kBlock;
    r.sampling.min_tokens = r.max_tokens;
    Client client;
    const Outcome outcome = client.run(*executor, r);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    ASSERT_EQ(outcome.sequences.at(0).at(0).tokens.size(), static_cast<size_t>(r.max_tokens));
    executor->drain(milliseconds(60000));
    const ExecutorStats stats = executor->stats();
    ASSERT_EQ(stats.num_kv_groups, 2);
    EXPECT_EQ(stats.kv_groups[0].window, 0);
    EXPECT_EQ(stats.kv_groups[0].blocks_held_most, kLength / kBlock);
    EXPECT_EQ(stats.kv_groups[1].window, kWindow);
    EXPECT_EQ(stats.kv_groups[1].blocks_held_most, kWindow / kBlock + 1);
    std::string lines;
    for (const MemoryUse& use : executor->memory()) lines += use.what + "\n";
    EXPECT_NE(lines.find("KV cache of 3 layers with a window of 32\n"), std::string::npos) << lines;
  }
}

}  // namespace
}  // namespace nereid::runtime::exactness
