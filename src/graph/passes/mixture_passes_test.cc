// Passes over mixtures of experts and the norms beside them.
#include <gmock/gmock.h>

#include <tuple>

#include "graph/lower.h"
#include "graph/passes/passes_fixture.h"

namespace nereid::graph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class MixturePassesTest : public PassesTest {
 protected:
  static Graph mixture() { return test_graph(/*biased=*/false, /*mixture=*/true); }

  // The mixture without its shared expert.
  static Graph routed_mixture() {
    Graph g = mixture();
    // The weighted sum in front of a node.
    const auto sum_before = [&](size_t node) {
      ValueId found = kNone;
      for (size_t i = 0; i < node; ++i)
        if (const auto* sum = std::get_if<WeightedSum>(&g.nodes[i].op);
            sum && g.values[sum->out].name.find(".shared") == std::string::npos)
          found = sum->out;
      return found;
    };
    std::vector<bool> dropped(g.nodes.size());
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      const std::string name = g.values[outputs(g.nodes[i].op)[0]].name;
      auto* const add = std::get_if<Add>(&g.nodes[i].op);
      if (add && name.ends_with(".sum2")) add->y = sum_before(i);
      dropped[i] = name.ends_with(".sum") || name.find(".shared") != name.npos;
    }
    drop_nodes(g, dropped);
    EXPECT_TRUE(verify(g).ok()) << verify(g);
    return g;
  }

  // In place of the reference kernel: one of cost 1 for what `can` takes.
  template <class Op>
  void set_kernel(bool (*can)(const Op&, const DeviceInfo&)) {
    std::get<kernels::Table<Op>>(registry_.tables) = {
        {"fast", DeviceKind::kCpu, can, [](const Op&, const DeviceInfo&) { return 1.0; }, nullptr}};
  }
};

TEST_F(MixturePassesTest, ProductsOfExpertsMakeGatedUnits) {
  const Graph g = compile(mixture());
  const auto products = all<ExpertLinear>(g);
  ASSERT_EQ(products.size(), 4u);
  EXPECT_TRUE(products[0].gated);
  EXPECT_FALSE(products[1].gated);
  const Weight& w = g.weights[products[0].weight];
  EXPECT_EQ(std::tuple(w.experts, w.n, w.k), std::tuple(3, 80, 32));
  std::vector<std::string> parts;
  for (const WeightPart& part : w.parts) parts.push_back(part.tensor);
  EXPECT_THAT(parts, ElementsAre("layers.0.gate0", "layers.0.up0", "layers.0.gate1", "layers.0.up1",
                                 "layers.0.gate2", "layers.0.up2"));
  const auto apart = all<ExpertLinear>(compile(mixture(), {"fold_expert_glu"}));
  EXPECT_EQ(apart.size(), 6u);
}

TEST_F(MixturePassesTest, GatedUnitsNeedAKernel) {
  set_kernel<kernels::ExpertLinear>(
      [](const kernels::ExpertLinear& op, const DeviceInfo&) { return !op.gated; });
  const auto products = all<ExpertLinear>(compile(mixture()));
  EXPECT_EQ(products.size(), 6u);
  for (const ExpertLinear& product : products) EXPECT_FALSE(product.gated);
}

// Adapters add to gates and ups.
TEST_F(MixturePassesTest, AdaptersKeepGatesApart) {
  context_.adapters = true;
  Graph g = mixture();
  for (Weight& w : g.weights)
    for (WeightPart& part : w.parts) part.tensor += ".weight";
  EXPECT_EQ(all<ExpertLinear>(compile(g)).size(), 6u);
}

TEST_F(MixturePassesTest, NormsAddWhatExpertsGive) {
  const auto sums = [&](const std::vector<std::string>& disabled) {
    const Graph g = compile(routed_mixture(), disabled);
    size_t folded = 0;
    for (const Norm& norm : all<Norm>(g)) folded += norm.factors != kNone;
    return std::pair(folded, all<WeightedSum>(g).size());
  };
  EXPECT_EQ(sums({}), std::pair(size_t{2}, size_t{0}));
  EXPECT_EQ(sums({"fold_residual_norm"}), std::pair(size_t{0}, size_t{2}));
  set_kernel<kernels::Norm>(
      [](const kernels::Norm& op, const DeviceInfo&) { return !kernels::is_given(op.factors); });
  EXPECT_EQ(sums({}), std::pair(size_t{0}, size_t{2}));
}

// Experts read f8e4m3, the router bf16: one norm makes both.
TEST_F(MixturePassesTest, NormsRoundForSomeReaders) {
  context_.weights = kernels::kFp8PerRow;
  const Graph g = compile(routed_mixture());
  size_t both = 0;
  for (const Norm& norm : all<Norm>(g)) {
    if (norm.rounded == kNone) continue;
    ++both;
    EXPECT_EQ(g.values[norm.out].dtype, DType::kBF16);
    EXPECT_EQ(g.values[norm.rounded].dtype, DType::kF8E4M3);
    EXPECT_NE(norm.scales, kNone);
  }
  EXPECT_EQ(both, 2u);
  EXPECT_TRUE(lower(g, DeviceInfo{}).ok());
}

// Stored MXFP4 stays where its kernel is not slower than that of integers.
TEST_F(MixturePassesTest, Mxfp4IsKeptOrBecomesIntegers) {
  Graph stored = mixture();
  for (Weight& w : stored.weights)
    if (w.experts > 1 && w.k % 32 == 0) w.stored = kernels::kMxfp4;
  const auto format = [&] {
    const Graph g = compile(stored);
    const Weight& w = g.weights[all<ExpertLinear>(g)[0].weight];
    return std::pair(w.format, w.layout);
  };
  EXPECT_EQ(format(), std::pair(kernels::kMxfp4, kernels::WeightLayout::kRowMajor));
  set_kernel<kernels::ExpertLinear>([](const kernels::ExpertLinear& op, const DeviceInfo&) {
    return op.weight.format != kernels::kMxfp4 ||
           op.weight.layout == kernels::WeightLayout::kFragments;
  });
  EXPECT_EQ(format(), std::pair(kernels::kMxfp4, kernels::WeightLayout::kFragments));
  set_kernel<kernels::ExpertLinear>([](const kernels::ExpertLinear& op, const DeviceInfo&) {
    return op.weight.format != kernels::kMxfp4;
  });
  EXPECT_EQ(format(), std::pair(kernels::kMxfp4Integers, kernels::WeightLayout::kRowMajor));
}

TEST_F(MixturePassesTest, FormatsOfExpertsAreRefusedByName) {
  const auto refusal = [&] {
    Graph g = mixture();
    return std::string(message(run_passes(g, context_, {})));
  };
  context_.experts = kernels::kMxfp4;
  EXPECT_THAT(refusal(),
              HasSubstr("expert_weights: mxfp4 has groups of 32 columns, 'layers.0.down' "
                        "has 40; use int8 or bf16"));
  set_kernel<kernels::ExpertLinear>([](const kernels::ExpertLinear& op, const DeviceInfo&) {
    return op.weight.format != kernels::kMxfp4;
  });
  Graph g = mixture();
  EXPECT_THAT(refusal(), HasSubstr("expert_weights: "));
  context_.experts = kernels::kInt8PerRow;
  ASSERT_TRUE(run_passes(g, context_, {}).ok());
  for (const ExpertLinear& product : all<ExpertLinear>(g))
    EXPECT_EQ(g.weights[product.weight].format, kernels::kInt8PerRow);
  for (const Linear& linear : all<Linear>(g))
    EXPECT_TRUE(g.weights[linear.weight].format.is_float());
}

}  // namespace
}  // namespace nereid::graph
