// Every feature under every way to run it, on the shipped model and the CPU: tokens, log-probs and
// logits must be those of the same request alone, unchunked, without cache or overlap, bit by bit.
// NEREID_EXACTNESS=quick runs the columns marked so (for sanitizer builds).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string_view>

#include "runtime/exactness.h"

namespace nereid::runtime::exactness {
namespace {

using std::chrono::milliseconds;

const std::filesystem::path kModel = std::filesystem::path(NEREID_SOURCE_DIR) / "models/quickstart";
constexpr int32_t kNumNewTokens = 24;
constexpr int32_t kBlock = 16;

// What changes the results by right, so that each has expectations of its own.
struct Numerics {
  const char* name;
  void (*set)(ExecutorConfig&);
};

enum class Way { kAlone, kBatch, kTwice, kPrimed, kStreamed, kStreamedWhole };

// One way to run the rows.
struct Column {
  std::string name;
  Way way = Way::kAlone;
  void (*set)(ExecutorConfig&, int) = nullptr;
  int argument = 0;
  bool (*happened)(const ExecutorStats&) = nullptr;  // the way was really gone
  bool quick = false;
};

const Numerics kNumerics[] = {
    {"", [](ExecutorConfig&) {}},
};

// Everything that could disturb is off.
ExecutorConfig plain() {
  ExecutorConfig c;
  c.num_threads = 1;
  c.enable_overlap = false;
  c.kv_cache.enable_block_reuse = false;
  c.kv_cache.tokens_per_block = kBlock;
  c.kv_cache.max_tokens = 8192;
  c.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_exactness_test";
  return c;
}

void usual(ExecutorConfig& c, int) {
  c.enable_overlap = true;
  c.kv_cache.enable_block_reuse = true;
}

void tiny(ExecutorConfig& c, int blocks) {
  usual(c, 0);
  c.kv_cache.max_tokens = blocks * kBlock;
}

std::vector<Column> columns() {
  const auto overlapped = [](ExecutorConfig& c, int) { c.enable_overlap = true; };
  const auto chunk = [](ExecutorConfig& c, int tokens) { c.max_num_tokens = tokens; };
  const auto usual_chunk = [](ExecutorConfig& c, int tokens) {
    usual(c, 0);
    c.max_num_tokens = tokens;
  };
  const auto threads = [](ExecutorConfig& c, int n) { c.num_threads = n; };
  const auto rows_at_once = [](ExecutorConfig& c, int n) { c.max_batch_size = n; };
  const auto block_size = [](ExecutorConfig& c, int tokens) {
    usual(c, 0);
    c.kv_cache.tokens_per_block = tokens;
  };
  const auto preempted = [](const ExecutorStats& s) { return s.num_preemptions > 0; };
  const auto reused = [](const ExecutorStats& s) { return s.kv_blocks_reused > 0; };
  std::vector<Column> all = {
      {.name = "Alone", .quick = true},
      {.name = "Overlap", .set = overlapped, .quick = true},
      {.name = "TwoThreads", .set = threads, .argument = 2},
      {.name = "Batch", .way = Way::kBatch, .quick = true},
      {.name = "BatchTwoThreads", .way = Way::kBatch, .set = threads, .argument = 2},
      {.name = "BatchUsual", .way = Way::kBatch, .set = usual, .quick = true},
      {.name = "BatchFewRows", .way = Way::kBatch, .set = rows_at_once, .argument = 5},
      {.name = "BatchChunked", .way = Way::kBatch, .set = usual_chunk, .argument = 50},
      {.name = "PrefixHit", .way = Way::kTwice, .set = usual, .happened = reused, .quick = true},
      {.name = "Paused",
       .way = Way::kBatch,
       .set = tiny,
       .argument = 12,
       .happened = preempted,
       .quick = true},
      {.name = "Streamed", .way = Way::kStreamed, .set = usual, .quick = true},
      {.name = "Blocks32", .way = Way::kTwice, .set = block_size, .argument = 32},
      {.name = "Blocks64", .way = Way::kTwice, .set = block_size, .argument = 64},
      {.name = "Blocks128", .way = Way::kBatch, .set = block_size, .argument = 128},
  };
  for (int tokens = 1; tokens <= kBlock; ++tokens)
    all.push_back({.name = "Chunk" + std::to_string(tokens),
                   .set = chunk,
                   .argument = tokens,
                   .quick = tokens == 7});
  for (const int tokens : {17, 31, 32, 33, 48, 64})
    all.push_back({.name = "Chunk" + std::to_string(tokens), .set = chunk, .argument = tokens});
  return all;
}

std::unique_ptr<Executor> open(const ExecutorConfig& config) {
  auto executor = Executor::create(kModel, config);
  if (!executor.ok()) ADD_FAILURE() << executor.status();
  return executor.ok() ? *std::move(executor) : nullptr;
}

const text::Tokenizer& tokenizer() {
  static const auto loaded = text::Tokenizer::load(kModel).value();
  return *loaded;
}

Request bare_request(int prompt) {
  static const auto all = prompts(tokenizer());
  Request r;
  r.input_token_ids = all.at(static_cast<size_t>(prompt));
  r.max_tokens = kNumNewTokens;
  return r;
}

// The rows' requests, and what each must give.
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
  const auto executor = open(config);
  if (!executor) return e;
  for (const Row& row : rows()) {
    Request r = bare_request(row.prompt);
    const Outcome bare = client.run(*executor, r);
    const auto tokens_of = [&](std::string_view name) {
      return outcome_of(e, name).sequences.at(0).at(0).tokens;
    };
    row.set(r, {bare.sequences.at(0).at(0).tokens, tokenizer(), executor->vocab_size(), tokens_of});
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

Request shaped(const Row& row, Request r, Way way) {
  r.streaming = row.streams && (way == Way::kStreamed || way == Way::kStreamedWhole);
  if (way == Way::kStreamedWhole) r.return_all_generated_tokens = true;
  return r;
}

// Random company that takes memory for longer than the rows do.
Request companion(size_t seed) {
  Request r = bare_request(static_cast<int>(seed % 3));
  r.input_token_ids.resize(r.input_token_ids.size() - seed % 13);
  r.max_tokens = 90;
  r.sampling.top_p = 1.0f;
  r.sampling.temperature = 5.0f;
  r.sampling.seed = seed;
  return r;
}

std::vector<Outcome> run_together(Executor& executor, const std::vector<Request>& requests) {
  Client client;
  std::vector<size_t> order(requests.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(requests.size()));
  std::vector<RequestId> ids(requests.size()), others;
  for (const size_t i : order) {
    if (i % 8 == 0) others.push_back(client.send(executor, companion(i)));
    ids[i] = client.send(executor, requests[i]);
  }
  std::vector<Outcome> out;
  for (const RequestId id : ids) out.push_back(client.wait(id));
  for (const RequestId id : others) EXPECT_TRUE(client.wait(id).status.ok());
  return out;
}

std::vector<Outcome> run(Executor& executor, const Expectations& e, Way way) {
  if (way == Way::kBatch) return run_together(executor, e.requests);
  Client client;
  std::vector<Outcome> out;
  for (size_t i = 0; i < e.requests.size(); ++i) {
    const Request r = shaped(rows()[i], e.requests[i], way);
    if (way == Way::kTwice) client.run(executor, r);
    out.push_back(client.run(executor, r));
    if (r.streaming) {
      EXPECT_GT(out.back().num_responses, 1) << rows()[i].name;
    }
  }
  return out;
}

struct Cell {
  Numerics numerics;
  Column column;
};

// What a failure prints.
void PrintTo(const Cell& cell, std::ostream* out) {
  *out << cell.numerics.name << cell.column.name;
}

class Exactness : public testing::TestWithParam<Cell> {};

TEST_P(Exactness, EveryRowEqualsItselfAlone) {
  const auto& [numerics, column] = GetParam();
  const Expectations& e = expected(numerics);
  ASSERT_EQ(e.outcomes.size(), rows().size());
  ExecutorConfig config = plain();
  numerics.set(config);
  if (column.set) column.set(config, column.argument);
  const auto executor = open(config);
  ASSERT_TRUE(executor);
  const std::vector<Outcome> got = run(*executor, e, column.way);
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(difference(e.outcomes[i], got[i]), "") << "row " << rows()[i].name;
  executor->drain(milliseconds(60000));
  const ExecutorStats stats = executor->stats();
  if (column.happened) {
    EXPECT_TRUE(column.happened(stats)) << "the column did not do its work";
  }
  EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
  EXPECT_EQ(stats.kv_host_blocks_free, stats.kv_host_blocks_total);
}

std::vector<Cell> cells() {
  const char* knob = std::getenv("NEREID_EXACTNESS");
  const bool quick = knob && std::string_view(knob) == "quick";
  std::vector<Cell> out;
  for (const Numerics& numerics : kNumerics)
    for (const Column& column : columns())
      if (column.quick || (!quick && *numerics.name == '\0')) out.push_back({numerics, column});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Way, Exactness, testing::ValuesIn(cells()), [](const auto& info) {
  return info.param.numerics.name + info.param.column.name;
});

// A row that gives what its base gives proves nothing.
TEST(ExactnessRows, EachFeatureDoesSomething) {
  const Expectations& e = expected(kNumerics[0]);
  ASSERT_EQ(e.outcomes.size(), rows().size());
  for (size_t i = 0; i < rows().size(); ++i) {
    const char* base = rows()[i].base;
    if (!base) continue;
    EXPECT_NE(difference(outcome_of(e, base), e.outcomes[i]), "")
        << rows()[i].name << " equals " << base;
  }
}

}  // namespace
}  // namespace nereid::runtime::exactness
