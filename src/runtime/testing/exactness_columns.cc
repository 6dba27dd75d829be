#include "runtime/testing/exactness_columns.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/testing/source_dir.h"
#include "runtime/testing/exactness_models.h"
#include "runtime/testing/test_config.h"

namespace nereid::runtime::exactness {
namespace {

constexpr int32_t kTiny = 44;  // blocks: worst case of the largest row, plus a few

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
    {.name = "Ranks", .set = [](ExecutorConfig& c) { c.tp_invariant = true; }, .is_of_ranks = true},
    {.name = "RanksInt8",
     .set =
         [](ExecutorConfig& c) {
           c.tp_invariant = true;
           c.weights = "int8";
           c.kv_cache.type = KvCacheType::kInt8;
         },
     .is_of_ranks = true},
};

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

// Each beam needs a row of the step: steps with few tokens skip rows with more beams.
void chunk(ExecutorConfig& c, int tokens) {
  c.max_num_tokens = tokens;
  c.max_beam_width = std::min(c.max_beam_width, tokens);
}

void chunk_usual(ExecutorConfig& c, int tokens) {
  usual(c, 0);
  c.max_num_tokens = tokens;
}

void equal_progress(ExecutorConfig& c, int tokens) {
  chunk_usual(c, tokens);
  c.scheduler.chunking_policy = ChunkingPolicy::kEqualProgress;
}

// Chunks beside decodes depend on measured times.
void limited_prefill(ExecutorConfig& c, int ms) {
  usual(c, 0);
  c.max_prefill_ms = ms;
}

void blocks_of(ExecutorConfig& c, int tokens) {
  usual(c, 0);
  c.kv_cache.tokens_per_block = tokens;
}

// Draft counts depend on measured times.
void adapting(ExecutorConfig& c, int) {
  usual(c, 0);
  c.speculation = "auto";
}

constexpr const char* kDraftTree =
    "{0}, {1}, {0, 0}, {0, 1}, {1, 0}, {2}, {0, 0, 0}, {0, 0, 1}, {1, 0, 0}";

void propose_with(ExecutorConfig& c, const char* kind, const char* model) {
  c.speculation = kind;
  c.draft_model = std::filesystem::path(source_dir()) / model;
}

void draft_model(ExecutorConfig& c) { propose_with(c, "draft_model", "models/quickstart-draft"); }

void eagle(ExecutorConfig& c) { propose_with(c, "eagle", "models/quickstart-eagle"); }

void eagle_tree(ExecutorConfig& c) {
  eagle(c);
  c.eagle_tree_top_k = 3;
  c.eagle_tree_depth = 4;
}

void eagle_choices(ExecutorConfig& c) {
  eagle(c);
  c.eagle_choices = kDraftTree;
}

void eagle3(ExecutorConfig& c) { propose_with(c, "eagle", "tests/heads/quickstart-eagle3"); }

void eagle3_tree(ExecutorConfig& c) {
  eagle_tree(c);
  eagle3(c);
}

void medusa(ExecutorConfig& c) { propose_with(c, "medusa", "models/quickstart-medusa"); }

void medusa_tree(ExecutorConfig& c) {
  medusa(c);
  c.medusa_choices = kDraftTree;
}

void redrafter(ExecutorConfig& c) {
  propose_with(c, "redrafter", "tests/heads/quickstart-redrafter");
}

void ngram(ExecutorConfig& c) { c.speculation = "ngram"; }

void ngram_pool(ExecutorConfig& c) {
  ngram(c);
  c.ngram_pool_size = 1 << 16;
}

void lookahead(ExecutorConfig& c) { c.speculation = "lookahead"; }

bool paused(const ExecutorStats& s) { return s.num_preemptions > 0; }
bool never_paused(const ExecutorStats& s) { return s.num_preemptions == 0; }
bool reused(const ExecutorStats& s) { return s.kv_blocks_reused > 0; }
bool onboarded(const ExecutorStats& s) { return s.kv_blocks_onboarded > 0; }
bool swapped(const ExecutorStats& s) {
  return s.num_preemptions > 0 && s.kv_blocks_offloaded > 0 && s.kv_blocks_onboarded > 0;
}
bool taken_back(const ExecutorStats& s) {
  return s.num_accepted_drafts > 0 && s.num_accepted_drafts < s.num_drafts;
}
bool paused_and_taken_back(const ExecutorStats& s) { return paused(s) && taken_back(s); }

// Columns without drafts.
std::vector<Column> plain_columns() {
  const auto overlapped = [](ExecutorConfig& c, int) { c.enable_overlap = true; };
  const auto threads = [](ExecutorConfig& c, int n) { c.num_threads = n; };
  const auto rows = [](ExecutorConfig& c, int n) { c.max_batch_size = n; };
  constexpr auto kNoEvict = static_cast<int>(CapacityPolicy::kGuaranteedNoEvict);
  constexpr auto kStatic = static_cast<int>(CapacityPolicy::kStaticBatch);
  std::vector<Column> all = {
      {"Alone", Way::kAlone},
      {"Overlap", Way::kAlone, overlapped},
      {"TwoThreads", Way::kAlone, threads, 2},
      {"Batch", Way::kBatch},
      {"BatchTwoThreads", Way::kBatch, threads, 2},
      {"BatchUsual", Way::kBatch, usual},
      {"BatchFewRows", Way::kBatch, rows, 16},
      {"BatchChunked", Way::kBatch, chunk_usual, 50, nullptr, Breadth::kAll},
      {"BatchLimitedPrefill", Way::kBatch, limited_prefill, 1},
      {"BatchEqualProgress", Way::kBatch, equal_progress, 50},
      {"PrefixHit", Way::kTwice, usual, 0, reused},
      {"PartialHit", Way::kPrimed, usual, 0, reused, Breadth::kAll},
      {"Paused", Way::kBatch, tiny, kTiny, paused},
      {"Swapped", Way::kBatch, tiny_swapping, kTiny, swapped, Breadth::kAll},
      {"Offloaded", Way::kRounds, tiny_with_host, kTiny, onboarded, Breadth::kAll},
      {"NoEvict", Way::kBatch, policy, kNoEvict, never_paused},
      {"StaticBatch", Way::kBatch, policy, kStatic, never_paused},
      {"Streamed", Way::kStreamed, usual},
      {"StreamedWhole", Way::kStreamedWhole, usual},
      {"Blocks32", Way::kTwice, blocks_of, 32, reused},
      {"Blocks64", Way::kPrimed, blocks_of, 64},
      {"Blocks128", Way::kBatch, blocks_of, 128},
  };
  for (Column c : {Column{"SwappedLate", Way::kBatch, tiny_swapping, kTiny, swapped},
                   Column{"OffloadedLate", Way::kRounds, tiny_with_host, kTiny, onboarded}}) {
    c.is_late = true;
    all.push_back(c);
  }
  for (int tokens = 1; tokens <= kBlock; ++tokens)
    all.push_back({"Chunk" + std::to_string(tokens), Way::kAlone, chunk, tokens});
  for (const int tokens : {17, 31, 32, 33, 48, 64})
    all.push_back({"Chunk" + std::to_string(tokens), Way::kAlone, chunk, tokens});
  return all;
}

// Columns with steps in a second process.
std::vector<Column> remote_columns() {
  std::vector<Column> all = {
      {"SecondProcess", Way::kBatch, usual, 0, nullptr, Breadth::kAll},
      {"SecondProcessAlone", Way::kAlone},
      {"SecondProcessSwapped", Way::kBatch, tiny_swapping, kTiny, swapped},
      {.name = "LookaheadSecondProcess",
       .way = Way::kBatch,
       .set = usual,
       .happened = taken_back,
       .propose = lookahead},
  };
  for (Column& c : all) c.in_second_process = true;
  return all;
}

// Columns with chains of drafts made by the test.
std::vector<Column> speculated_columns() {
  std::vector<Column> all = {
      {"Speculated", Way::kBatch, usual, 0, taken_back, Breadth::kAll},
      {"SpeculatedAlone", Way::kAlone, nullptr, 0, taken_back},
      {"SpeculatedTwice", Way::kTwice, usual, 0, taken_back},
      {"SpeculatedStreamed", Way::kStreamed, usual, 0, taken_back},
      {"SpeculatedChunked", Way::kBatch, chunk_usual, 50, taken_back},
      {"SpeculatedPaused", Way::kBatch, tiny, kTiny, paused_and_taken_back},
      {"SpeculatedSwapped", Way::kBatch, tiny_swapping, kTiny, paused_and_taken_back},
      {.name = "SpeculatedSecondProcess",
       .way = Way::kBatch,
       .set = usual,
       .happened = taken_back,
       .in_second_process = true},
  };
  for (Column& c : all) c.is_speculated = true;
  return all;
}

// Columns with draft trees made by the test.
std::vector<Column> tree_columns() {
  std::vector<Column> all = {
      {"SpeculatedTrees", Way::kBatch, usual, 0, taken_back, Breadth::kAll},
      {"SpeculatedTreesPaused", Way::kBatch, tiny, kTiny, paused_and_taken_back},
      {.name = "SpeculatedTreesOffloaded",
       .way = Way::kRounds,
       .set = tiny_with_host,
       .argument = kTiny,
       .happened = onboarded,
       .is_late = true},
      {.name = "SpeculatedTreesSecondProcess",
       .way = Way::kBatch,
       .set = usual,
       .happened = taken_back,
       .in_second_process = true},
  };
  for (Column& c : all) c.is_speculated = c.in_trees = true;
  return all;
}

// Columns on ranks that are threads of this process.
std::vector<Column> rank_columns() {
  const Column ways[] = {
      {.name = "Alone", .way = Way::kAlone},
      {.name = "Batch", .way = Way::kBatch, .set = usual, .breadth = Breadth::kAll},
      {.name = "Chunked", .way = Way::kBatch, .set = chunk_usual, .argument = 50},
      {.name = "Twice", .way = Way::kTwice, .set = usual, .happened = reused},
      {.name = "Swapped",
       .way = Way::kBatch,
       .set = tiny_swapping,
       .argument = kTiny,
       .happened = swapped},
      {.name = "Speculated",
       .way = Way::kBatch,
       .set = usual,
       .happened = taken_back,
       .is_speculated = true},
      {.name = "SpeculatedTrees",
       .way = Way::kBatch,
       .set = usual,
       .happened = taken_back,
       .breadth = Breadth::kAll,
       .is_speculated = true,
       .in_trees = true},
      {.name = "DraftModel",
       .way = Way::kBatch,
       .set = usual,
       .happened = taken_back,
       .propose = draft_model},
      {.name = "EagleTree",
       .way = Way::kBatch,
       .set = usual,
       .happened = taken_back,
       .propose = eagle_tree},
  };
  std::vector<Column> all;
  for (const auto& [tp, pp] : {std::pair{2, 1}, {4, 1}, {1, 2}, {2, 2}})
    for (Column c : ways) {
      if (tp * pp > 2 && c.name != "Batch" && c.name != "SpeculatedTrees") continue;
      c.name = fmt::format("Tp{}Pp{}{}", tp, pp, c.name);
      c.tp = tp, c.pp = pp;
      all.push_back(c);
    }
  return all;
}

// Columns of one proposer, with its name as prefix.
std::vector<Column> columns_of(const std::string& proposer, void (*propose)(ExecutorConfig&),
                               std::vector<Column> ways) {
  for (Column& c : ways) {
    c.name = proposer + c.name;
    c.propose = propose;
  }
  return ways;
}

std::vector<Column> proposer_columns() {
  const Column usual_types = {"", Way::kBatch, usual, 0, taken_back};
  const Column all_caches = {"", Way::kBatch, usual, 0, taken_back, Breadth::kCaches};
  const Column all_types = {"", Way::kBatch, usual, 0, taken_back, Breadth::kAll};
  const Column twice = {"Twice", Way::kTwice, usual, 0, taken_back};
  const Column streamed = {"Streamed", Way::kStreamed, usual, 0, taken_back};
  const Column chunked = {"Chunked", Way::kBatch, chunk_usual, 50, taken_back};
  const Column streamed_chunked = {"Chunked", Way::kStreamed, chunk_usual, 50, taken_back};
  const Column swaps = {"Swapped", Way::kBatch, tiny_swapping, kTiny, paused_and_taken_back};
  const Column adapts = {"Auto", Way::kBatch, adapting};
  const Column adapts_streamed = {"Auto", Way::kStreamed, adapting};
  std::vector<Column> all;
  for (const auto& one : {
           columns_of("Speculated", ngram,
                      {{"Ngram", Way::kBatch, usual, 0, taken_back}, adapts_streamed}),
           columns_of("NgramPool", ngram_pool, {usual_types, twice}),
           columns_of("Lookahead", lookahead, {all_caches, chunked, swaps}),
           columns_of("DraftModel", draft_model,
                      {all_types, twice, streamed, chunked, swaps, adapts}),
           columns_of("Eagle", eagle, {all_caches, twice, streamed_chunked, swaps}),
           columns_of("EagleTree", eagle_tree,
                      {all_caches, twice, streamed_chunked, swaps, adapts_streamed}),
           columns_of("EagleChoices", eagle_choices, {usual_types}),
           columns_of("Eagle3", eagle3, {all_caches, twice, streamed_chunked}),
           columns_of("Eagle3Tree", eagle3_tree, {swaps}),
           columns_of("Medusa", medusa, {all_caches, twice, streamed, swaps, adapts}),
           columns_of("MedusaTree", medusa_tree, {all_caches, twice, adapts_streamed}),
           columns_of("Redrafter", redrafter, {all_caches, twice, streamed, swaps, adapts}),
       })
    all.insert(all.end(), one.begin(), one.end());
  return all;
}

}  // namespace

std::span<const Numerics> all_numerics() { return kNumerics; }

std::filesystem::path exactness_model() {
  return std::filesystem::path(source_dir()) / "models/quickstart";
}

ExecutorConfig plain() {
  ExecutorConfig c = test_config();
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

void usual(ExecutorConfig& c, int) {
  c.enable_overlap = true;
  c.kv_cache.enable_block_reuse = true;
}

std::vector<Column> columns() {
  std::vector<Column> all;
  for (const auto& part : {plain_columns(), remote_columns(), speculated_columns(), tree_columns(),
                           rank_columns(), proposer_columns()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace nereid::runtime::exactness
