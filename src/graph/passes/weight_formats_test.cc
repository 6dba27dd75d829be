// Formats of weights and of product inputs.
#include <gmock/gmock.h>

#include <algorithm>

#include "graph/builder.h"
#include "graph/lower.h"
#include "graph/passes/passes_fixture.h"

namespace nereid::graph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Product weights become integers; vectors do not.
TEST_F(PassesTest, WeightFormatsAreThoseOfTheBuild) {
  context_.weights = kernels::kInt4Groups;
  const Graph g = compile(test_graph(/*biased=*/true));
  const std::vector<Linear> linears = all<Linear>(g);
  for (const Linear& linear : linears)
    EXPECT_EQ(g.weights[linear.weight].format,
              linear.weight == linears.back().weight ? kernels::kInt8PerRow : kernels::kInt4Groups);
  EXPECT_EQ(linears.back().weight, all<Embed>(g)[0].table);
  EXPECT_EQ(all<Concat>(g).size(), 0u);  // merged in the new format
  for (const Weight& w : g.weights) EXPECT_TRUE(!w.is_vector || w.format.is_float()) << w.name;
  const auto plan = lower(g, DeviceInfo{});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->weights[linears[0].weight].planes.size(), 2u);
}

// Head format: option, else derived from the products' format, else stored; a tied table follows if
// the device can look up rows in it.
TEST_F(PassesTest, FormatOfTheHead) {
  const auto formats = [&](const Graph& graph) {
    const Graph g = compile(graph);
    return std::pair(g.weights[all<Linear>(g).back().weight].format,
                     g.weights[all<Embed>(g)[0].table].format);
  };
  const kernels::WeightFormat floats = {};
  const auto both = [](const kernels::WeightFormat& format) { return std::pair(format, format); };
  EXPECT_EQ(formats(test_graph()), both(floats));
  context_.weights = kernels::kInt8Both;
  EXPECT_EQ(formats(test_graph()), both(kernels::kInt8PerRow));
  context_.head = kernels::kFp8PerRow;
  EXPECT_EQ(formats(test_graph()), both(kernels::kFp8PerRow));
  context_.weights = kernels::kFp8PerRow, context_.head.reset();
  EXPECT_EQ(formats(test_graph()), both(floats));
  context_.weights.reset();
  Graph stored = test_graph();
  for (Weight& w : stored.weights)
    if (w.name == "head") w.stored = kernels::kInt4Groups;
  EXPECT_EQ(formats(stored), both(kernels::kInt4Groups));
  for (Weight& w : stored.weights)
    if (w.name == "head") w.parts[0].tensor = "another";
  EXPECT_EQ(formats(stored), std::pair(kernels::kInt4Groups, floats));
  std::get<kernels::Table<kernels::Embed>>(registry_.tables).clear();
  registry_.add<kernels::Embed>(
      {{"floats", DeviceKind::kCpu,
        [](const kernels::Embed& op, const DeviceInfo&) { return op.table.format.is_float(); },
        [](const kernels::Embed&, const DeviceInfo&) { return 1.0; }, nullptr}});
  context_.weights = kernels::kInt8PerRow;
  EXPECT_EQ(formats(test_graph()), std::pair(kernels::kInt8PerRow, floats));
}

// A pass-through format without a kernel becomes bf16.
TEST_F(PassesTest, StoredFormatsNeedAKernel) {
  Graph stored = test_graph();
  for (Weight& w : stored.weights)
    if (w.name == "layers.0.down") w.stored = kernels::kFp8Groups;
  const auto format = [&] {
    const Graph g = compile(stored);
    const auto is_down = [](const Weight& w) { return w.name == "layers.0.down"; };
    return std::ranges::find_if(g.weights, is_down)->format;
  };
  EXPECT_EQ(format(), kernels::kFp8Groups);
  std::get<kernels::Table<kernels::Linear>>(registry_.tables).clear();
  registry_.add<kernels::Linear>(
      {{"floats", DeviceKind::kCpu,
        [](const kernels::Linear& op, const DeviceInfo&) { return op.weight.format.is_float(); },
        [](const kernels::Linear&, const DeviceInfo&) { return 1.0; }, nullptr}});
  EXPECT_EQ(format(), kernels::WeightFormat{});
}

TEST_F(PassesTest, WeightsOfDifferentFormatsStayApart) {
  Graph g = test_graph();
  for (Weight& w : g.weights) {
    if (w.name == "layers.0.k") w.format = kernels::kInt8PerRow;
    if (w.name == "head") w.format = kernels::kInt4Groups;
  }
  EXPECT_EQ(all<Concat>(after(merge_qkv, g)).size(), 3u);  // qkv of layer 0, gate_up of both
  EXPECT_EQ(after(tie_embedding, g).weights.size(), g.weights.size());
}

// fp8 products read f8e4m3 rows, rounded once per value; the head is unchanged.
TEST_F(PassesTest, Fp8WeightsReadQuantizedRows) {
  context_.weights = kernels::kFp8PerRow;
  const Graph g = compile(test_graph(), {"fold_quantize"});
  const std::vector<Linear> linears = all<Linear>(g);
  ASSERT_GT(linears.size(), 2u);
  for (const Linear& linear : linears) {
    const bool is_head = linear.weight == linears.back().weight;
    EXPECT_EQ(g.values[linear.x].dtype, is_head ? DType::kBF16 : DType::kF8E4M3);
    EXPECT_EQ(linear.scales == kNone, is_head);
  }
  EXPECT_EQ(all<Quantize>(g).size(), linears.size() - 1);
  const auto plan = lower(g, DeviceInfo{});
  ASSERT_TRUE(plan.ok()) << plan.status();
  context_.weights = kernels::kInt8PerRow;
  EXPECT_TRUE(all<Quantize>(compile(test_graph())).empty());
}

// int8 products with int8 inputs read i8 rows if the device has a kernel, else the unrounded rows.
TEST_F(PassesTest, ByteInputsAreMadeWhereTheyCanBeMultiplied) {
  context_.weights = kernels::kInt8Both;
  const Graph g = compile(test_graph());
  const std::vector<Linear> linears = all<Linear>(g);
  for (const Linear& linear : linears)
    EXPECT_EQ(g.values[linear.x].dtype,
              linear.weight == linears.back().weight ? DType::kBF16 : DType::kI8);
  EXPECT_EQ(all<Quantize>(g).size(), linears.size() - 1);
  ASSERT_TRUE(lower(g, DeviceInfo{}).ok());
  std::get<kernels::Table<kernels::Linear>>(registry_.tables).clear();
  registry_.add<kernels::Linear>(
      {{"floats", DeviceKind::kCpu,
        [](const kernels::Linear& op, const DeviceInfo&) { return !kernels::is_given(op.scales); },
        [](const kernels::Linear&, const DeviceInfo&) { return 1.0; }, nullptr}});
  const Graph left = compile(test_graph());
  EXPECT_TRUE(all<Quantize>(left).empty());
  EXPECT_EQ(left.weights[all<Linear>(left)[0].weight].format, kernels::kInt8Both);
  ASSERT_TRUE(lower(left, DeviceInfo{}).ok());
}

// Rounding loses quality: inputs stay unrounded if that is cheaper in any weight layout.
TEST_F(PassesTest, InputsAreNotRoundedForSlowerProducts) {
  using kernels::Linear;
  context_.weights = kernels::kFp8PerRow;
  for (const bool in_panels : {false, true}) {
    std::get<kernels::Table<Linear>>(registry_.tables).clear();
    registry_.add<Linear>(
        {{"rounded", DeviceKind::kCpu,
          [](const Linear& op, const DeviceInfo&) { return kernels::is_given(op.scales); },
          [](const Linear&, const DeviceInfo&) { return 2.0; }, nullptr},
         {"floats", DeviceKind::kCpu,
          [](const Linear& op, const DeviceInfo&) { return !kernels::is_given(op.scales); },
          [](const Linear&, const DeviceInfo&) { return 3.0; }, nullptr}});
    EXPECT_FALSE(all<Quantize>(compile(test_graph(), {"fold_quantize"})).empty());
    const auto in_rows = [](const Linear& op, const DeviceInfo&) {
      return !kernels::is_given(op.scales) && op.weight.layout == kernels::WeightLayout::kRowMajor;
    };
    const auto panels = [](const Linear& op, const DeviceInfo&) {
      return !kernels::is_given(op.scales) && op.weight.layout == kernels::WeightLayout::kPanel16;
    };
    registry_.add<Linear>({{"quick", DeviceKind::kCpu, in_panels ? +panels : +in_rows,
                            [](const Linear&, const DeviceInfo&) { return 1.0; }, nullptr}});
    const Graph left = compile(test_graph(), {"fold_quantize"});
    EXPECT_TRUE(all<Quantize>(left).empty()) << in_panels;
    ASSERT_TRUE(lower(left, DeviceInfo{}).ok());
  }
}

// A kernel that rounds to f8e4m3 itself replaces two slow kernels.
TEST_F(PassesTest, FoldQuantize) {
  context_.weights = kernels::kFp8PerRow;
  const auto count = [&] {
    const Graph g = compile(test_graph());
    size_t folded = 0;
    for (const Norm& norm : all<Norm>(g)) folded += norm.scales != kNone;
    for (const Glu& glu : all<Glu>(g)) folded += glu.scales != kNone;
    return std::pair(folded, all<Quantize>(g).size());
  };
  // Per layer two norms and a glu; attention cannot.
  EXPECT_EQ(count(), std::pair(size_t{6}, size_t{2}));
  registry_.add<kernels::Quantize>(
      {{"fast", DeviceKind::kCpu, [](const kernels::Quantize&, const DeviceInfo&) { return true; },
        [](const kernels::Quantize&, const DeviceInfo&) { return 1.0; }, nullptr}});
  registry_.add<kernels::Norm>(
      {{"fast", DeviceKind::kCpu,
        [](const kernels::Norm& op, const DeviceInfo&) { return !kernels::is_given(op.scales); },
        [](const kernels::Norm&, const DeviceInfo&) { return 1.0; }, nullptr}});
  EXPECT_EQ(count(), std::pair(size_t{2}, size_t{6}));
}

// Experts get the build's format, routers do not; fp8 experts read f8e4m3.
TEST_F(PassesTest, WeightFormatsOfExperts) {
  for (const kernels::WeightFormat& format :
       {kernels::kInt8PerRow, kernels::kInt4Groups, kernels::kFp8PerRow}) {
    context_.weights = format;
    const Graph g = compile(test_graph(false, true));
    const Uses uses = find_uses(g);
    const bool is_fp8 = format == kernels::kFp8PerRow;
    for (const ExpertLinear& product : all<ExpertLinear>(g)) {
      EXPECT_EQ(g.weights[product.weight].format, format);
      EXPECT_EQ(g.values[product.x].dtype, is_fp8 ? DType::kF8E4M3 : DType::kBF16);
      EXPECT_EQ(product.scales != kNone, is_fp8);
    }
    for (const Route& route : all<Route>(g)) {
      const auto& scores = std::get<Linear>(g.nodes[uses.writer[route.x]].op);
      EXPECT_TRUE(g.weights[scores.weight].format.is_float());
    }
    EXPECT_TRUE(lower(g, DeviceInfo{}).ok());
  }
}

}  // namespace
}  // namespace nereid::graph
