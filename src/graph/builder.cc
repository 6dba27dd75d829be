#include "graph/builder.h"

#include <utility>

#include "graph/verify.h"

namespace nereid::graph {

Builder::Builder(io::ModelFacts model) { graph_.model = std::move(model); }

Heads Builder::heads() const {
  const io::ModelFacts& m = graph_.model;
  return {m.num_heads, m.num_kv_heads, m.head_dim, m.latent};
}

ValueId Builder::value(std::string name, io::Extent extent, DType dtype, int64_t cols) {
  graph_.values.push_back({std::move(name), extent, dtype, cols});
  return static_cast<ValueId>(graph_.values.size() - 1);
}

WeightId Builder::add(Weight weight) {
  graph_.weights.push_back(std::move(weight));
  return static_cast<WeightId>(graph_.weights.size() - 1);
}

WeightId Builder::matrix(std::string name, std::string tensor, int64_t n, int64_t k) {
  return add({std::move(name), {{std::move(tensor), n}}, n, k});
}

WeightId Builder::vector(std::string name, std::string tensor, int64_t k) {
  return add({std::move(name), {{std::move(tensor), k}}, 1, k, true});
}

WeightId Builder::experts(std::string name, std::vector<std::string> tensors, int64_t n,
                          int64_t k) {
  Weight weight{.name = std::move(name), .n = n, .k = k};
  weight.experts = static_cast<int64_t>(tensors.size());
  for (std::string& tensor : tensors)
    weight.parts.push_back({.tensor = std::move(tensor), .size = n});
  return add(std::move(weight));
}

ValueId Builder::embed(std::string name, WeightId table, float scale) {
  const ValueId out =
      value(std::move(name), io::Extent::kTokens, DType::kF32, graph_.weights[table].k);
  graph_.nodes.push_back({Embed{.table = table, .scale = scale, .out = out}});
  return out;
}

ValueId Builder::add_positions(std::string name, ValueId x, WeightId table) {
  const ValueId out = value(std::move(name), extent(x), DType::kF32, cols(x));
  graph_.nodes.push_back({AddPositions{.x = x, .table = table, .out = out}});
  return out;
}

ValueId Builder::norm(std::string name, ValueId x, WeightId weight, const NormKind& kind,
                      WeightId bias, DType dtype) {
  const ValueId out = value(std::move(name), extent(x), dtype, cols(x));
  graph_.nodes.push_back({Norm{.x = x,
                               .weight = weight,
                               .bias = bias,
                               .piece = kind.piece,
                               .eps = kind.eps,
                               .weight_offset = kind.weight_offset,
                               .centered = kind.centered,
                               .out = out}});
  return out;
}

ValueId Builder::head_norm(std::string name, ValueId x, WeightId weight, const NormKind& kind) {
  return norm(std::move(name), x, weight, kind, kNone, graph_.values[x].dtype);
}

ValueId Builder::linear(std::string name, ValueId x, WeightId weight, WeightId bias) {
  const ValueId out = value(std::move(name), extent(x), DType::kF32, graph_.weights[weight].n);
  graph_.nodes.push_back({Linear{.x = x, .weight = weight, .bias = bias, .out = out}});
  return out;
}

ValueId Builder::concat(std::string name, std::vector<ValueId> parts) {
  int64_t width = 0;
  for (const ValueId part : parts) width += cols(part);
  const Value first = graph_.values[parts.front()];
  const ValueId out = value(std::move(name), first.extent, first.dtype, width);
  graph_.nodes.push_back({Concat{std::move(parts), out}});
  return out;
}

ValueId Builder::rope(std::string name, ValueId qkv, int32_t angles, bool interleaved) {
  const ValueId out = value(std::move(name), extent(qkv), DType::kF32, cols(qkv));
  graph_.nodes.push_back({Rope{
      .qkv = qkv, .heads = heads(), .angles = angles, .interleaved = interleaved, .out = out}});
  return out;
}

ValueId Builder::attention(std::string name, ValueId qkv, int32_t layer, float scale,
                           int32_t window, const AttentionKind& kind) {
  const Heads h = heads();
  const ValueId out =
      value(std::move(name), extent(qkv), DType::kBF16, int64_t{h.num} * h.value_dim());
  graph_.nodes.push_back({Attention{.qkv = qkv,
                                    .heads = h,
                                    .cache = layer,
                                    .window = window,
                                    .scale = scale,
                                    .cap = kind.cap,
                                    .alibi = kind.alibi,
                                    .sinks = kind.sinks,
                                    .out = out}});
  return out;
}

ValueId Builder::glu(std::string name, ValueId gate_up, kernels::Activation activation, float limit,
                     float up_offset) {
  const ValueId out = value(std::move(name), extent(gate_up), DType::kBF16, cols(gate_up) / 2);
  graph_.nodes.push_back({Glu{gate_up, activation, limit, up_offset, out}});
  return out;
}

ValueId Builder::activate(std::string name, ValueId x, kernels::Activation activation) {
  const ValueId out = value(std::move(name), extent(x), DType::kBF16, cols(x));
  graph_.nodes.push_back({Activate{.x = x, .activation = activation, .out = out}});
  return out;
}

ValueId Builder::soft_cap(std::string name, ValueId x, float scale, float cap) {
  const ValueId out = value(std::move(name), extent(x), DType::kF32, cols(x));
  graph_.nodes.push_back({SoftCap{.x = x, .scale = scale, .cap = cap, .out = out}});
  return out;
}

ValueId Builder::add(std::string name, ValueId x, ValueId y) {
  const ValueId out = value(std::move(name), extent(x), DType::kF32, cols(x));
  graph_.nodes.push_back({Add{x, y, out}});
  return out;
}

Builder::Routed Builder::route(const std::string& name, Route op, int64_t picked) {
  const Routed routed = {value(name + ".weights", extent(op.x), DType::kF32, picked),
                         value(name + ".experts", extent(op.x), DType::kI32, picked)};
  op.weights = routed.weights;
  op.experts = routed.experts;
  graph_.nodes.push_back({op});
  return routed;
}

ValueId Builder::expert_linear(std::string name, ValueId x, ValueId experts, WeightId weight,
                               WeightId bias) {
  const ValueId out =
      value(std::move(name), extent(x), DType::kF32, cols(experts) * graph_.weights[weight].n);
  graph_.nodes.push_back({ExpertLinear{x, experts, weight, bias, out}});
  return out;
}

ValueId Builder::head_linear(std::string name, ValueId x, WeightId weight, int32_t kept,
                             DType dtype) {
  const Weight& w = graph_.weights[weight];
  const ValueId out = value(std::move(name), extent(x), dtype, w.experts * (kept + w.n));
  graph_.nodes.push_back({HeadLinear{x, weight, kept, out}});
  return out;
}

ValueId Builder::weighted_sum(std::string name, ValueId x, ValueId weights) {
  const ValueId out = value(std::move(name), extent(x), DType::kF32, cols(x) / cols(weights));
  graph_.nodes.push_back({WeightedSum{x, weights, out}});
  return out;
}

ValueId Builder::sampled_rows(std::string name, ValueId x) {
  const ValueId out = value(std::move(name), io::Extent::kSampled, DType::kF32, cols(x));
  graph_.nodes.push_back({GatherRows{.x = x, .out = out}});
  return out;
}

StatusOr<Graph> Builder::finish(ValueId logits) && {
  graph_.logits = logits;
  RETURN_IF_ERROR(verify(graph_));
  return std::move(graph_);
}

}  // namespace nereid::graph
