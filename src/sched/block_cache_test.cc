// BlockPool: contents of blocks - partial reuse, retention, host pool, events, statistics.
#include <gmock/gmock.h>

#include "sched/block_pool.h"

namespace nereid::sched {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kT = 4;

// A text with its block keys.
struct Text {
  std::vector<TokenId> tokens;
  std::vector<InputKey> input_keys;
  std::vector<BlockKey> keys;
  KvCacheRetentionConfig retention;

  explicit Text(std::vector<TokenId> t, std::vector<InputKey> k = {})
      : tokens(std::move(t)), input_keys(std::move(k)) {
    BlockKey key = root_key("");
    for (size_t i = 0; i + kT <= tokens.size(); i += kT)
      keys.push_back(key = block_key(key, TokenRun{tokens, input_keys}.subrun(i, kT)));
  }
  Contents all() const { return first(tokens.size()); }
  Contents first(size_t n) const {
    return {.keys = keys,
            .tokens = std::span(tokens).first(n),
            .input_keys = input_keys,
            .retention = &retention,
            .num_prompt = static_cast<int32_t>(tokens.size())};
  }
  Contents prompt() const { return first(tokens.size() - 1); }  // matched by a new sequence
};

Text counting(TokenId first, int n) {
  std::vector<TokenId> tokens(n);
  for (int i = 0; i < n; ++i) tokens[i] = first + i;
  return Text(std::move(tokens));
}

// The blocks of group 0.
const std::vector<BlockId>& held_by(const BlockTable& table) { return table.groups[0].blocks; }

// Computes `text` and releases it; returns its blocks in order.
std::vector<BlockId> run(BlockPool& pool, const Text& text, Release how = Release::kKeep) {
  const auto n = static_cast<int32_t>(text.tokens.size());
  BlockTable table;
  EXPECT_TRUE(pool.admit(table, pool.match(text.prompt()), text.prompt(), {{n, 0}}));
  pool.publish_tail(table, text.all(), n);
  const auto blocks = held_by(table);
  pool.release(table, how);
  pool.check(0);
  return blocks;
}

// Equal ids with other keys (positions 5 and 6) are another text.
TEST(InputKeys, TellEqualIdsApart) {
  const std::vector<TokenId> ids = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto text = [&](uint64_t low, uint64_t high, size_t num_keys) {
    std::vector<InputKey> keys(num_keys);
    if (num_keys > 6) keys[5].low = low, keys[6].high = high;
    return Text(ids, keys);
  };
  BlockPool pool({.groups = {{.num_blocks = 32}}, .tokens_per_block = kT});
  run(pool, text(1, 2, 7));
  const auto found = [&](const Text& t) { return pool.match(t.prompt()).num_tokens; };
  EXPECT_EQ(found(text(1, 2, 7)), 9);
  EXPECT_EQ(found(text(1, 2, 10)), 9);  // zero keys are no keys
  EXPECT_EQ(found(text(2, 2, 7)), 5);
  EXPECT_EQ(found(text(1, 3, 7)), 6);
  EXPECT_EQ(found(text(0, 0, 0)), 5);
  run(pool, text(0, 0, 0));
  run(pool, text(2, 2, 10));
  for (const Text& t : {text(1, 2, 7), text(2, 2, 7), text(0, 0, 0), text(0, 0, 9)})
    EXPECT_EQ(found(t), 9);
  pool.forget_everything();
  EXPECT_EQ(found(text(1, 2, 7)), 0);
}

TEST(PartialReuse, CopiesTheBestMatchingChild) {
  BlockPool pool({.groups = {{.num_blocks = 8}}, .tokens_per_block = kT});
  const auto worse = run(pool, Text({1, 2, 3, 4, 5, 9, 9, 9}));
  const auto best = run(pool, Text({1, 2, 3, 4, 5, 6, 9, 9}));
  const Text wanted({1, 2, 3, 4, 5, 6, 7, 8, 9});
  const PrefixHit hit = pool.match(wanted.prompt());
  EXPECT_THAT(hit.blocks, ElementsAre(worse[0]));
  EXPECT_EQ(hit.num_tokens, 6);
  EXPECT_EQ(hit.num_reused(), 2);
  EXPECT_EQ(hit.num_missed, 0);
  pool.take_copies();
  BlockTable table;
  ASSERT_TRUE(pool.admit(table, hit, wanted.prompt(), {{9, 0}}));
  EXPECT_THAT(pool.take_copies(), ElementsAre(PlanCopy{best[1], held_by(table)[1]}));
  EXPECT_NE(held_by(table)[1], best[1]);
  EXPECT_EQ(table.num_published, 1);
  pool.check(3);
}

TEST(PartialReuse, NeedsASharedToken) {
  BlockPool pool({.groups = {{.num_blocks = 8}}, .tokens_per_block = kT});
  run(pool, counting(1, 8));
  EXPECT_FALSE(pool.match(Text({9, 2, 3}).prompt()).partial.valid());
  BlockPool off(
      {.groups = {{.num_blocks = 8}}, .tokens_per_block = kT, .enable_partial_reuse = false});
  run(off, counting(1, 8));
  EXPECT_EQ(off.match(counting(1, 8).prompt()).num_tokens, 4);
}

TEST(PartialReuse, TakesTheOnlyFreeBlockOverInPlace) {
  BlockPool pool({.groups = {{.num_blocks = 2}}, .tokens_per_block = kT});
  const auto blocks = run(pool, counting(1, 7));
  const Text wanted({1, 2, 3, 4, 5, 6, 99, 98});
  const PrefixHit hit = pool.match(wanted.prompt());
  EXPECT_EQ(hit.num_tokens, 6);
  BlockTable table;
  ASSERT_TRUE(pool.admit(table, hit, wanted.prompt(), {{8, 0}}));
  EXPECT_EQ(held_by(table), blocks);
  EXPECT_THAT(pool.take_copies(), IsEmpty());
  EXPECT_EQ(pool.num_cached(), 1);
  pool.check(2);
}

TEST(PartialReuse, ATailGivesWayToTheBlockItBecame) {
  BlockPool pool({.groups = {{.num_blocks = 8}}, .tokens_per_block = kT});
  run(pool, counting(1, 6));
  EXPECT_EQ(pool.num_cached(), 2);
  run(pool, counting(1, 7));
  EXPECT_EQ(pool.num_cached(), 2);
  run(pool, counting(1, 9));
  EXPECT_EQ(pool.num_cached(), 3);
  run(pool, counting(1, 6));
  EXPECT_EQ(pool.num_cached(), 3) << "longer contents serve shorter ones";
}

TEST(PartialReuse, ATailThatAForkGoesOnWritingIsReplaced) {
  BlockPool pool({.groups = {{.num_blocks = 8}}, .tokens_per_block = kT});
  const Text text = counting(1, 8);
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, text.prompt(), {{6, 0}}));
  BlockTable b = pool.fork(a, 6);
  pool.publish_tail(a, text.first(6), 6);
  pool.release(a, Release::kKeep);
  ASSERT_TRUE(pool.reserve(b, 6, 8));
  EXPECT_THAT(pool.take_copies(), IsEmpty());
  EXPECT_EQ(pool.match(text.all()).num_tokens, 6);
  pool.publish(b, text.all(), 8);
  EXPECT_EQ(pool.match(text.all()).blocks, held_by(b));
  EXPECT_EQ(pool.num_cached(), 2);
  pool.check(2);
}

// The example of backend.md, perf metrics: 4 blocks, the last one partly filled; prompt repeated.
TEST(PoolStats, FollowTheBackendsExample) {
  BlockPool pool({.groups = {{.num_blocks = 16}}, .tokens_per_block = kT});
  const Text prompt = counting(1, 14);
  run(pool, prompt);
  PoolStats stats = pool.stats();
  EXPECT_EQ(stats.alloc_new, 4);
  EXPECT_EQ(stats.alloc_total, 4);
  EXPECT_EQ(stats.reused, 0);
  EXPECT_EQ(stats.missed, 3);
  run(pool, prompt);
  stats = pool.stats();
  EXPECT_EQ(stats.alloc_new - 4, 1);
  EXPECT_EQ(stats.alloc_total - 4, 1);
  EXPECT_EQ(stats.reused, 4);
  EXPECT_EQ(stats.missed, 3);
}

TEST(Retention, RangeOfTheFirstTokenCounts) {
  KvCacheRetentionConfig config;
  config.token_ranges.push_back({.token_start = 0, .token_end = 8, .priority = 90});
  config.token_ranges.push_back({.token_start = 10, .priority = 5, .duration = milliseconds(7)});
  config.decode_priority = 60;
  config.decode_duration = milliseconds(3);
  EXPECT_EQ(retention_at(&config, 20, 4), (Retention{.priority = 90}));
  EXPECT_EQ(retention_at(&config, 20, 8), Retention{});
  EXPECT_EQ(retention_at(&config, 20, 12), (Retention{5, milliseconds(7)}));
  EXPECT_EQ(retention_at(&config, 20, 20), (Retention{60, milliseconds(3)}));
  EXPECT_EQ(retention_at(nullptr, 20, 20), Retention{});
}

Text keeping(Text text, int priority, std::optional<milliseconds> duration = std::nullopt) {
  text.retention.token_ranges.push_back({.priority = priority, .duration = duration});
  return text;
}

bool cached(const BlockPool& pool, const Text& text) {
  return pool.match(text.all()).num_tokens == static_cast<int32_t>(text.tokens.size());
}

TEST(Retention, LowPriorityGoesFirstAndAgeDecidesAmongEquals) {
  BlockPool pool({.groups = {{.num_blocks = 4}}, .tokens_per_block = kT});
  const Text high = keeping(counting(100, 4), 80), old = counting(200, 4), young = counting(300, 4),
             low = keeping(counting(400, 4), 0);
  for (const Text* text : {&high, &old, &young, &low}) run(pool, *text);
  run(pool, counting(500, 4));
  EXPECT_FALSE(cached(pool, low));
  EXPECT_TRUE(cached(pool, old));
  run(pool, keeping(counting(600, 4), 90));
  EXPECT_FALSE(cached(pool, old));
  EXPECT_TRUE(cached(pool, young));
  run(pool, keeping(counting(700, 4), 90));
  run(pool, keeping(counting(800, 4), 90));
  EXPECT_TRUE(cached(pool, high));
  run(pool, keeping(counting(900, 4), 90));
  EXPECT_FALSE(cached(pool, high));
}

TEST(Retention, ReuseMakesYoungAndOverwritesThePriority) {
  BlockPool pool({.groups = {{.num_blocks = 3}}, .tokens_per_block = kT});
  const Text a = keeping(counting(100, 4), 80), b = counting(200, 4), c = counting(300, 4);
  for (const Text* text : {&a, &b, &c}) run(pool, *text);
  BlockTable table;
  const PrefixHit hit = pool.match(a.all());
  ASSERT_THAT(hit.blocks, SizeIs(1));
  ASSERT_TRUE(pool.admit(table, hit, counting(100, 4).all(), {{4, 0}}));
  pool.release(table, Release::kKeep);
  run(pool, counting(400, 4));
  run(pool, counting(500, 4));
  EXPECT_TRUE(cached(pool, a)) << "b and c are older";
  run(pool, counting(600, 4));
  EXPECT_FALSE(cached(pool, a)) << "priority 80 went with the reuse";
}

TEST(Retention, FallsBackWhenItsDurationHasPassed) {
  BlockPool pool({.groups = {{.num_blocks = 2}}, .tokens_per_block = kT});
  const Text brief = keeping(counting(100, 4), 80, milliseconds(10));
  Time now{};
  pool.expire(now);
  run(pool, brief);
  run(pool, counting(200, 4));
  pool.expire(now + milliseconds(9));
  run(pool, counting(300, 4));
  EXPECT_TRUE(cached(pool, brief));
  pool.expire(now + milliseconds(10));
  pool.check(0);
  run(pool, counting(400, 4));
  EXPECT_TRUE(cached(pool, brief)) << "as young as the time it fell back";
  run(pool, counting(500, 4));
  EXPECT_FALSE(cached(pool, brief));
}

TEST(Retention, DurationBeginsAgainWithEachRelease) {
  BlockPool pool({.groups = {{.num_blocks = 3}}, .tokens_per_block = kT});
  const Text brief = keeping(counting(100, 4), 0, milliseconds(10));
  pool.expire(Time{});
  run(pool, brief);
  pool.expire(Time{} + milliseconds(8));
  BlockTable table;
  ASSERT_TRUE(pool.admit(table, pool.match(brief.all()), brief.all(), {{4, 0}}));
  pool.expire(Time{} + milliseconds(30));
  pool.check(1);
  pool.release(table, Release::kKeep);
  pool.expire(Time{} + milliseconds(39));
  run(pool, counting(200, 12));
  EXPECT_FALSE(cached(pool, brief)) << "still at priority 0";
}

PoolConfig two_levels(int device, int host) {
  return {.groups = {{.num_blocks = device, .num_host_blocks = host}}, .tokens_per_block = kT};
}

TEST(HostPool, VictimsMoveThereAndComeBack) {
  BlockPool pool(two_levels(2, 3));
  const Text a = counting(100, 8), b = counting(200, 8);
  EXPECT_THAT(run(pool, a), ElementsAre(0, 1));
  EXPECT_THAT(pool.take_copies(), IsEmpty());
  EXPECT_THAT(run(pool, b), ElementsAre(1, 0));
  EXPECT_THAT(pool.take_copies(), ElementsAre(PlanCopy{1, 2}, PlanCopy{0, 3}));
  EXPECT_EQ(pool.num_cached(), 4);
  EXPECT_EQ(pool.group(0).num_host_free(), 1);
  const PrefixHit hit = pool.match(a.all());
  EXPECT_THAT(hit.blocks, ElementsAre(3, 2));
  BlockTable table;
  EXPECT_FALSE(pool.admit(table, hit, a.all(), {{8, 1}})) << "host blocks need device blocks";
  ASSERT_TRUE(pool.admit(table, hit, a.all(), {{8, 0}}));
  // b's tail is offloaded to the one empty host block, then evicted from it for b's first block;
  // the sources of a's copies are not reused before they were read.
  EXPECT_THAT(pool.take_copies(), ElementsAre(PlanCopy{0, 4}, PlanCopy{1, 4}));
  EXPECT_THAT(pool.take_onboards(), ElementsAre(PlanCopy{3, 0}, PlanCopy{2, 1}));
  EXPECT_EQ(pool.stats().offloaded, 4);
  EXPECT_EQ(pool.stats().onboarded, 2);
  EXPECT_TRUE(pool.is_arriving(table));
  EXPECT_EQ(pool.group(0).num_host_free(), 0);
  pool.check(2);
  pool.end_onboards(/*ok=*/true);
  EXPECT_FALSE(pool.is_arriving(table));
  EXPECT_EQ(pool.group(0).num_host_free(), 2);
  EXPECT_EQ(pool.match(a.all()).blocks, held_by(table));
  EXPECT_EQ(pool.match(b.all()).num_tokens, 4);
  pool.check(2);
}

TEST(HostPool, DropsWhatIsNotWorthIt) {
  BlockPool pool(two_levels(1, 1));
  run(pool, keeping(counting(100, 4), 29));
  run(pool, keeping(counting(200, 4), 70));
  EXPECT_EQ(pool.stats().offloaded, 0) << "29 is below offload_min_priority";
  run(pool, keeping(counting(300, 4), 60));
  EXPECT_TRUE(cached(pool, counting(200, 4)));
  run(pool, keeping(counting(400, 4), 35));
  EXPECT_TRUE(cached(pool, counting(200, 4))) << "60 does not push 70 out";
  EXPECT_FALSE(cached(pool, counting(300, 4)));
  EXPECT_EQ(pool.stats().offloaded, 1);
}

TEST(HostPool, PartialMatchesAreCopiedFromIt) {
  BlockPool pool(two_levels(1, 1));
  run(pool, counting(100, 4));
  run(pool, counting(200, 4));
  pool.take_copies();
  const Text wanted({100, 101, 7});
  const PrefixHit hit = pool.match(wanted.prompt());
  EXPECT_EQ(hit.num_tokens, 2);
  BlockTable table;
  ASSERT_TRUE(pool.admit(table, hit, wanted.prompt(), {{3, 0}}));
  EXPECT_THAT(pool.take_copies(), IsEmpty());
  EXPECT_THAT(pool.take_onboards(), ElementsAre(PlanCopy{1, 0}));
  EXPECT_TRUE(cached(pool, counting(100, 4)));
  pool.check(1);
}

TEST(HostPool, WhatIsOnItsWayIsSharedButNotCopied) {
  BlockPool pool(two_levels(4, 4));
  const Text a = counting(100, 8);
  run(pool, a, Release::kOffload);
  run(pool, counting(200, 16));
  BlockTable first, second, third;
  ASSERT_TRUE(pool.admit(first, pool.match(a.all()), a.all(), {{8, 0}}));
  EXPECT_THAT(pool.take_onboards(), SizeIs(2));
  const PrefixHit hit = pool.match(a.all());
  EXPECT_EQ(hit.num_tokens, 8);
  ASSERT_TRUE(pool.admit(second, hit, a.all(), {{8, 0}}));
  EXPECT_TRUE(pool.is_arriving(second));
  EXPECT_FALSE(pool.has_onboards());
  const Text like({100, 101, 7});
  EXPECT_EQ(pool.match(like.prompt()).num_tokens, 0) << "a copy would be made before it is there";
  pool.end_onboards(/*ok=*/true);
  EXPECT_EQ(pool.match(like.prompt()).num_tokens, 2);
  pool.check(4);
}

TEST(HostPool, WhatDidNotArriveIsNotFoundAgain) {
  BlockPool pool(two_levels(4, 8));
  const Text a = counting(100, 14);
  run(pool, a, Release::kOffload);
  run(pool, counting(200, 16));
  BlockTable table;
  // Its first block stays on the device.
  ASSERT_TRUE(pool.admit(table, pool.match(a.first(4)), a.first(4), {{4, 0}}));
  pool.take_onboards();
  pool.end_onboards(/*ok=*/true);
  pool.release(table, Release::kKeep);
  ASSERT_TRUE(pool.admit(table, pool.match(a.all()), a.all(), {{14, 0}}));
  EXPECT_THAT(pool.take_onboards(), SizeIs(3)) << "two blocks and the one that matches partly";
  pool.end_onboards(/*ok=*/false);
  EXPECT_TRUE(pool.any_tainted(table));
  EXPECT_EQ(pool.match(a.all()).num_tokens, 4);
  pool.publish_tail(table, a.all(), 14);
  EXPECT_EQ(pool.match(a.all()).num_tokens, 4);
  pool.release(table, Release::kKeep);
  pool.check(0);
  run(pool, a);
  EXPECT_EQ(pool.match(a.prompt()).num_tokens, 13);
}

TEST(HostPool, APausedSequenceMovesAtOnceFrontFirst) {
  BlockPool pool(two_levels(4, 3));
  const Text text = counting(100, 14);
  run(pool, text, Release::kOffload);
  EXPECT_THAT(pool.take_copies(), SizeIs(3));
  EXPECT_EQ(pool.group(0).num_host_free(), 0);
  PrefixHit hit = pool.match(text.prompt());
  EXPECT_EQ(hit.num_tokens, 13);
  EXPECT_THAT(hit.blocks, ElementsAre(4, 5, 6)) << "the tail stays on the device";
  run(pool, counting(200, 16));
  hit = pool.match(text.prompt());
  EXPECT_EQ(hit.num_tokens, 12) << "the tail did not push out what it continues";
  BlockTable table;
  ASSERT_TRUE(pool.admit(table, hit, text.prompt(), {{14, 0}}));
  EXPECT_EQ(pool.stats().onboarded, 3);
  pool.check(4);
}

TEST(HostPool, SharedBlocksStayWhenOneHolderIsPaused) {
  BlockPool pool(two_levels(4, 4));
  const Text text = counting(100, 8);
  BlockTable a;
  ASSERT_TRUE(pool.admit(a, {}, text.all(), {{8, 0}}));
  pool.publish(a, text.all(), 8);
  BlockTable b = pool.fork(a, 8);
  pool.release(a, Release::kOffload);
  EXPECT_THAT(pool.take_copies(), IsEmpty());
  EXPECT_EQ(pool.match(text.all()).blocks, held_by(b));
  pool.check(2);
}

TEST(Events, TellTheWholeStory) {
  using Kind = KvCacheEvent::Kind;
  PoolConfig config = two_levels(2, 1);
  config.event_buffer_size = 100;
  BlockPool pool(config);
  const Text a = counting(100, 6);
  run(pool, a);
  auto events = pool.take_events();
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].kind, Kind::kCreated);
  EXPECT_THAT(events[0].num_blocks_per_level, ElementsAre(2, 1));
  EXPECT_EQ(events[1].kind, Kind::kStored);
  EXPECT_FALSE(events[1].parent_hash.has_value());
  EXPECT_THAT(events[1].block_hashes, ElementsAre(a.keys[0]));
  EXPECT_THAT(events[1].tokens, ElementsAre(100, 101, 102, 103));
  EXPECT_EQ(events[1].priority, 35);
  EXPECT_EQ(events[2].parent_hash, a.keys[0]);
  EXPECT_THAT(events[2].tokens, ElementsAre(104, 105));
  EXPECT_EQ(events[2].event_id, 2u);
  const auto tail = events[2].block_hashes;
  run(pool, keeping(counting(200, 8), 50));
  events = pool.take_events();
  ASSERT_THAT(events, SizeIs(5));
  EXPECT_EQ(events[0].kind, Kind::kUpdated) << "the tail goes to the host";
  EXPECT_EQ(events[0].level, 1);
  EXPECT_EQ(events[0].block_hashes, tail);
  EXPECT_EQ(events[1].kind, Kind::kRemoved) << "and has to make room for its parent's block";
  EXPECT_EQ(events[1].block_hashes, tail);
  EXPECT_EQ(events[2].kind, Kind::kUpdated);
  EXPECT_THAT(events[2].block_hashes, ElementsAre(a.keys[0]));
  EXPECT_EQ(events[4].priority, 50);
  pool.forget_everything();
  events = pool.take_events();
  ASSERT_THAT(events, SizeIs(1));
  EXPECT_THAT(events[0].block_hashes, SizeIs(3));
}

TEST(Events, TheOldestAreDroppedAndTheGapShows) {
  PoolConfig config = two_levels(8, 0);
  config.event_buffer_size = 2;
  BlockPool pool(config);
  run(pool, counting(100, 16));
  const auto events = pool.take_events();
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(events[0].event_id, 3u);
  EXPECT_EQ(events[1].event_id, 4u);
  BlockPool off(two_levels(8, 0));
  run(off, counting(100, 16));
  EXPECT_THAT(off.take_events(), IsEmpty());
}

}  // namespace
}  // namespace nereid::sched
