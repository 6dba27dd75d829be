// Fusable calls of a made-up plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "exec/fused_calls.h"
#include "exec/value_flow.h"
#include "io/test_plan.h"

namespace nereid::exec {
namespace {

using kernels::ids::Add;
using kernels::ids::Glu;
using kernels::ids::Linear;
using kernels::ids::Norm;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<size_t> calls_that_read(const ValueFlow& flow, size_t call, io::ValueId id) {
  std::vector<size_t> calls;
  for (const ValueFlow::Read& read : flow.reads_of(call, id)) calls.push_back(read.call);
  return calls;
}

TEST(ValueFlow, FollowsMemoryAndNotNames) {
  io::Plan plan = io::test_plan();
  const auto part = static_cast<io::ValueId>(plan.values.size());
  plan.values.push_back({"q", io::RowCount::kTokens, DType::kF32, 32, 64, 0, 192});
  plan.calls.push_back({Add{.x = part, .y = part, .out = part}, "ref"});
  const ValueFlow flow(plan);
  EXPECT_THAT(calls_that_read(flow, 2, 2), ElementsAre(3u, 7u, 7u)) << "as q, | k | v and as q";
  EXPECT_EQ(flow.writer_of(3, 2), 2);
  EXPECT_EQ(flow.writer_of(7, part), io::kNone) << "it was written as another value";
  // The attention result reuses the norm's memory.
  EXPECT_THAT(calls_that_read(flow, 1, 1), ElementsAre(2u));
  EXPECT_THAT(calls_that_read(flow, 3, 3), IsEmpty());
  // The last norm's result is a result of the plan.
  EXPECT_THAT(calls_that_read(flow, 5, 5), ElementsAre(6u, plan.calls.size()));
  EXPECT_THAT(calls_that_read(flow, 6, 6), ElementsAre(plan.calls.size()));
}

enum : io::ValueId { kX, kH, kY, kSum, kNormed, kGateUp, kUnits, kOut, kSpare, kHalf };

// y = h . w; norm of x + y; gate and up; gated activation; down product.
io::Plan layer_plan() {
  io::Plan plan;
  const auto value = [&](const char* name, DType type, int64_t cols, int64_t offset) {
    plan.values.push_back({name, io::RowCount::kTokens, type, cols, cols, 0, offset});
  };
  value("x", DType::kF32, 32, 0);
  value("h", DType::kBF16, 32, 128);
  value("y", DType::kF32, 32, 192);
  value("sum", DType::kF32, 32, 0);
  value("normed", DType::kBF16, 32, 320);
  value("gate_up", DType::kF32, 64, 384);
  value("units", DType::kBF16, 32, 640);
  value("out", DType::kF32, 32, 704);
  value("spare", DType::kF32, 32, 832);
  plan.values.push_back({"half", io::RowCount::kTokens, DType::kF32, 16, 32, 16, 192});
  plan.weights = {{"square", {}, 32, 32}, {"norm", {}, 1, 32}, {"gate_up", {}, 64, 32}};
  plan.calls = {{kernels::ids::Embed{.table = 0, .out = kX}, "ref"},
                {Norm{.x = kX, .weight = 1, .out = kH}, "ref"},
                {Linear{.x = kH, .weight = 0, .out = kY}, "ref"},
                {Norm{.x = kX, .add = kY, .weight = 1, .out = kNormed, .sum = kSum}, "ref"},
                {Linear{.x = kNormed, .weight = 2, .out = kGateUp}, "ref"},
                {Glu{.x = kGateUp, .out = kUnits}, "ref"},
                {Linear{.x = kUnits, .weight = 0, .out = kOut}, "ref"}};
  plan.logits = kOut;
  return plan;
}

// The calls replaced if `can` allows them.
std::vector<size_t> left_out(
    const std::function<void(io::Plan&)>& change,
    const FusionSites::Can& can = [](auto&&...) { return true; }) {
  io::Plan plan = layer_plan();
  change(plan);
  const FusedCalls chosen = FusionSites(plan).choose(can);
  std::vector<size_t> calls;
  for (size_t i = 0, next = 0; i < plan.calls.size() && !chosen.calls.empty(); ++i)
    if (next < chosen.calls.size() && chosen.calls[next].index == i)
      ++next;
    else
      calls.push_back(i);
  return calls;
}

TEST(FusionSites, AreNormsAndUnitsBetweenProducts) {
  EXPECT_THAT(left_out([](io::Plan&) {}), ElementsAre(3u, 5u));
  io::Plan plan = layer_plan();
  const FusedCalls chosen = FusionSites(plan).choose([](auto&&...) { return true; });
  ASSERT_EQ(chosen.calls.size(), 5u);
  const auto& front = *chosen.calls[2].linear;
  EXPECT_EQ(front.residual, kX);
  EXPECT_EQ(front.sum, kSum);
  EXPECT_EQ(front.out, kNormed);
  const auto& gated = *chosen.calls[3].linear;
  EXPECT_EQ(gated.x_squares, front.squares);
  EXPECT_TRUE(gated.gated);
  EXPECT_EQ(gated.out, kUnits);
  EXPECT_FALSE(chosen.calls[4].linear) << "it reads units as they are";
  EXPECT_NE(chosen.values[kNormed].offset, io::kNone);
  EXPECT_EQ(chosen.values[kX].offset, io::kNone);
}

TEST(FusionSites, AreNotLookedForInHugePlans) {
  io::Plan plan = layer_plan();
  const io::Call idle{Add{.x = kSpare, .y = kSpare, .out = kSpare}, "ref"};
  plan.calls.resize(kMaxCallsToFuse, idle);
  EXPECT_GT(FusionSites(plan).bytes(), 0u);
  plan.calls.push_back(idle);
  const FusionSites places(plan);
  EXPECT_EQ(places.bytes(), 0u);
  EXPECT_THAT(places.choose([](auto&&...) { return true; }).calls, IsEmpty());
}

// Not fused: values read by another call, or returned by the plan.
TEST(FusionSites, HaveNoOtherReaders) {
  const auto reads = [](io::ValueId id, size_t at) {
    return [id, at](io::Plan& plan) {
      plan.calls.insert(plan.calls.begin() + static_cast<ptrdiff_t>(at),
                        {Add{.x = kSpare, .y = id, .out = kSpare}, "ref"});
    };
  };
  EXPECT_THAT(left_out(reads(kSum, 7)), ElementsAre(3u, 5u)) << "the stream goes on";
  EXPECT_THAT(left_out(reads(kY, 7)), ElementsAre(5u));
  EXPECT_THAT(left_out(reads(kHalf, 7)), ElementsAre(5u)) << "a part of y";
  EXPECT_THAT(left_out(reads(kGateUp, 7)), ElementsAre(3u));
  EXPECT_THAT(left_out(reads(kNormed, 7)), ElementsAre(5u));
  EXPECT_THAT(left_out(reads(kUnits, 7)), ElementsAre(3u));
  EXPECT_THAT(left_out([](io::Plan& p) { p.hidden = {kNormed}; }), ElementsAre(5u));
  EXPECT_THAT(left_out(reads(kSpare, 3)), ElementsAre(6u)) << "a call in between";
}

TEST(FusionSites, AreOfTheKindThatProductsMake) {
  const auto norm = [](const std::function<void(Norm&)>& change) {
    return [change](io::Plan& plan) { change(std::get<Norm>(plan.calls[3].op)); };
  };
  EXPECT_THAT(left_out(norm([](Norm& n) { n.centered = true; })), ElementsAre(5u));
  EXPECT_THAT(left_out(norm([](Norm& n) { n.bias = 1; })), ElementsAre(5u));
  EXPECT_THAT(left_out(norm([](Norm& n) { n.piece = 16; })), ElementsAre(5u));
  EXPECT_THAT(left_out([](io::Plan& p) { p.values[kNormed].dtype = DType::kF32; }), IsEmpty());
}

TEST(FusionSites, AreGivenUpWhereAKernelCannot) {
  const auto without = [](const std::function<bool(const kernels::ids::FusedLinear&)>& can) {
    return left_out(
        [](io::Plan&) {},
        [can](const auto& linear, const std::string& kernel, const std::vector<FusedValue>&) {
          EXPECT_EQ(kernel, "ref");
          return can(linear);
        });
  };
  EXPECT_THAT(without([](const auto& l) { return !is_given(l.residual); }), ElementsAre(5u));
  EXPECT_THAT(without([](const auto& l) { return !l.gated; }), ElementsAre(3u));
  EXPECT_THAT(without([](const auto& l) { return !l.gated || !is_given(l.x_squares); }),
              ElementsAre(3u))
      << "one of both";
  EXPECT_THAT(without([](const auto&) { return false; }), IsEmpty());
  const auto no_squares = [](const kernels::ids::FusedLinear& linear, const std::string&,
                             const std::vector<FusedValue>&) {
    return !is_given(linear.x_squares);
  };
  EXPECT_THAT(left_out([](io::Plan& p) { p.hidden = {kUnits}; }, no_squares), IsEmpty());
  EXPECT_THAT(left_out([](io::Plan& p) { p.calls[4].kernel = ""; }), IsEmpty())
      << "it is chosen when the plan is bound";
}

// Memory is reused at the earliest two calls after the last reader.
TEST(FusionSites, ValuesOverlapOnlyFarFromEachOther) {
  io::Plan plan = layer_plan();
  const std::vector<io::Call> layer(plan.calls.begin() + 2, plan.calls.end());
  const std::vector<io::Value> values = plan.values;
  for (io::ValueId i = 1; i < 5; ++i) {  // each with a value of its own
    plan.values.insert(plan.values.end(), values.begin(), values.end());
    const auto first = static_cast<io::ValueId>(values.size()) * i;
    const io::ValueId units = first - static_cast<io::ValueId>(values.size()) + kUnits;
    plan.calls.insert(
        plan.calls.end(),
        {{Linear{.x = units, .weight = 0, .out = first + kY}, "ref"},
         {Norm{.x = kX, .add = first + kY, .weight = 1, .out = first + kNormed, .sum = kSum},
          "ref"},
         {Linear{.x = first + kNormed, .weight = 2, .out = first + kGateUp}, "ref"},
         {Glu{.x = first + kGateUp, .out = first + kUnits}, "ref"},
         {Linear{.x = first + kUnits, .weight = 0, .out = first + kOut}, "ref"}});
  }
  const FusionSites places(plan);
  const FusedCalls chosen = places.choose([](auto&&...) { return true; });
  struct Life {
    size_t maker, reader;
    int64_t begin, end;
  };
  std::map<io::ValueId, Life> lives;
  for (const FusedCalls::Call& call : chosen.calls) {
    const auto* plain = std::get_if<Linear>(&plan.calls[call.index].op);
    const auto linear = call.linear
                            ? *call.linear
                            : kernels::ids::FusedLinear{.x = plain ? plain->x : kernels::Id()};
    for (const io::ValueId id : {linear.out.index, linear.squares.index}) {
      if (id == io::kNone || chosen.values[static_cast<size_t>(id)].offset == io::kNone) continue;
      const FusedValue& v = chosen.values[static_cast<size_t>(id)];
      const int64_t bytes = kMaxFusedRows * v.cols * static_cast<int64_t>(size_of(v.dtype));
      lives[id] = {call.index, call.index, v.offset, v.offset + bytes};
      EXPECT_LE(static_cast<size_t>(v.offset + bytes), places.bytes());
    }
    for (const io::ValueId id : {linear.x.index, linear.x_squares.index})
      if (lives.contains(id)) lives[id].reader = call.index;
  }
  EXPECT_EQ(lives.size(), 15u);
  EXPECT_LT(places.bytes(), lives.size() * 16 * 1024);
  for (const auto& [id, a] : lives)
    for (const auto& [other, b] : lives)
      if (id != other && a.begin < b.end && b.begin < a.end) {
        EXPECT_TRUE(a.reader + 2 < b.maker || b.reader + 2 < a.maker) << id << " and " << other;
      }
}

}  // namespace
}  // namespace nereid::exec
