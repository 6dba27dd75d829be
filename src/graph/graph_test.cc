#include <gmock/gmock.h>

#include "graph/test_graph.h"
#include "graph/verify.h"

namespace nereid::graph {
namespace {

using testing::HasSubstr;

std::string error_of(const Graph& graph) { return std::string(message(verify(graph))); }

template <class T>
T& first(Graph& graph) {
  for (Node& node : graph.nodes)
    if (T* op = std::get_if<T>(&node.op)) return *op;
  NEREID_CHECK(false);
}

TEST(Verify, AcceptsWhatTheBuilderMakes) {
  EXPECT_EQ(error_of(test_graph()), "");
  EXPECT_EQ(test_graph().values[test_graph().logits].extent, io::RowCount::kSampled);
}

TEST(Verify, NamesNodeAndOperand) {
  Graph g = test_graph();
  first<Norm>(g).x = g.logits;
  EXPECT_THAT(error_of(g), HasSubstr("node 1 (norm): reads 'logits' before it is written"));
  g = test_graph();
  first<Linear>(g).out = first<Embed>(g).out;
  EXPECT_THAT(error_of(g), HasSubstr("writes 'embed' a second time"));
  g = test_graph();
  first<Norm>(g).weight = first<Embed>(g).table;
  EXPECT_THAT(error_of(g), HasSubstr("is not a vector"));
  g = test_graph();
  first<Attention>(g).heads.num = 4;
  EXPECT_THAT(error_of(g), HasSubstr("(attention): out is not as wide as its heads"));
  g = test_graph();
  first<Linear>(g).x = 99;
  EXPECT_THAT(error_of(g), HasSubstr("value 99, which does not exist"));
  g = test_graph();
  g.weights.push_back({"extra", {{"extra", 4}}, 4, 4});
  EXPECT_THAT(error_of(g), HasSubstr("weight 'extra' is not used"));
  g = test_graph();
  g.weights[0].parts[0].size = 5;
  EXPECT_THAT(error_of(g), HasSubstr("has parts of 5"));
  g = test_graph();
  g.logits = first<Embed>(g).out;
  EXPECT_THAT(error_of(g), HasSubstr("'embed' is f32 [32] with extent 0"));
}

TEST(Graph, SweepDropsWhatIsNotUsedAndRenumbers) {
  Graph g = test_graph();
  const size_t num_values = g.values.size(), num_weights = g.weights.size();
  g.values.insert(g.values.begin(), Value{"dead"});
  g.weights.push_back({"dead", {{"dead", 4}}, 4, 4});
  for (ValueId id = static_cast<ValueId>(num_values) - 1; id >= 0; --id) {
    replace_uses(g, id, id + 1);
    for (Node& node : g.nodes)
      std::visit(
          [&](auto& op) {
            if constexpr (requires { op.out; })
              if (op.out == id) op.out = id + 1;
          },
          node.op);
  }
  ASSERT_EQ(error_of(g).substr(0, 6), "weight");
  sweep(g);
  EXPECT_EQ(error_of(g), "");
  EXPECT_EQ(g.values.size(), num_values);
  EXPECT_EQ(g.weights.size(), num_weights);
}

TEST(Graph, PrintShowsOpsAndShapes) {
  const std::string text = print(test_graph());
  EXPECT_THAT(text, HasSubstr("layers.0.qkv f32[tokens, 64] = concat(layers.0.q, layers.0.k"));
  EXPECT_THAT(text, HasSubstr("logits f32[sampled, 48] = gather_rows(head)"));
}

}  // namespace
}  // namespace nereid::graph
