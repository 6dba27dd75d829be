#include <algorithm>
#include <tuple>
#include <utility>

#include "graph/passes/passes_fixture.h"

namespace nereid::graph {
namespace {

// On GPUs products feeding gated activations and sums output bf16, merged or not, if there are
// kernels; not behind adapters.
TEST_F(PassesTest, ProductsAreRoundedOnGpus) {
  const auto num_rounded = [&](const std::vector<std::string>& disabled, bool mixture = false) {
    Graph built = test_graph(false, mixture);
    for (Weight& w : built.weights)
      for (WeightPart& part : w.parts) part.tensor += ".weight";  // as adapters name them
    const Graph g = compile(std::move(built), disabled);
    LabelMachine(g).run();
    EXPECT_EQ(g.values[g.logits].dtype, DType::kF32);
    const auto is_rounded = [&](const auto& product) {
      return g.values[product.out].dtype == DType::kBF16;
    };
    return std::ranges::count_if(all<Linear>(g), is_rounded) +
           std::ranges::count_if(all<ExpertLinear>(g), is_rounded);
  };
  EXPECT_EQ(num_rounded({}), 0) << "on CPUs";
  context_.device.kind = DeviceKind::kCuda;
  const auto on_gpu = [](auto& table) {
    for (auto& kernel : table) kernel.device = DeviceKind::kCuda;
  };
  std::apply([&](auto&... tables) { (on_gpu(tables), ...); }, registry_.tables);
  // Per layer: gate and up; attention output (last layer: sampled rows); down projection.
  EXPECT_EQ(num_rounded({}), 5);
  EXPECT_EQ(num_rounded({"merge_gate_up"}), 7);
  EXPECT_EQ(num_rounded({"fold_residual_norm"}), 2);
  EXPECT_EQ(num_rounded({}, true), 5) << "gated units of experts, gates and ups of the one for all";
  EXPECT_EQ(num_rounded({"fold_expert_glu"}, true), 7);
  context_.adapters = true;
  EXPECT_EQ(num_rounded({}), 0);
  context_.adapters = false;
  auto& norms = std::get<kernels::Table<kernels::Norm>>(registry_.tables);
  norms[0].can = [](const kernels::Norm& op, const DeviceInfo&) {
    return !kernels::is_given(op.add) || op.add.dtype == DType::kF32;
  };
  EXPECT_EQ(num_rounded({}), 2);
}

}  // namespace
}  // namespace nereid::graph
