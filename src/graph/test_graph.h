// A two-layer decoder with a tied embedding for tests of this folder: every op, optional biases.
#pragma once

#include "base/check.h"
#include "graph/builder.h"

namespace nereid::graph {

inline Graph test_graph(bool biased = false) {
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
    ValueId h = b.norm(p + "norm1", x, b.vector(p + "norm1", p + "norm1", 32), {1e-5f});
    const ValueId q = b.linear(p + "q", h, matrix(p + "q", 32, 32), bias(p + "q.bias", 32));
    const ValueId k = b.linear(p + "k", h, matrix(p + "k", 16, 32), bias(p + "k.bias", 16));
    const ValueId v = b.linear(p + "v", h, matrix(p + "v", 16, 32), bias(p + "v.bias", 16));
    const ValueId qkv = b.rope(p + "rope", b.concat(p + "qkv", {q, k, v}));
    const ValueId a = b.attention(p + "attn", qkv, i, 0.25f, 0);
    x = b.add(p + "sum1", x, b.linear(p + "out", a, matrix(p + "out", 32, 32)));
    h = b.norm(p + "norm2", x, b.vector(p + "norm2", p + "norm2", 32), {1e-5f});
    const ValueId gate = b.linear(p + "gate", h, matrix(p + "gate", 96, 32), kNone, DType::kBF16);
    const ValueId up = b.linear(p + "up", h, matrix(p + "up", 96, 32), kNone, DType::kBF16);
    h = b.glu(p + "act", b.concat(p + "gate_up", {gate, up}), kernels::Activation::kSilu);
    x = b.add(p + "sum2", x, b.linear(p + "down", h, matrix(p + "down", 32, 96)));
  }
  x = b.norm("norm", x, b.vector("norm", "norm", 32), {1e-5f});
  x = b.linear("head", x, b.matrix("head", "embed", 48, 32));
  StatusOr<Graph> graph = std::move(b).finish(b.sampled_rows("logits", x));
  NEREID_CHECK(graph.ok());
  return *std::move(graph);
}

}  // namespace nereid::graph
