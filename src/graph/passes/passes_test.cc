#include <gmock/gmock.h>

#include <algorithm>

#include "graph/builder.h"
#include "graph/lower.h"
#include "graph/passes/passes_fixture.h"

namespace nereid::graph {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(PassesTest, TieEmbeddingKeepsOneCopy) {
  const Graph g = after(tie_embedding);
  EXPECT_EQ(g.weights.size(), test_graph().weights.size() - 1);
  EXPECT_EQ(all<Embed>(g)[0].table, all<Linear>(g).back().weight);
}

// Linear, not quadratic, in the number of weights.
TEST_F(PassesTest, TieEmbeddingTakesManyWeights) {
  Graph many = test_graph();
  for (int i = 0; i < 200'000; ++i) {
    const std::string name = fmt::format("experts.{}", i);
    many.weights.push_back({.name = name, .parts = {{name, 1}}, .n = 1, .k = 1});
  }
  const Graph g = after(tie_embedding, many);
  EXPECT_EQ(all<Embed>(g)[0].table, all<Linear>(g).back().weight);
}

TEST_F(PassesTest, MergeQkvStacksWeightsAndBiases) {
  const Graph g = after(merge_qkv, test_graph(/*biased=*/true));
  const Linear qkv = all<Linear>(g)[0];
  const Weight& w = g.weights[qkv.weight];
  EXPECT_EQ(w.name, "layers.0.qkv");
  EXPECT_EQ(w.n, 64);
  EXPECT_THAT(w.parts, ElementsAre(WeightPart{"layers.0.q", 32}, WeightPart{"layers.0.k", 16},
                                   WeightPart{"layers.0.v", 16}));
  EXPECT_EQ(g.weights[qkv.bias].k, 64);
  EXPECT_EQ(all<Concat>(g).size(), 2u);  // gate_up of each layer
}

// The test graph with checkpoint tensor names.
Graph with_weight_names() {
  Graph graph = test_graph();
  for (Weight& w : graph.weights)
    for (WeightPart& part : w.parts) part.tensor += ".weight";
  return graph;
}

TEST_F(PassesTest, AdaptersAddToWholeMatrices) {
  Graph g = after(merge_gate_up, after(merge_qkv, with_weight_names()));
  const std::string before = print(g);
  EXPECT_EQ(print(after(add_adapters, g)), before);  // adapters are off
  context_.adapters = true;
  const Graph adapted = after(add_adapters, g);
  const std::vector<LowRank> ops = all<LowRank>(adapted);
  ASSERT_EQ(ops.size(), 10u);  // the embedding and all products
  EXPECT_EQ(ops[0].x, kNone);
  EXPECT_EQ(ops[0].y, all<Embed>(adapted)[0].out);
  EXPECT_EQ(ops[0].k, 48);
  EXPECT_EQ(ops[1].num_modules, 3);
  EXPECT_EQ(ops[1].k, 32);
  EXPECT_EQ(ops[2].first_module, 4);
  EXPECT_EQ(ops[1].x, all<Linear>(adapted)[0].x);
  EXPECT_EQ(ops[1].y, all<Linear>(adapted)[0].out);
  EXPECT_EQ(ops[1].out, all<Rope>(adapted)[0].qkv);
  ASSERT_EQ(adapted.modules.size(), 16u);
  EXPECT_EQ(adapted.modules.back().source, "lm_head");  // the tied embedding
  const io::AdapterModule& embedding = adapted.modules[0];
  EXPECT_EQ(embedding.name, "embed");
  EXPECT_EQ(embedding.k, 48);
  EXPECT_EQ(embedding.n, 32);
  EXPECT_TRUE(embedding.of_tokens);
  const io::AdapterModule& v = adapted.modules[3];
  EXPECT_EQ(v.name, "layers.0.v");
  EXPECT_EQ(v.source, "layers.0.v");
  EXPECT_EQ(v.column, 48);
  EXPECT_EQ(v.n, 16);
  EXPECT_EQ(v.k, 32);
  EXPECT_FALSE(v.of_tokens);
}

// An expert's modules are adjacent.
TEST_F(PassesTest, AdaptersAddToExperts) {
  context_.adapters = true;
  Graph graph = test_graph(false, /*mixture=*/true);
  for (Weight& w : graph.weights)
    for (WeightPart& part : w.parts) part.tensor += ".weight";
  const auto expert_ops = [](const Graph& g) {
    std::vector<LowRank> ops = all<LowRank>(g);
    std::erase_if(ops, [](const LowRank& op) { return op.experts == kNone; });
    return ops;
  };
  const auto name = [](const Graph& g, int32_t module) {
    return g.modules[static_cast<size_t>(module)].source;
  };
  const Graph apart = after(add_adapters, graph);
  std::vector<LowRank> ops = expert_ops(apart);
  ASSERT_EQ(ops.size(), 6u);  // gate, up and down of two layers
  EXPECT_EQ(ops[0].num_experts, 3);
  EXPECT_EQ(ops[0].num_modules, 1);
  EXPECT_EQ(ops[0].experts, all<Route>(apart)[0].experts);
  EXPECT_EQ(name(apart, ops[0].first_module + 2), "layers.0.gate2");
  EXPECT_EQ(name(apart, ops[2].first_module + 1), "layers.0.down1");
  EXPECT_EQ(ops[2].k, 40);
  for (Weight& w : graph.weights) {  // gate from two matrices per expert
    if (w.experts == 1 || !w.name.ends_with("gate")) continue;
    std::vector<WeightPart> parts;
    for (WeightPart part : w.parts) {
      part.size /= 2;
      for (const char* prefix : {"upper.", "lower."})
        parts.push_back(part), parts.back().tensor = prefix + part.tensor;
    }
    w.parts = parts;
  }
  const Graph joined = after(add_adapters, graph);
  ops = expert_ops(joined);
  ASSERT_EQ(ops.size(), 6u);
  EXPECT_EQ(ops[0].num_modules, 2);
  EXPECT_EQ(ops[1].num_modules, 1);
  EXPECT_EQ(name(joined, ops[0].first_module + 4), "upper.layers.0.gate2");
  EXPECT_EQ(name(joined, ops[0].first_module + 5), "lower.layers.0.gate2");
  EXPECT_EQ(joined.modules[static_cast<size_t>(ops[0].first_module) + 4].column, 0);
  EXPECT_EQ(joined.modules[static_cast<size_t>(ops[0].first_module) + 5].column, 20);
}

// All experts in one tensor, rows of two matrices interleaved.
TEST_F(PassesTest, AdaptersNameMatricesWithinATensor) {
  context_.adapters = true;
  Graph graph = test_graph(false, /*mixture=*/true);
  for (Weight& w : graph.weights)
    for (size_t i = 0; w.experts > 1 && i < w.parts.size(); ++i) {
      const bool is_down = w.name.ends_with("down"), is_up = w.name.ends_with("up");
      WeightPart& part = w.parts[i];
      part.tensor = is_down ? "experts.down" : "experts.gate_up";
      part.stacked = 3, part.index = static_cast<int64_t>(i), part.transposed = true;
      if (is_down) continue;
      part.first = is_up ? 1 : 0, part.step = 2, part.total = 2 * part.size;
    }
  std::vector<std::string> names;
  for (const io::AdapterModule& m : after(add_adapters, graph).modules) names.push_back(m.source);
  for (const char* name :
       {"experts.gate_up[2][0::2]", "experts.gate_up[1][1::2]", "experts.down[0]"})
    EXPECT_THAT(names, testing::Contains(name));
}

// A matrix with reordered rows cannot be named by adapters.
TEST_F(PassesTest, AdaptersLeaveParts) {
  context_.adapters = true;
  Graph graph = with_weight_names();
  for (Weight& w : graph.weights)
    if (w.name == "layers.0.q") w.parts[0].pairs = 8;
  for (const io::AdapterModule& m : after(add_adapters, graph).modules)
    EXPECT_NE(m.name, "layers.0.q");
}

TEST_F(PassesTest, PlansKnowTheModulesOfTheirCalls) {
  context_.adapters = true;
  const Graph graph = compile(with_weight_names());
  DeviceInfo device;
  io::Plan plan = lower(graph, device).value();
  EXPECT_EQ(plan.modules.size(), 16u);
  EXPECT_TRUE(io::plan_from_json(io::plan_to_json(plan)).value().modules[0].of_tokens);
  EXPECT_EQ(io::plan_from_json(io::plan_to_json(plan)).value().modules[5].name,
            plan.modules[5].name);
  const auto refusal = [&](auto change) {
    io::Plan changed = plan;
    change(changed.modules);
    return io::check_plan(changed).ToString();
  };
  EXPECT_THAT(refusal([](auto& m) { m.pop_back(); }), HasSubstr("are not the next of 15"));
  EXPECT_THAT(refusal([](auto& m) { m.push_back(m[0]); }), HasSubstr("17 modules, calls name 16"));
  EXPECT_THAT(refusal([](auto& m) { m[2].column = 31; }), HasSubstr("[16, 32] at column 31 of 64"));
  EXPECT_THAT(refusal([](auto& m) { m[3].n = 17; }), HasSubstr("[17, 32] at column 48 of 64"));
  EXPECT_THAT(refusal([](auto& m) { m[1].k = 33; }), HasSubstr("x has 32"));
  EXPECT_THAT(refusal([](auto& m) { m[0].of_tokens = false; }), HasSubstr("module 'embed'"));
  EXPECT_THAT(refusal([](auto& m) { m[1].of_tokens = true; }), HasSubstr("module 'layers.0.q'"));
}

TEST_F(PassesTest, MergeGateUpLeavesQkvAlone) {
  const Graph g = after(merge_gate_up);
  EXPECT_EQ(all<Concat>(g).size(), 2u);  // qkv of each layer
  EXPECT_EQ(g.values[all<Glu>(g)[0].x].name, "layers.0.gate_up");
}

TEST_F(PassesTest, LinearsWithDifferentInputsAreNotMerged) {
  Graph g = test_graph();
  std::vector<Node>::iterator linear =
      std::find_if(g.nodes.begin(), g.nodes.end(),
                   [](const Node& n) { return std::holds_alternative<Linear>(n.op); });
  g.values.push_back({"other", io::RowCount::kTokens, DType::kBF16, 32});
  const auto other = static_cast<ValueId>(g.values.size() - 1);
  Norm norm = std::get<Norm>(g.nodes[1].op);
  norm.out = other;
  std::get<Linear>(linear->op).x = other;
  g.nodes.insert(g.nodes.begin() + 1, {norm});
  ASSERT_TRUE(verify(g).ok());
  EXPECT_EQ(all<Concat>(after(merge_qkv, g)).size(), 3u);
}

TEST_F(PassesTest, FoldResidualNormRemovesEverySumBeforeANorm) {
  const Graph g = after(fold_residual_norm);
  EXPECT_TRUE(all<Add>(g).empty());
  EXPECT_EQ(all<Norm>(g)[0].add, kNone);
  EXPECT_NE(all<Norm>(g)[1].add, kNone);
}

TEST_F(PassesTest, FuseRopeAttention) {
  const Graph g = after(fuse_rope_attention);
  EXPECT_TRUE(all<Rope>(g).empty());
  EXPECT_TRUE(is_given(all<Attention>(g)[1].angles));
}

// Rare attention features are kept, and the rotation kind goes with the rope table.
TEST_F(PassesTest, FusionKeepsTheKindOfAttentionAndRotation) {
  io::ModelFacts m = test_graph().model;
  m.num_layers = 1;
  m.ropes = {{std::vector<float>(4, 1.0f)}};  // half of a head's dims are rotary
  Builder b(m);
  const ValueId x = b.embed("embed", b.matrix("embed", "embed", 48, 32));
  const ValueId h = b.norm("norm", x, b.vector("norm", "norm", 32), {1e-5f});
  const ValueId qkv = b.rope("rope", b.linear("qkv", h, b.matrix("qkv", "qkv", 64, 32)), 0, true);
  const ValueId a = b.attention("attn", qkv, 0, 0.25f, 0,
                                {.cap = 5, .alibi = 8, .sinks = b.vector("sinks", "sinks", 2)});
  const ValueId head = b.linear("head", a, b.matrix("head", "head", 48, 32));
  StatusOr<Graph> built = std::move(b).finish(b.sampled_rows("logits", head));
  ASSERT_TRUE(built.ok()) << built.status();
  const Graph g = after(fuse_rope_attention, *std::move(built));
  EXPECT_TRUE(all<Rope>(g).empty());
  const Attention attention = all<Attention>(g)[0];
  EXPECT_TRUE(attention.interleaved);
  EXPECT_EQ(attention.cap, 5);
  EXPECT_EQ(attention.alibi, 8);
  EXPECT_EQ(g.weights[attention.sinks].name, "sinks");
}

// Residual and last attention output are gathered; everything behind runs on sampled rows.
TEST_F(PassesTest, GatherMovesUpToTheLastAttention) {
  const Graph g = after(gather_before_head);
  ASSERT_EQ(all<GatherRows>(g).size(), 2u);
  EXPECT_EQ(g.values[all<GatherRows>(g)[0].x].name, "layers.0.sum2");
  EXPECT_EQ(g.values[all<GatherRows>(g)[1].x].name, "layers.1.out");
  for (const Glu& glu : all<Glu>(g))
    EXPECT_EQ(g.values[glu.out].extent == io::RowCount::kSampled,
              g.values[glu.out].name == "layers.1.act");
  EXPECT_EQ(g.values[g.logits].name, "head");
  EXPECT_EQ(g.values[g.hidden.at(0)].name, "norm");
  EXPECT_EQ(g.values[g.hidden.at(0)].extent, io::RowCount::kSampled);
}

// Layer states cost sampled rows only; the norm of the residual is unchanged.
TEST_F(PassesTest, LayerStatesAreRoundedResiduals) {
  const Graph without = compile(test_graph());
  context_.hidden_layers = {1, 0, 1};
  const Graph g = compile(test_graph());
  ASSERT_EQ(g.hidden.size(), 4u);
  std::vector<std::string> names;
  for (const ValueId id : g.hidden) {
    names.push_back(g.values[id].name);
    EXPECT_EQ(g.values[id].extent, io::RowCount::kSampled);
    EXPECT_EQ(g.values[id].dtype, DType::kBF16);
  }
  EXPECT_THAT(names, ElementsAre("norm", "layers.1.state", "layers.0.state", "layers.1.state"));
  EXPECT_EQ(all<Add>(g).size(), all<Add>(without).size());
  EXPECT_EQ(all<Activate>(g).size(), 3u);
}

TEST_F(PassesTest, StatesOfNoLayerAreRefused) {
  for (const int32_t layer : {-1, 2}) {
    context_.hidden_layers = {layer};
    Graph g = test_graph();
    EXPECT_THAT(std::string(message(run_passes(g, context_, {}))),
                HasSubstr(fmt::format("before layer {}; the model has 2 layers", layer)));
  }
}

TEST_F(PassesTest, DisabledNamesAreChecked) {
  Graph g = test_graph();
  const auto error = [&](const std::string& name) {
    return std::string(message(run_passes(g, context_, std::vector{name})));
  };
  EXPECT_THAT(error("nope"), HasSubstr("pass 'nope' cannot be disabled; these can: tie_embedding"));
  EXPECT_THAT(error("plan_memory"), HasSubstr("'plan_memory' cannot be disabled"));
}

TEST_F(PassesTest, ReportListsAllInOrder) {
  Graph g = test_graph();
  std::vector<PassReport> report;
  ASSERT_TRUE(run_passes(g, context_, std::vector<std::string>{"merge_qkv"}, &report).ok());
  ASSERT_EQ(report.size(), passes().size());
  EXPECT_EQ(report[2].name, "merge_qkv");
  EXPECT_FALSE(report[2].ran);
  EXPECT_TRUE(report[3].ran);
}

TEST_F(PassesTest, ForcedKernelsAreCheckedAndUsed) {
  registry_.add<kernels::Linear>(
      {{"panels", DeviceKind::kCpu,
        [](const kernels::Linear& a, const DeviceInfo&) {
          return a.weight.layout == kernels::WeightLayout::kPanel16;
        },
        [](const kernels::Linear&, const DeviceInfo&) { return 1.0; }, nullptr}});
  Graph g = compile(test_graph());
  EXPECT_EQ(g.nodes[2].kernel, "panels");
  EXPECT_EQ(g.weights[all<Linear>(g)[0].weight].layout, kernels::WeightLayout::kPanel16);
  EXPECT_EQ(g.weights[all<Embed>(g)[0].table].layout, kernels::WeightLayout::kPanel16);
  context_.forced = {"linear:ref"};
  EXPECT_EQ(compile(test_graph()).nodes[2].kernel, "ref");
  context_.forced = {"linear:fast"};
  g = test_graph();
  EXPECT_THAT(std::string(message(run_passes(g, context_, {}))),
              HasSubstr("forced kernel 'linear:fast' does not exist on cpu"));
}

TEST_F(PassesTest, PlannedMemoryNeverLosesALiveValue) {
  std::vector<std::vector<std::string>> switched_off = {{}, {}};
  for (const Pass& pass : passes()) {
    if (pass.required) continue;
    switched_off[1].emplace_back(pass.name);
    switched_off.push_back({std::string(pass.name)});
  }
  for (const auto& disabled : switched_off) {
    const Graph g = compile(test_graph(), disabled);
    LabelMachine(g).run();
    const auto plan = lower(g, DeviceInfo{});
    ASSERT_TRUE(plan.ok()) << plan.status();
  }
}

// q and k with head norms, in several node orders.
Graph head_norm_graph(bool norm_first) {
  io::ModelFacts m;
  m.name = "test", m.architecture = "TestForCausalLM", m.source_dir = "/nowhere";
  m.vocab_size = 48, m.hidden_size = 32, m.num_layers = 1;
  m.num_heads = 2, m.num_kv_heads = 1, m.head_dim = 16, m.max_positions = 64;
  m.ropes = {{std::vector<float>(8, 1.0f)}};
  Builder b(m);
  const ValueId x = b.embed("embed", b.matrix("embed", "embed", 48, 32));
  const ValueId h = b.norm("norm1", x, b.vector("norm1", "norm1", 32), {1e-5f});
  const WeightId q_norm = b.vector("q_norm", "q_norm", 16),
                 k_norm = b.vector("k_norm", "k_norm", 16);
  ValueId q = b.linear("q", h, b.matrix("q", "q", 32, 32));
  if (norm_first) q = b.head_norm("q'", q, q_norm, {1e-5f});
  ValueId k = b.linear("k", h, b.matrix("k", "k", 16, 32));
  const ValueId v = b.linear("v", h, b.matrix("v", "v", 16, 32));
  if (!norm_first) q = b.head_norm("q'", q, q_norm, {1e-5f});
  k = b.head_norm("k'", k, k_norm, {1e-5f});
  const ValueId qkv = b.rope("rope", b.concat("qkv", {q, k, v}));
  const ValueId a = b.attention("attn", qkv, 0, 0.25f, 0);
  const ValueId sum = b.add("sum", x, b.linear("out", a, b.matrix("out", "out", 32, 32)));
  const ValueId last = b.norm("norm", sum, b.vector("norm", "norm", 32), {1e-5f});
  const ValueId head = b.linear("head", last, b.matrix("head", "head", 48, 32));
  return *std::move(b).finish(b.sampled_rows("logits", head));
}

// One product with head norms in place; without the merge each part is normed in its slice.
TEST_F(PassesTest, HeadNormsWorkInPlace) {
  for (const bool norm_first : {false, true}) {
    const Graph merged = compile(head_norm_graph(norm_first));
    EXPECT_EQ(all<Linear>(merged).size(), 3u);
    EXPECT_EQ(all<Slice>(merged).size(), 2u);
    LabelMachine(merged).run();
    // The norm of three heads, the weights of two kinds.
    const auto norms = all<Norm>(merged);
    ASSERT_EQ(norms.size(), 3u);
    EXPECT_EQ(norms[1].piece, 16);
    EXPECT_THAT(
        merged.weights[norms[1].weight].parts,
        ElementsAre(WeightPart{"q_norm", 16}, WeightPart{"q_norm", 16}, WeightPart{"k_norm", 16}));
    const Graph two = compile(head_norm_graph(norm_first), {"merge_head_norms"});
    EXPECT_EQ(all<Slice>(two).size(), 3u);
    LabelMachine(two).run();
    const Graph apart = compile(head_norm_graph(norm_first), {"merge_qkv"});
    EXPECT_EQ(all<Linear>(apart).size(), 5u);
    LabelMachine(apart).run();
    for (const Graph* g : {&merged, &two, &apart})
      for (const Norm& norm : all<Norm>(*g))
        if (g->weights[norm.weight].k % 32 != 0) {
          const Value &x = g->values[norm.x], &out = g->values[norm.out];
          EXPECT_EQ(x.offset, out.offset);
          EXPECT_EQ(x.column, out.column);
          EXPECT_EQ(out.stride, 64);
        }
  }
}

TEST_F(PassesTest, AMixtureOfExpertsIsCompiled) {
  Graph g = compile(test_graph(false, true));
  LabelMachine(g).run();
  const auto plan = lower(g, DeviceInfo{});
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto products = all<ExpertLinear>(g);
  ASSERT_EQ(products.size(), 4u);
  EXPECT_EQ(plan->weights[products[0].weight].experts, 3);
  // In the last layer, rows that are not sampled are not routed.
  const auto routes = all<Route>(g);
  ASSERT_EQ(routes.size(), 4u);
  EXPECT_EQ(g.values[routes[0].experts].extent, io::RowCount::kTokens);
  EXPECT_EQ(g.values[routes[2].experts].extent, io::RowCount::kSampled);
  // A weight with three of five experts is too small.
  Graph wrong = test_graph(false, true);
  wrong.weights[all<ExpertLinear>(wrong)[0].weight].experts = 5;
  EXPECT_THAT(std::string(message(verify(wrong))), HasSubstr("[5, 40, 32] has parts of 120"));
}

TEST_F(PassesTest, MemoryIsShared) {
  const Graph g = compile(test_graph());
  int64_t sum = 0;
  for (const Value& v : g.values)
    if (v.extent == io::RowCount::kTokens) sum += v.cols * static_cast<int64_t>(size_of(v.dtype));
  EXPECT_LT(g.arena_bytes_per_row[0] * 2, sum);
  EXPECT_EQ(g.arena_bytes_per_row[0] % 64, 0);
}

TEST_F(PassesTest, ReadingAfterAnUpdateInPlaceIsRefused) {
  Graph g = test_graph();
  // The first layer's second norm reads the residual before attention's sum.
  for (Node& node : g.nodes)
    if (Norm* norm = std::get_if<Norm>(&node.op);
        norm && g.values[norm->out].name == "layers.0.norm2")
      norm->x = all<Embed>(g)[0].out;
  ASSERT_TRUE(verify(g).ok());
  EXPECT_THAT(std::string(message(plan_memory(g, context_))),
              HasSubstr("'embed' is updated in place"));
}

}  // namespace
}  // namespace nereid::graph
