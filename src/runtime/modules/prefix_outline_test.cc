// Outlines of the prefix tree: made by the engine when asked, at most one in a while.
#include <gmock/gmock.h>

#include "runtime/testing/engine_fixture.h"
#include "runtime/testing/engine_loop.h"

namespace nereid::runtime {
namespace {

using ::testing::SizeIs;

constexpr std::chrono::milliseconds kNoPatience(0);

TEST(PrefixOutline, IsMadeWhenAsked) {
  EngineLoop loop;
  loop.submit(1, {1, 2, 3, 4, 5, 6, 7, 8, 9}, 3);
  loop.run();
  EXPECT_LT(loop.rings.prefixes.newest(loop.clock, kNoPatience).age, 0) << "nobody has asked";
  EXPECT_TRUE(loop.rings.prefixes.ask(loop.clock.time));
  EXPECT_FALSE(loop.rings.prefixes.ask(loop.clock.time)) << "it is on its way";
  loop.inbox.push(WakeUp{});
  loop.turn();
  const PrefixTreeOutline tree = loop.rings.prefixes.newest(loop.clock, kNoPatience);
  EXPECT_EQ(tree.age, 0);
  ASSERT_THAT(tree.runs, SizeIs(1));
  EXPECT_EQ(tree.runs[0].tokens, 11) << "the last sampled token is in no block";
  EXPECT_EQ(tree.runs[0].blocks, 3);
  EXPECT_EQ(tree.runs[0].holders, 0);
}

TEST(PrefixOutline, ShowsTheHoldersBetweenTwoSteps) {
  EngineLoop loop;
  loop.submit(1, {1, 2, 3, 4, 5, 6, 7, 8, 9}, 100);
  for (int i = 0; i < 4; ++i) loop.turn();
  loop.rings.prefixes.ask(loop.clock.time);
  loop.turn();
  const PrefixTreeOutline tree = loop.rings.prefixes.newest(loop.clock, kNoPatience);
  ASSERT_THAT(tree.runs, SizeIs(1));
  EXPECT_EQ(tree.runs[0].holders, 1);
}

TEST(PrefixOutline, IsNotAskedForBeforeTheFormerOneIsOld) {
  PrefixWatch watch;
  ScriptedClock clock;
  ASSERT_TRUE(watch.ask(clock.time));
  watch.put({}, clock.time);
  EXPECT_FALSE(watch.ask(clock.time + PrefixWatch::kFresh - Duration(1)));
  EXPECT_FALSE(watch.is_asked());
  clock.time += PrefixWatch::kFresh;
  EXPECT_EQ(watch.newest(clock, kNoPatience).age, 0.25);
  EXPECT_TRUE(watch.ask(clock.time));
  EXPECT_TRUE(watch.is_asked());
}

TEST(PrefixOutline, AsJson) {
  PrefixTreeOutline tree{.instance = 1, .tokens_per_block = 4, .num_blocks = 5, .num_left_out = 1};
  EXPECT_EQ(to_json(std::vector{tree}),
            R"({"instances":[{"instance":1,"age_ms":null,"tokens_per_block":4,"blocks":5,)"
            R"("left_out":1,"runs":[]}]})");
  tree.age = 1.5;
  tree.runs = {{.tokens = 12, .blocks = 3, .holders = 2},
               {.parent = 0, .tokens = 3, .blocks = 1, .on_host = true}};
  EXPECT_EQ(to_json(std::vector{tree}),
            R"({"instances":[{"instance":1,"age_ms":1500,"tokens_per_block":4,"blocks":5,)"
            R"("left_out":1,"runs":[[-1,12,3,2,"device"],[0,3,1,0,"host"]]}]})");
  EXPECT_EQ(to_json(std::vector<PrefixTreeOutline>()), R"({"instances":[]})");
}

// An engine with a thread, which sleeps.
TEST(PrefixOutline, WakesAnEngineThatSleeps) {
  Fixture f;
  f.client.run(*f.executor, request(std::vector<TokenId>(40, 9), 3));
  std::vector<PrefixTreeOutline> trees;
  do trees = f.executor->prefix_trees();
  while (trees.at(0).age < 0);
  EXPECT_GE(trees[0].num_blocks, 2) << "the full blocks of the prompt";
  EXPECT_GE(trees.at(0).runs.at(0).tokens, 32);
}

}  // namespace
}  // namespace nereid::runtime
