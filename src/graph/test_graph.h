// Test only: a two-layer decoder with a tied embedding, every op and optional biases.
#pragma once

#include "base/check.h"
#include "graph/builder.h"

namespace nereid::graph {

// Top 2 of 3 experts, and a gated shared expert.
inline ValueId test_mixture(Builder& b, const std::string& p, ValueId h) {
  using kernels::Activation;
  const auto matrix = [&](const std::string& name, int64_t n, int64_t k) {
    return b.matrix(name, name, n, k);
  };
  const auto experts = [&](const std::string& name, int64_t n, int64_t k) {
    return b.experts(name, {name + "0", name + "1", name + "2"}, n, k);
  };
  const ValueId scores = b.linear(p + "router", h, matrix(p + "router", 3, 32));
  const Route routed = b.emit(p + "route", Route{.x = scores, .renormalise = true}, 2);
  const auto products = [&](const std::string& name, ValueId x, int64_t n, int64_t k) {
    const ExpertLinear op = {.x = x, .experts = routed.experts, .weight = experts(name, n, k)};
    return b.emit(name, op, 2 * n).out;
  };
  const auto weighted_sum = [&](const std::string& name, ValueId x, ValueId weights) {
    return b.emit(name, WeightedSum{.x = x, .weights = weights}, 32).out;
  };
  ValueId gate = products(p + "gate", h, 40, 32);
  ValueId up = products(p + "up", h, 40, 32);
  ValueId act = b.glu(p + "act", b.concat(p + "gate_up", {gate, up}), Activation::kSilu);
  ValueId down = products(p + "down", act, 32, 40);
  const ValueId out = weighted_sum(p + "out", down, routed.weights);
  gate = b.linear(p + "shared.gate", h, matrix(p + "shared.gate", 48, 32));
  up = b.linear(p + "shared.up", h, matrix(p + "shared.up", 48, 32));
  act = b.glu(p + "shared.act", b.concat(p + "shared.gate_up", {gate, up}), Activation::kSilu);
  down = b.linear(p + "shared.down", act, matrix(p + "shared.down", 32, 48));
  const ValueId score = b.linear(p + "shared.score", h, matrix(p + "shared.score", 1, 32));
  const Route shared =
      b.emit(p + "shared.weight", Route{.x = score, .scoring = kernels::Scoring::kSigmoid}, 1);
  return b.add(p + "sum", out, weighted_sum(p + "shared.out", down, shared.weights));
}

inline Graph test_graph(bool biased = false, bool mixture = false) {
  io::ModelFacts m;
  m.name = "test", m.architecture = "TestForCausalLM", m.source_dir = "/nowhere";
  m.vocab_size = 48, m.hidden_size = 32, m.num_layers = 2;
  m.num_heads = 2, m.num_kv_heads = 1, m.head_dim = 16, m.max_positions = 64;
  m.ropes = {{std::vector<float>(8, 1.0f)}};
  Builder b(m);
  const auto matrix = [&](const std::string& name, int64_t n, int64_t k) {
    return b.matrix(name, name, n, k);
  };
  const auto bias = [&](const std::string& name, int64_t n) {
    return biased ? b.vector(name, name, n) : kNone;
  };
  ValueId x = b.embed("embed", matrix("embed", 48, 32));
  for (int32_t i = 0; i < 2; ++i) {
    const std::string p = fmt::format("layers.{}.", i);
    b.add_residual(x);
    ValueId h = b.norm(p + "norm1", x, b.vector(p + "norm1", p + "norm1", 32), {1e-5f});
    const ValueId q = b.linear(p + "q", h, matrix(p + "q", 32, 32), bias(p + "q.bias", 32));
    const ValueId k = b.linear(p + "k", h, matrix(p + "k", 16, 32), bias(p + "k.bias", 16));
    const ValueId v = b.linear(p + "v", h, matrix(p + "v", 16, 32), bias(p + "v.bias", 16));
    const ValueId qkv = b.rope(p + "rope", b.concat(p + "qkv", {q, k, v}));
    const ValueId a = b.attention(p + "attn", qkv, i, 0.25f, 0);
    x = b.add(p + "sum1", x, b.linear(p + "out", a, matrix(p + "out", 32, 32)));
    h = b.norm(p + "norm2", x, b.vector(p + "norm2", p + "norm2", 32), {1e-5f});
    if (mixture) {
      x = b.add(p + "sum2", x, test_mixture(b, p, h));
      continue;
    }
    const ValueId gate = b.linear(p + "gate", h, matrix(p + "gate", 96, 32));
    const ValueId up = b.linear(p + "up", h, matrix(p + "up", 96, 32));
    h = b.glu(p + "act", b.concat(p + "gate_up", {gate, up}), kernels::Activation::kSilu);
    x = b.add(p + "sum2", x, b.linear(p + "down", h, matrix(p + "down", 32, 96)));
  }
  const ValueId hidden = b.norm("norm", x, b.vector("norm", "norm", 32), {1e-5f});
  x = b.linear("head", hidden, b.matrix("head", "embed", 48, 32));
  StatusOr<Graph> graph = std::move(b).finish(b.sampled_rows("logits", x), hidden);
  NEREID_CHECK(graph.ok());
  return *std::move(graph);
}

}  // namespace nereid::graph
