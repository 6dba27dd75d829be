// Every feature under every way to run it, on the shipped model and the CPU: tokens, log-probs and
// logits must be those of the same request alone, unchunked, without cache or overlap, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string_view>

#include "base/testing/source_dir.h"
#include "exec/step_message.h"
#include "runtime/exactness.h"
#include "runtime/exactness_models.h"
#include "runtime/exactness_proposer.h"
#include "runtime/mixed_engine.h"

namespace nereid::runtime::exactness {
namespace {

using std::chrono::milliseconds;

const std::filesystem::path kModel = std::filesystem::path(source_dir()) / "models/quickstart";
const std::filesystem::path kDraftModel =
    std::filesystem::path(source_dir()) / "models/quickstart-draft";
const std::filesystem::path kEagleHead =
    std::filesystem::path(source_dir()) / "models/quickstart-eagle";
const std::filesystem::path kEagle3Head =
    std::filesystem::path(source_dir()) / "tests/heads/quickstart-eagle3";
const std::filesystem::path kMedusaHeads =
    std::filesystem::path(source_dir()) / "models/quickstart-medusa";
const std::filesystem::path kRedrafterHead =
    std::filesystem::path(source_dir()) / "tests/heads/quickstart-redrafter";
constexpr int32_t kNumNewTokens = 24;
constexpr int32_t kBlock = 16;
constexpr int32_t kGuessedIds = 1000;  // that wrong guesses are among
constexpr int32_t kTiny = 44;          // blocks: the hungriest row's worst case, and a little

// What changes the results by right, so that each has expectations of its own.
struct Numerics {
  const char* name;
  void (*set)(ExecutorConfig&);
  std::vector<int32_t> windows = {};  // of the layers in turn; none: the model as it is
  std::optional<kernels::WeightFormat> weights = {};  // of products, one that no option asks for
  bool is_of_cache = false;                           // it changes what the cache holds
};

using kernels::Scheme;
constexpr kernels::WeightFormat kInt4Zeros = {
    .scheme = Scheme::kInteger, .bits = 4, .group = 128, .zeros = true};
constexpr kernels::WeightFormat kInt4Minima = {
    .scheme = Scheme::kInteger, .bits = 4, .group = 32, .minima = true};
constexpr kernels::WeightFormat kInt8Groups = {.scheme = Scheme::kInteger, .bits = 8, .group = 32};
constexpr kernels::WeightFormat kInt8Zeros = {
    .scheme = Scheme::kInteger, .bits = 8, .group = 128, .zeros = true};
constexpr kernels::WeightFormat kInt8Minima = {
    .scheme = Scheme::kInteger, .bits = 8, .group = 16, .minima = true};

enum class Way {
  kAlone,          // one row after the other
  kBatch,          // all at once, in random order, among others
  kTwice,          // each row twice, the second one counts
  kRounds,         // all rows twice, so that others come between; the second round counts
  kPrimed,         // after a request whose prompt parts from the row's in the middle of a block
  kStreamed,       // one after the other, a response for each token
  kStreamedWhole,  // the same, each response with all tokens so far
};

// Which numerics a column is run with: the usual ones, those that change what the cache holds too,
// or all. Drafts are verified by the same rows of a step whatever proposed them, so one chain
// (DraftModel) and one tree (SpeculatedTrees) are run with all types of weights.
enum class Breadth { kUsual, kCaches, kAll };

// One way to run the rows.
struct Column {
  std::string name;
  Way way = Way::kAlone;
  void (*set)(ExecutorConfig&, int) = nullptr;
  int argument = 0;
  bool (*happened)(const ExecutorStats&) = nullptr;  // the way was really gone
  Breadth breadth = Breadth::kUsual;
  bool in_second_process = false;  // where the steps are executed
  bool is_speculated = false;      // rows have drafts, about half of them wrong
  bool is_late = false;            // copies from the host take several steps
  bool in_trees = false;           // the drafts
};

const Numerics kNumerics[] = {
    {"", [](ExecutorConfig&) {}},
    {"NotNormalized", [](ExecutorConfig& c) { c.normalize_log_probs = false; }},
    {"Int8", [](ExecutorConfig& c) { c.kv_cache.type = KvCacheType::kInt8; }, {}, {}, true},
    {"Fp8", [](ExecutorConfig& c) { c.kv_cache.type = KvCacheType::kFp8; }, {}, {}, true},
    {"Int8Weights", [](ExecutorConfig& c) { c.weights = "int8"; }},
    {"Int8Both", [](ExecutorConfig& c) { c.weights = "w8a8"; }},
    {"Fp8Weights", [](ExecutorConfig& c) { c.weights = "fp8"; }},
    {"Int4Weights", [](ExecutorConfig& c) { c.weights = "int4"; }},
    {"Window", [](ExecutorConfig& c) { c.kv_cache.max_attention_window = 33; }, {}, {}, true},
    {"Sink",
     [](ExecutorConfig& c) {
       c.kv_cache.max_attention_window = 40;
       c.kv_cache.sink_token_length = 4;
     },
     {},
     {},
     true},
    {"MixedWindows", [](ExecutorConfig&) {}, {33, 20, 0}, {}, true},
    {"Int4Zeros", [](ExecutorConfig&) {}, {}, kInt4Zeros},
    {"Int4Minima", [](ExecutorConfig&) {}, {}, kInt4Minima},
    {"Int8Groups", [](ExecutorConfig&) {}, {}, kInt8Groups},
    {"Int8Zeros", [](ExecutorConfig&) {}, {}, kInt8Zeros},
    {"Int8Minima", [](ExecutorConfig&) {}, {}, kInt8Minima},
    {"Fp8Groups", [](ExecutorConfig&) {}, {}, kernels::kFp8Groups},
    {"Int4Head",
     [](ExecutorConfig& c) {
       c.weights = "int4";
       c.head_weights = "int4";
     }},
    {"Fp8Head", [](ExecutorConfig& c) { c.head_weights = "fp8"; }},
};

// Everything that could disturb is off.
ExecutorConfig plain() {
  ExecutorConfig c;
  c.num_threads = 1;
  c.enable_overlap = false;
  c.kv_cache.enable_block_reuse = false;
  c.kv_cache.tokens_per_block = kBlock;
  c.kv_cache.max_tokens = 8192;
  c.max_beam_width = 16;
  add_adapters(c);
  c.cache_dir = std::filesystem::path(testing::TempDir()) / "nereid_exactness_test";
  return c;
}

// What people run.
void usual(ExecutorConfig& c, int) {
  c.enable_overlap = true;
  c.kv_cache.enable_block_reuse = true;
}

// Memory for a few rows at a time.
void tiny(ExecutorConfig& c, int blocks) {
  usual(c, 0);
  c.kv_cache.max_tokens = blocks * kBlock;
}

void tiny_with_host(ExecutorConfig& c, int blocks) {
  tiny(c, blocks);
  c.kv_cache.host_cache_bytes = 32 << 20;
}

void tiny_swapping(ExecutorConfig& c, int blocks) {
  tiny_with_host(c, blocks);
  c.scheduler.pause_policy = PausePolicy::kSwap;
}

void policy(ExecutorConfig& c, int which) {
  tiny(c, kTiny);
  c.scheduler.capacity_policy = static_cast<CapacityPolicy>(which);
}

void equal_progress(ExecutorConfig& c, int tokens) {
  usual(c, 0);
  c.max_num_tokens = tokens;
  c.scheduler.chunking_policy = ChunkingPolicy::kEqualProgress;
}

// Always four drafts, or what the controller says.
void with_draft_model(ExecutorConfig& c, int adapts) {
  usual(c, 0);
  c.draft_model = kDraftModel;
  c.speculation = adapts ? "auto" : "draft_model";
}

void with_eagle(ExecutorConfig& c, int adapts) {
  usual(c, 0);
  c.draft_model = kEagleHead;
  c.speculation = adapts ? "auto" : "eagle";
}

void with_eagle_tree(ExecutorConfig& c, int adapts) {
  with_eagle(c, adapts);
  c.eagle_tree_top_k = 3;
  c.eagle_tree_depth = 4;
}

void with_eagle3(ExecutorConfig& c, int adapts) {
  with_eagle(c, adapts);
  c.draft_model = kEagle3Head;
}

void with_eagle3_tree(ExecutorConfig& c, int adapts) {
  with_eagle_tree(c, adapts);
  c.draft_model = kEagle3Head;
}

void with_medusa(ExecutorConfig& c, int adapts) {
  usual(c, 0);
  c.draft_model = kMedusaHeads;
  c.speculation = adapts ? "auto" : "medusa";
}

void with_medusa_tree(ExecutorConfig& c, int adapts) {
  with_medusa(c, adapts);
  c.medusa_choices = "{0}, {1}, {0, 0}, {0, 1}, {1, 0}, {2}, {0, 0, 0}, {0, 0, 1}, {1, 0, 0}";
}

void with_redrafter(ExecutorConfig& c, int adapts) {
  usual(c, 0);
  c.draft_model = kRedrafterHead;
  c.speculation = adapts ? "auto" : "redrafter";
}

void with_lookahead(ExecutorConfig& c, int) {
  usual(c, 0);
  c.speculation = "lookahead";
}

// A beam is a row of a step: narrow steps leave the wider rows out.
void chunk(ExecutorConfig& c, int tokens) {
  c.max_num_tokens = tokens;
  c.max_beam_width = std::min(c.max_beam_width, tokens);
}

std::vector<Column> columns() {
  const auto overlapped = [](ExecutorConfig& c, int) { c.enable_overlap = true; };
  const auto chunk_usual = [](ExecutorConfig& c, int n) { usual(c, 0), c.max_num_tokens = n; };
  const auto threads = [](ExecutorConfig& c, int n) { c.num_threads = n; };
  const auto rows = [](ExecutorConfig& c, int n) { c.max_batch_size = n; };
  const auto blocks = [](ExecutorConfig& c, int n) {
    usual(c, 0), c.kv_cache.tokens_per_block = n;
  };
  const auto paused = [](const ExecutorStats& s) { return s.num_preemptions > 0; };
  const auto never_paused = [](const ExecutorStats& s) { return s.num_preemptions == 0; };
  const auto reused = [](const ExecutorStats& s) { return s.kv_blocks_reused > 0; };
  const auto onboarded = [](const ExecutorStats& s) { return s.kv_blocks_onboarded > 0; };
  const auto swapped = [](const ExecutorStats& s) {
    return s.num_preemptions > 0 && s.kv_blocks_offloaded > 0 && s.kv_blocks_onboarded > 0;
  };
  const auto ngram = [](ExecutorConfig& c, int adapts) {
    usual(c, 0), c.speculation = adapts ? "auto" : "ngram";
  };
  const auto drafts_chunked = [](ExecutorConfig& c, int n) {
    with_draft_model(c, 0), c.max_num_tokens = n;
  };
  const auto drafts_swapped = [](ExecutorConfig& c, int n) {
    with_draft_model(c, 0), tiny_swapping(c, n);
  };
  const auto eagle_chunked = [](ExecutorConfig& c, int n) {
    with_eagle(c, 0), c.max_num_tokens = n;
  };
  const auto eagle_swapped = [](ExecutorConfig& c, int n) {
    with_eagle(c, 0), tiny_swapping(c, n);
  };
  const auto eagle_tree_chunked = [](ExecutorConfig& c, int n) {
    with_eagle_tree(c, 0), c.max_num_tokens = n;
  };
  const auto eagle_tree_swapped = [](ExecutorConfig& c, int n) {
    with_eagle_tree(c, 0), tiny_swapping(c, n);
  };
  const auto eagle_choices = [](ExecutorConfig& c, int) {
    with_eagle(c, 0);
    c.eagle_choices = "{0}, {1}, {0, 0}, {0, 1}, {1, 0}, {2}, {0, 0, 0}, {0, 0, 1}, {1, 0, 0}";
  };
  const auto eagle3_chunked = [](ExecutorConfig& c, int n) {
    with_eagle3(c, 0), c.max_num_tokens = n;
  };
  const auto eagle3_tree_swapped = [](ExecutorConfig& c, int n) {
    with_eagle3_tree(c, 0), tiny_swapping(c, n);
  };
  const auto medusa_swapped = [](ExecutorConfig& c, int n) {
    with_medusa(c, 0), tiny_swapping(c, n);
  };
  const auto redrafter_swapped = [](ExecutorConfig& c, int n) {
    with_redrafter(c, 0), tiny_swapping(c, n);
  };
  const auto lookahead_chunked = [](ExecutorConfig& c, int n) {
    with_lookahead(c, 0), c.max_num_tokens = n;
  };
  const auto lookahead_swapped = [](ExecutorConfig& c, int n) {
    with_lookahead(c, 0), tiny_swapping(c, n);
  };
  const auto taken_back = [](const ExecutorStats& s) {
    return s.num_accepted_drafts > 0 && s.num_accepted_drafts < s.num_drafts;
  };
  const auto paused_and_taken_back = [](const ExecutorStats& s) {
    return s.num_preemptions > 0 && s.num_accepted_drafts > 0 &&
           s.num_accepted_drafts < s.num_drafts;
  };
  std::vector<Column> all = {
      {"Alone", Way::kAlone},
      {"Overlap", Way::kAlone, overlapped},
      {"TwoThreads", Way::kAlone, threads, 2},
      {"Batch", Way::kBatch},
      {"BatchTwoThreads", Way::kBatch, threads, 2},
      {"BatchUsual", Way::kBatch, usual},
      {"BatchFewRows", Way::kBatch, rows, 16},
      {"BatchChunked", Way::kBatch, chunk_usual, 50, nullptr, Breadth::kAll},
      {"BatchEqualProgress", Way::kBatch, equal_progress, 50},
      {"PrefixHit", Way::kTwice, usual, 0, reused},
      {"PartialHit", Way::kPrimed, usual, 0, reused, Breadth::kAll},
      {"Paused", Way::kBatch, tiny, kTiny, paused},
      {"Swapped", Way::kBatch, tiny_swapping, kTiny, swapped, Breadth::kAll},
      {"Offloaded", Way::kRounds, tiny_with_host, kTiny, onboarded, Breadth::kAll},
      {"SwappedLate", Way::kBatch, tiny_swapping, kTiny, swapped, Breadth::kUsual, false, false,
       true},
      {"OffloadedLate", Way::kRounds, tiny_with_host, kTiny, onboarded, Breadth::kUsual, false,
       false, true},
      {"NoEvict", Way::kBatch, policy, static_cast<int>(CapacityPolicy::kGuaranteedNoEvict),
       never_paused},
      {"StaticBatch", Way::kBatch, policy, static_cast<int>(CapacityPolicy::kStaticBatch),
       never_paused},
      {"Streamed", Way::kStreamed, usual},
      {"StreamedWhole", Way::kStreamedWhole, usual},
      {"SecondProcess", Way::kBatch, usual, 0, nullptr, Breadth::kAll, true},
      {"SecondProcessAlone", Way::kAlone, nullptr, 0, nullptr, Breadth::kUsual, true},
      {"SecondProcessSwapped", Way::kBatch, tiny_swapping, kTiny, swapped, Breadth::kUsual, true},
      {"Speculated", Way::kBatch, usual, 0, taken_back, Breadth::kAll, false, true},
      {"SpeculatedAlone", Way::kAlone, nullptr, 0, taken_back, Breadth::kUsual, false, true},
      {"SpeculatedTwice", Way::kTwice, usual, 0, taken_back, Breadth::kUsual, false, true},
      {"SpeculatedStreamed", Way::kStreamed, usual, 0, taken_back, Breadth::kUsual, false, true},
      {"SpeculatedChunked", Way::kBatch, chunk_usual, 50, taken_back, Breadth::kUsual, false, true},
      {"SpeculatedPaused", Way::kBatch, tiny, kTiny, paused_and_taken_back, Breadth::kUsual, false,
       true},
      {"SpeculatedSwapped", Way::kBatch, tiny_swapping, kTiny, paused_and_taken_back,
       Breadth::kUsual, false, true},
      {"SpeculatedSecondProcess", Way::kBatch, usual, 0, taken_back, Breadth::kUsual, true, true},
      {"SpeculatedTrees", Way::kBatch, usual, 0, taken_back, Breadth::kAll, false, true, false,
       true},
      {"SpeculatedTreesPaused", Way::kBatch, tiny, kTiny, paused_and_taken_back, Breadth::kUsual,
       false, true, false, true},
      {"SpeculatedTreesOffloaded", Way::kRounds, tiny_with_host, kTiny, onboarded, Breadth::kUsual,
       false, true, true, true},
      {"SpeculatedTreesSecondProcess", Way::kBatch, usual, 0, taken_back, Breadth::kUsual, true,
       true, false, true},
      {"Lookahead", Way::kBatch, with_lookahead, 0, taken_back, Breadth::kCaches},
      {"LookaheadChunked", Way::kBatch, lookahead_chunked, 50, taken_back},
      {"LookaheadSwapped", Way::kBatch, lookahead_swapped, kTiny, paused_and_taken_back},
      {"LookaheadSecondProcess", Way::kBatch, with_lookahead, 0, taken_back, Breadth::kUsual, true},
      {"SpeculatedNgram", Way::kBatch, ngram, 0, taken_back},
      // What auto tests depends on measured costs.
      {"SpeculatedAuto", Way::kStreamed, ngram, 1},
      {"DraftModel", Way::kBatch, with_draft_model, 0, taken_back, Breadth::kAll},
      {"DraftModelTwice", Way::kTwice, with_draft_model, 0, taken_back},
      {"DraftModelStreamed", Way::kStreamed, with_draft_model, 0, taken_back},
      {"DraftModelChunked", Way::kBatch, drafts_chunked, 50, taken_back},
      {"DraftModelSwapped", Way::kBatch, drafts_swapped, kTiny, paused_and_taken_back},
      {"DraftModelAuto", Way::kBatch, with_draft_model, 1},
      {"Eagle", Way::kBatch, with_eagle, 0, taken_back, Breadth::kCaches},
      {"EagleTwice", Way::kTwice, with_eagle, 0, taken_back},
      {"EagleChunked", Way::kStreamed, eagle_chunked, 50, taken_back},
      {"EagleSwapped", Way::kBatch, eagle_swapped, kTiny, paused_and_taken_back},
      {"EagleTree", Way::kBatch, with_eagle_tree, 0, taken_back, Breadth::kCaches},
      {"EagleTreeTwice", Way::kTwice, with_eagle_tree, 0, taken_back},
      {"EagleTreeChunked", Way::kStreamed, eagle_tree_chunked, 50, taken_back},
      {"EagleTreeSwapped", Way::kBatch, eagle_tree_swapped, kTiny, paused_and_taken_back},
      {"EagleTreeAuto", Way::kStreamed, with_eagle_tree, 1},
      {"EagleChoices", Way::kBatch, eagle_choices, 0, taken_back},
      {"Eagle3", Way::kBatch, with_eagle3, 0, taken_back, Breadth::kCaches},
      {"Eagle3Twice", Way::kTwice, with_eagle3, 0, taken_back},
      {"Eagle3Chunked", Way::kStreamed, eagle3_chunked, 50, taken_back},
      {"Eagle3TreeSwapped", Way::kBatch, eagle3_tree_swapped, kTiny, paused_and_taken_back},
      {"Medusa", Way::kBatch, with_medusa, 0, taken_back, Breadth::kCaches},
      {"MedusaTwice", Way::kTwice, with_medusa, 0, taken_back},
      {"MedusaStreamed", Way::kStreamed, with_medusa, 0, taken_back},
      {"MedusaSwapped", Way::kBatch, medusa_swapped, kTiny, paused_and_taken_back},
      {"MedusaAuto", Way::kBatch, with_medusa, 1},
      {"MedusaTree", Way::kBatch, with_medusa_tree, 0, taken_back, Breadth::kCaches},
      {"MedusaTreeTwice", Way::kTwice, with_medusa_tree, 0, taken_back},
      {"MedusaTreeAuto", Way::kStreamed, with_medusa_tree, 1},
      {"Redrafter", Way::kBatch, with_redrafter, 0, taken_back, Breadth::kCaches},
      {"RedrafterTwice", Way::kTwice, with_redrafter, 0, taken_back},
      {"RedrafterStreamed", Way::kStreamed, with_redrafter, 0, taken_back},
      {"RedrafterSwapped", Way::kBatch, redrafter_swapped, kTiny, paused_and_taken_back},
      {"RedrafterAuto", Way::kBatch, with_redrafter, 1},
      {"Blocks32", Way::kTwice, blocks, 32, reused},
      {"Blocks64", Way::kPrimed, blocks, 64},
      {"Blocks128", Way::kBatch, blocks, 128},
  };
  for (int tokens = 1; tokens <= kBlock; ++tokens)
    all.push_back({"Chunk" + std::to_string(tokens), Way::kAlone, chunk, tokens});
  for (const int tokens : {17, 31, 32, 33, 48, 64})
    all.push_back({"Chunk" + std::to_string(tokens), Way::kAlone, chunk, tokens});
  return all;
}

std::unique_ptr<Executor> open(const ExecutorConfig& config, const Numerics& numerics,
                               bool in_second_process = false,
                               std::unique_ptr<Proposer> proposer = nullptr, bool late = false) {
  StatusOr<std::filesystem::path> model = kModel;
  if (!numerics.windows.empty()) model = mixed_engine(kModel, config, numerics.windows);
  if (numerics.weights) model = engine_with(kModel, config, *numerics.weights);
  if (!model.ok()) ADD_FAILURE() << model.status();
  auto executor =
      create_executor(model.value_or(kModel), config, in_second_process, std::move(proposer), late);
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
  const auto executor = open(config, numerics);
  if (!executor) return e;
  for (const Row& row : rows()) {
    Request r = bare_request(row.prompt);
    const Outcome bare = client.run(*executor, r);
    const auto tokens_of = [&](std::string_view name) {
      return outcome_of(e, name).sequences.at(0).at(0).tokens;
    };
    row.set(r, {bare.sequences.at(0).at(0).tokens, tokenizer(), *executor, tokens_of});
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

std::unique_ptr<Proposer> guesses(const Expectations& e, bool in_trees) {
  return std::make_unique<RowProposer>(e.requests, e.outcomes, kGuessedIds, in_trees);
}

// Shares a block and a part of the next with the row, then goes on differently.
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
  if (way == Way::kPrimed) r.cache_salt += row.name;  // or else other rows had left whole hits
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

// No value: the row is not for this executor.
using Outcomes = std::vector<std::optional<Outcome>>;

Outcomes run_together(Executor& executor, const std::vector<Request>& requests,
                      int32_t max_beam_width) {
  Client client;
  std::vector<size_t> order(requests.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(requests.size()));
  std::vector<std::optional<RequestId>> ids(requests.size());
  std::vector<RequestId> others;
  for (const size_t i : order) {
    if (i % 8 == 0) others.push_back(client.send(executor, companion(i)));
    if (requests[i].sampling.beam_width <= max_beam_width)
      ids[i] = client.send(executor, requests[i]);
  }
  Outcomes out;
  for (const auto& id : ids)
    out.push_back(id ? std::optional<Outcome>(client.wait(*id)) : std::nullopt);
  for (const RequestId id : others) EXPECT_TRUE(client.wait(id).status.ok());
  return out;
}

Outcomes run_one_by_one(Executor& executor, const std::vector<Request>& requests, Way way,
                        int32_t max_beam_width) {
  Client client;
  Outcomes out;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request r = shaped(rows()[i], requests[i], way);
    if (r.sampling.beam_width > max_beam_width) {
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
             int32_t max_beam_width) {
  if (way == Way::kBatch) return run_together(executor, requests, max_beam_width);
  if (way == Way::kRounds) run_one_by_one(executor, requests, way, max_beam_width);
  return run_one_by_one(executor, requests, way, max_beam_width);
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
  const bool needs_less = config.kv_cache.max_attention_window > 0;  // blocks go back while it runs
  const bool must_happen = column.happened && !needs_less;
  ExecutorStats stats;
  // How far requests overlap is up to the machine: where they did not, they are sent again.
  constexpr int kTries = 20;
  for (int i = 0; i < kTries && (i == 0 || (must_happen && !column.happened(stats))); ++i) {
    const auto executor =
        open(config, numerics, column.in_second_process,
             column.is_speculated ? guesses(e, column.in_trees) : nullptr, column.is_late);
    ASSERT_TRUE(executor);
    const Outcomes got = run(*executor, e.requests, column.way, config.max_beam_width);
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

std::vector<Cell> cells() {
  std::vector<Cell> out;
  for (const Numerics& numerics : kNumerics)
    for (const Column& column : columns())
      if (!*numerics.name || column.breadth == Breadth::kAll ||
          (column.breadth == Breadth::kCaches && numerics.is_of_cache))
        out.push_back({numerics, column});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Way, Exactness, testing::ValuesIn(cells()), [](const auto& info) {
  return info.param.numerics.name + info.param.column.name;
});

// Right but for one; the engine goes on by itself.
TEST(Drafts, ThoseOfTheRequestChangeNothing) {
  const Expectations& e = expected(kNumerics[0]);
  for (const char* speculation : {"none", "ngram"}) {
    ExecutorConfig config = plain();
    usual(config, 0);
    config.speculation = speculation;
    const auto executor = open(config, {});
    ASSERT_TRUE(executor);
    Client client;
    for (size_t i = 0; i < rows().size(); ++i) {
      Request r = e.requests[i];
      if (r.sampling.beam_width > 1 || r.guided_decoding) continue;  // they take none
      r.draft_token_ids = e.outcomes[i].sequences.at(0).at(0).tokens;
      if (r.draft_token_ids.size() > 8) ++r.draft_token_ids[8];
      EXPECT_EQ(difference(e.outcomes[i], client.run(*executor, r)), "") << rows()[i].name;
    }
    const ExecutorStats stats = executor->stats();
    EXPECT_GT(stats.num_accepted_drafts, 200);
    EXPECT_LT(stats.num_accepted_drafts, stats.num_drafts);
  }
}

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

TEST(ExactnessRows, EachNumericsDoesSomething) {
  for (const Numerics& numerics : std::span(kNumerics).subspan(1)) {
    const Expectations& e = expected(numerics);
    const Outcome& usual_outcome = outcome_of(expected(kNumerics[0]), "top_k_log_probs");
    EXPECT_NE(difference(usual_outcome, outcome_of(e, "top_k_log_probs")), "") << numerics.name;
  }
}

TEST(SecondProcess, RefusesWhatIsNoMessageAndGoesOn) {
  ExecutorConfig config = plain();
  auto model = open_remote(kModel, config);
  ASSERT_TRUE(model.ok()) << model.status();
  exec::Runner& runner = *model->runner;
  const TokenId tokens[] = {1, 2, 3};
  const int32_t block = 0;
  exec::Step step;
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

// Layers with a window keep what it reaches and one block more, those without everything.
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
