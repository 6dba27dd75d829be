// Steps on all ranks: with scripted ranks, and with the small model on two tensor ranks.
#include "exec/rank_group.h"

#include <gmock/gmock.h>

#include <bit>
#include <stdexcept>

#include "exec/rank_group_fixture.h"
#include "exec/runner_fixture.h"

namespace nereid::exec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ScriptedGroup : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kNumRanks = 3, kDrawing = 2;

  ScriptedGroup() {
    std::vector<RankGroup::Rank> ranks;
    for (int32_t r = 0; r < kNumRanks; ++r) {
      devices_[r] = make_cpu_device({.num_threads = 1}).value();
      ranks.push_back({std::make_unique<ScriptedRank>(scripts_[r], r, r == kDrawing),
                       devices_[r].get(), GetParam()});
    }
    group_ = std::make_unique<RankGroup>(std::move(ranks), health_);
    StepMessage step;
    encode(step, message_);
  }

  StatusOr<Ticket> launch() { return group_->launch(message_); }
  StatusOr<int32_t> run() {
    ASSIGN_OR_RETURN(Ticket ticket, launch());
    ASSIGN_OR_RETURN(const StepResult result, group_->wait(ticket));
    return result[0].drawn[0].token;
  }

  RankScript scripts_[kNumRanks];
  std::unique_ptr<Device> devices_[kNumRanks];
  Health health_{[] { return "the group"; }};
  std::unique_ptr<RankGroup> group_;
  std::vector<std::byte> message_;
};

INSTANTIATE_TEST_SUITE_P(RankGroup, ScriptedGroup, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Threads" : "OneThread"; });

TEST_P(ScriptedGroup, StepsGoToAllRanksAndOneDraws) {
  for (int step = 1; step <= 5; ++step) {
    EXPECT_EQ(run().value(), 5);
    for (const RankScript& s : scripts_) {
      EXPECT_EQ(s.num_launches, step);
      EXPECT_EQ(s.num_waits, step);
    }
  }
  EXPECT_EQ(scripts_[0].num_follows, 5);
  EXPECT_EQ(scripts_[kDrawing].num_follows, 0) << "it moves its paths in wait()";
  EXPECT_EQ(scripts_[kDrawing].launcher, std::this_thread::get_id());
  EXPECT_EQ(scripts_[0].launcher != std::this_thread::get_id(), GetParam());
  EXPECT_TRUE(health_.failure().ok());
}

TEST_P(ScriptedGroup, TakesAsManyStepsAsItsLimitsSay) {
  Ticket first = launch().value(), second = launch().value();
  EXPECT_THAT(launch().status().ToString(), HasSubstr("2 steps are in flight already"));
  EXPECT_TRUE(group_->wait(first).ok());
  Ticket third = launch().value();
  EXPECT_TRUE(group_->wait(second).ok());
  EXPECT_TRUE(group_->wait(third).ok());
  EXPECT_THAT(group_->wait(third).status().ToString(), HasSubstr("an empty ticket"));
}

TEST_P(ScriptedGroup, ARefusedMessageChangesNothing) {
  scripts_[kDrawing].launch_status = invalid_argument("row 0: no");
  EXPECT_EQ(launch().status(), invalid_argument("row 0: no"));
  scripts_[kDrawing].launch_status = ok();
  EXPECT_EQ(run().value(), 5);
  for (const RankScript& s : scripts_) {
    EXPECT_EQ(s.num_launches, 1);
    EXPECT_TRUE(s.aborts.empty());
  }
}

// The drawing rank is not the one with the embeddings.
TEST_P(ScriptedGroup, ChecksTheNumberOfEmbeddingsFirst) {
  StepMessage step;
  step.tokens = {3, kTokenExternal};
  step.embeddings.resize(3);
  encode(step, message_);
  EXPECT_EQ(launch().status(), invalid_argument("3 numbers of embeddings; 1 tokens need 4"));
  EXPECT_EQ(scripts_[kDrawing].num_launches, 0);
  step.embeddings.resize(4);
  encode(step, message_);
  EXPECT_EQ(run().value(), 5);
}

TEST_P(ScriptedGroup, AnErrorOfOneRankEndsThemAll) {
  for (RankScript& s : scripts_) s.held = true;  // until they are aborted
  scripts_[1].held = false;
  scripts_[1].wait_status = internal_error("rank 1: broken");
  // Without threads, the ranks are waited for one after the other, and end the exchange themselves.
  if (!GetParam()) scripts_[kDrawing].held = scripts_[0].held = false;
  Ticket ticket = launch().value();
  EXPECT_FALSE(group_->wait(ticket).ok());
  for (const RankScript& s : scripts_) EXPECT_THAT(s.aborts, ::testing::Contains("rank 1: broken"));
  EXPECT_EQ(health_.failure(), unavailable("the group has failed: rank 1: broken"));
  EXPECT_EQ(launch().status(), health_.failure());
  EXPECT_EQ(scripts_[0].num_launches, 1);
}

TEST_P(ScriptedGroup, ARankThatDoesNotLaunchEndsThemAll) {
  scripts_[0].launch_status = unavailable("rank 0: no device");
  Ticket ticket = launch().value();
  EXPECT_FALSE(group_->wait(ticket).ok());
  EXPECT_EQ(scripts_[0].num_waits, 0);
  EXPECT_EQ(scripts_[kDrawing].num_waits, 1);
  EXPECT_EQ(health_.failure(), unavailable("the group has failed: rank 0: no device"));
  EXPECT_EQ(group_->onboarded(true), health_.failure()) << "rank 0 has no copies to wait for";
}

TEST_P(ScriptedGroup, OnboardsHaveEndedOnceAllRanksHaveThem) {
  EXPECT_FALSE(group_->onboarded(false));
  scripts_[0].onboards = {ok(), ok()};
  scripts_[1].onboards = {ok()};
  EXPECT_FALSE(group_->onboarded(false));
  scripts_[2].onboards = {ok(), ok()};
  EXPECT_EQ(group_->onboarded(false), ok());
  EXPECT_FALSE(group_->onboarded(false));
  scripts_[1].onboards = {internal_error("lost")};
  EXPECT_EQ(group_->onboarded(false), internal_error("lost"));
  EXPECT_FALSE(group_->onboarded(false));
  EXPECT_TRUE(health_.failure().ok()) << "the blocks are computed again";
}

TEST_P(ScriptedGroup, StepsWithoutTheirMasksEndWithTheGroup) {
  for (RankScript& s : scripts_) s.held = true;
  Ticket ticket = launch().value();
  group_.reset();
  for (const RankScript& s : scripts_) EXPECT_EQ(s.aborts.size(), 1u);
}

TEST_P(ScriptedGroup, AHungRankLeavesTheOthersHung) {
  devices_[1]->health().hang(unavailable("no progress"));
  scripts_[1].wait_status = devices_[1]->health().failure();
  Ticket ticket = launch().value();
  EXPECT_FALSE(group_->wait(ticket).ok());
  EXPECT_TRUE(health_.is_hung());
  for (const auto& device : devices_) EXPECT_TRUE(device->health().is_hung()) << "memory is shared";
}

TEST_P(ScriptedGroup, ReportsByRank) {
  EXPECT_EQ(group_->memory().size(), 3u);
  EXPECT_EQ(group_->memory()[1].rank, 1);
  EXPECT_EQ(group_->ranks()[2].rank, 2);
  const std::vector<OpTime> times = group_->profile();
  ASSERT_EQ(times.size(), 4u);
  EXPECT_EQ(times[0].seconds, 9);
  EXPECT_EQ(times[3].op, "linear");
  EXPECT_EQ(times[3].num_calls, 6);
  EXPECT_EQ(times[3].seconds, 1 + 2 + 3);
  EXPECT_EQ(times[3].bytes, 30u);
  EXPECT_EQ(group_->embedding_width(), 4);
}

class GroupOfTwo : public ::testing::TestWithParam<bool> {
 protected:
  static RunnerLimits limits() {
    RunnerLimits limits = roomy_limits(4, 32, 64, 4);
    limits.max_logits = 32;
    limits.has_trees = true;
    return limits;
  }
  GroupOfTwo()
      : one_(write_engine(plan_of_rank(1, 0), "of_one"), limits(),
             kernels::open_device("cpu", {.num_threads = 1})),
        two_(limits(), GetParam()) {}

  // Tokens of steps of both runners, whose inputs are those on the device.
  static Ids decode_on_device(Runner& runner, int32_t count) {
    const RunnerLimits& limits = runner.limits();
    const Sequence sequences[] = {{0, limits}, {1, limits}};
    const Ids prompts[] = {{1, 5, 9, 2, 30}, {7, 7, 8}};
    const Ids on_device = {kTokenOnDevice};
    Ids said;
    std::deque<Ticket> flying;
    const auto finish = [&] {
      const StepResult results = runner.wait(flying.front()).value();
      for (const RowResult& row : results) said.push_back(row.drawn[0].token);
      flying.pop_front();
    };
    for (int32_t i = 0; i < count; ++i) {
      std::vector<RowSpec> rows;
      for (size_t s = 0; s < 2; ++s)
        rows.push_back(
            sequences[s].row(i == 0 ? prompts[s] : on_device,
                             i == 0 ? 0 : static_cast<int32_t>(prompts[s].size()) + i - 1, 1));
      flying.push_back(launch(runner, rows).value());
      if (flying.size() == 2) finish();
    }
    while (!flying.empty()) finish();
    return said;
  }

  Harness one_;
  TwoRanks two_;
};

INSTANTIATE_TEST_SUITE_P(RankGroup, GroupOfTwo, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Threads" : "OneThread"; });

TEST_P(GroupOfTwo, TokensOnTheDeviceAreThoseOfOneRank) {
  const Ids expected = decode_on_device(one_.runner(), 20);
  EXPECT_EQ(decode_on_device(two_.group(), 20), expected);
  EXPECT_THAT(expected, ::testing::Contains(::testing::Ne(expected[0])));
  const auto figures = two_.group().ranks();
  ASSERT_EQ(figures.size(), 2u);
  EXPECT_EQ(figures[1].num_steps, 20);
  EXPECT_GT(figures[1].exchange_seconds, 0);
}

TEST_P(GroupOfTwo, MasksOfTheDrawingRankHoldForAll) {
  const auto draw = [](Runner& runner, uint32_t mask) {
    const Sequence sequence(0, runner.limits());
    StepMessage step = step_of({sequence.row(kPrompt, 0, 1)}, 1, runner.limits().block_tokens);
    step.rows[0].has_mask = 1;
    std::vector<std::byte> bytes;
    encode(step, bytes);
    Ticket ticket = runner.launch(bytes).value();
    Masks masks;
    masks.rows = {0}, masks.words = {mask};
    encode(masks, bytes);
    runner.draw(ticket, bytes);
    EXPECT_EQ(runner.wait(ticket).value()[0].drawn[0].token, std::countr_zero(mask));
    // The next input is what was drawn.
    const Ids on_device = {kTokenOnDevice};
    Ticket next =
        launch(runner, {sequence.row(on_device, static_cast<int32_t>(kPrompt.size()), 1)}).value();
    return runner.wait(next).value()[0].drawn[0].token;
  };
  for (const uint32_t mask : {1u << 3, 1u << 17})
    EXPECT_EQ(draw(two_.group(), mask), draw(one_.runner(), mask));
}

TEST_P(GroupOfTwo, MasksThatNeverCameEndTheGroup) {
  const Sequence sequence(0, two_.group().limits());
  StepMessage step = step_of({sequence.row(kPrompt, 0, 1)}, 1, 4);
  step.rows[0].has_mask = 1;
  std::vector<std::byte> bytes;
  encode(step, bytes);
  Ticket ticket = two_.group().launch(bytes).value();
  EXPECT_THAT(two_.group().wait(ticket).status().ToString(), HasSubstr("masks never came"));
  EXPECT_FALSE(two_.health().failure().ok());
}

// An accepted path is moved on all ranks: later steps read it.
TEST_P(GroupOfTwo, KeepsPathsOfTreesOnAllRanks) {
  const auto run = [](Runner& runner) {
    const Sequence sequence(0, runner.limits());
    const auto step = [&](const Ids& tokens, int32_t start, const Ids& parents) {
      const auto num_drafts = static_cast<int32_t>(parents.size());
      StepMessage message = step_of({sequence.row(tokens, start, 1 + num_drafts)}, 1, 4);
      message.rows[0].num_drafts = num_drafts;
      message.rows[0].has_tree = num_drafts > 0;
      message.parents = parents;
      std::vector<std::byte> bytes;
      encode(message, bytes);
      Ticket ticket = runner.launch(bytes).value();
      const RowResult row = runner.wait(ticket).value()[0];
      Ids said;
      for (const auto& drawn : row.drawn) said.push_back(drawn.token);
      return said;
    };
    Ids text = kPrompt;
    Ids said = step(text, 0, {});
    // The next ids, computed ahead.
    Ids ahead = said;
    for (int32_t i = 0; i < 2; ++i) {
      text.push_back(ahead.back());
      ahead.push_back(step({text.back()}, static_cast<int32_t>(text.size()) - 1, {})[0]);
    }
    // A tree behind the first token: a wrong draft, and a path that holds.
    text = kPrompt;
    text.push_back(ahead[0]);
    const auto start = static_cast<int32_t>(kPrompt.size());
    const int32_t wrong = (ahead[1] + 1) % 32, other = (ahead[2] + 1) % 32;
    const Ids path = step({ahead[0], wrong, ahead[1], other, ahead[2]}, start, {-1, -1, 1, 1});
    EXPECT_EQ(path.size(), 3u) << "two drafts hold";
    text.insert(text.end(), path.begin(), path.end());
    for (int32_t i = 0; i < 6; ++i)
      text.push_back(step({text.back()}, static_cast<int32_t>(text.size()) - 1, {})[0]);
    return text;
  };
  EXPECT_EQ(run(two_.group()), run(one_.runner()));
}

TEST_P(GroupOfTwo, ARankThatFailsEndsTheStepOfTheOther) {
  two_.rank(1).set_observer(
      [](const std::string&, kernels::Linear&) -> bool { throw std::runtime_error("boom"); });
  const Sequence sequence(0, two_.group().limits());
  Ticket ticket = launch(two_.group(), {sequence.row(kPrompt, 0, 1)}).value();
  EXPECT_THAT(two_.group().wait(ticket).status().ToString(),
              HasSubstr("rank 1 on cpu: a step ended with an exception"));
  EXPECT_THAT(two_.health().failure().ToString(), HasSubstr("the group has failed"));
}

// Its exchanges go on, as other ranks wait for them.
TEST_P(GroupOfTwo, AnObserverMayEndItsRanksStep) {
  int num_seen = 0;
  two_.rank(1).set_observer([&](const std::string&, kernels::Linear&) { return ++num_seen > 1; });
  const Sequence sequence(0, two_.group().limits());
  for (int i = 0; i < 2; ++i) {
    Ticket ticket = launch(two_.group(), {sequence.row(kPrompt, 0, 1)}).value();
    EXPECT_TRUE(two_.group().wait(ticket).ok());
  }
  EXPECT_EQ(num_seen, 4) << "one call of the first step, three of the second";
  two_.rank(1).set_observer({});
}

TEST_P(GroupOfTwo, ShowsTheProductsOfAllRanks) {
  int num_seen = 0;
  two_.group().set_observer([&](const std::string&, kernels::Linear&) { return ++num_seen > 0; });
  two_.group().set_profiling(true);
  const Sequence sequence(0, two_.group().limits());
  Ticket ticket = launch(two_.group(), {sequence.row(kPrompt, 0, 1)}).value();
  EXPECT_TRUE(two_.group().wait(ticket).ok());
  EXPECT_EQ(num_seen, 6) << "qkv, proj and the head, twice";
  const auto times = two_.group().profile();
  const auto exchange = std::ranges::find(times, "all_reduce", &OpTime::op);
  ASSERT_NE(exchange, times.end());
  EXPECT_EQ(exchange->num_calls, 2);
  two_.group().set_observer({});
}

TEST(RankComms, MustBeThoseOfTheEnginesRank) {
  const auto opened = kernels::open_device("cpu", {.num_threads = 1}).value();
  const auto error = [&](const io::Plan& plan, RankComms comms) {
    const auto path = write_engine(plan, "of_a_rank");
    return make_runner(io::EngineFile::open(path).value(), *opened.device, opened.registry,
                       roomy_limits(4, 32, 64, 4), {}, std::move(comms))
        .status()
        .ToString();
  };
  const auto group_of = [](int size) {
    return comm::make_thread_group(size, std::chrono::seconds(1)).value();
  };
  EXPECT_THAT(error(plan_of_rank(2, 1), {}),
              HasSubstr("a part for 2 tensor ranks; its communicator"));
  auto two = group_of(2);
  EXPECT_THAT(error(plan_of_rank(2, 1), {.tensor = std::move(two[0])}),
              HasSubstr("part 1 of 2 tensor ranks; the communicator's rank is 0 of 2"));
  auto three = group_of(3);
  EXPECT_THAT(error(plan_of_rank(2, 1), {.tensor = std::move(three[1])}), HasSubstr("1 of 3"));
  auto one = group_of(2);
  EXPECT_THAT(error(plan_of_rank(1, 0), {.tensor = std::move(one[0])}),
              HasSubstr("part 0 of 1 tensor ranks"));
}

}  // namespace
}  // namespace nereid::exec
