#include "graph/builder.h"

#include <utility>

#include "graph/verify.h"

namespace nereid::graph {

Builder::Builder(io::ModelFacts model) { graph_.model = std::move(model); }

Heads Builder::heads() const {
  const io::ModelFacts& m = graph_.model;
  return {m.num_heads, m.num_kv_heads, m.head_dim, m.latent};
}

ValueId Builder::value(std::string name, io::RowCount extent, DType dtype, int64_t cols) {
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
  return emit(name, Embed{.table = table, .scale = scale}, weight(table).k).out;
}

ValueId Builder::norm(std::string name, ValueId x, WeightId weight, const NormKind& kind,
                      WeightId bias, DType type) {
  return emit(name,
              Norm{.x = x,
                   .weight = weight,
                   .bias = bias,
                   .piece = kind.piece,
                   .eps = kind.eps,
                   .weight_offset = kind.weight_offset,
                   .centered = kind.centered},
              0, type)
      .out;
}

ValueId Builder::head_norm(std::string name, ValueId x, WeightId weight, const NormKind& kind) {
  return norm(std::move(name), x, weight, kind, kNone, graph_.values[x].dtype);
}

ValueId Builder::linear(std::string name, ValueId x, WeightId weight, WeightId bias) {
  return emit(name, Linear{.x = x, .weight = weight, .bias = bias}, this->weight(weight).n).out;
}

ValueId Builder::concat(std::string name, std::vector<ValueId> parts) {
  int64_t width = 0;
  for (const ValueId part : parts) width += cols(part);
  const Value first = graph_.values[parts.front()];
  const ValueId out = value(std::move(name), first.extent, first.dtype, width);
  graph_.nodes.push_back({Concat{std::move(parts), out}});
  return out;
}

ValueId Builder::slice(std::string name, ValueId x, int64_t column, int64_t cols) {
  const Value whole = graph_.values[x];
  const ValueId out = value(std::move(name), whole.extent, whole.dtype, cols);
  graph_.nodes.push_back({Slice{x, column, out}});
  return out;
}

ValueId Builder::rope(std::string name, ValueId qkv, int32_t angles, bool interleaved) {
  return emit(name,
              Rope{.qkv = qkv, .heads = heads(), .angles = angles, .interleaved = interleaved})
      .out;
}

ValueId Builder::attention(std::string name, ValueId qkv, int32_t layer, float scale,
                           int32_t window, const AttentionKind& kind) {
  const Heads h = heads();
  return emit(name,
              Attention{.qkv = qkv,
                        .heads = h,
                        .cache = layer,
                        .window = window,
                        .chunked = kind.chunked,
                        .bidirectional = kind.bidirectional,
                        .in_windows = kind.in_windows,
                        .scale = scale,
                        .cap = kind.cap,
                        .alibi = kind.alibi,
                        .alibi_scale = kind.alibi_scale,
                        .sinks = kind.sinks,
                        .bias = kind.bias,
                        .bias_first = kind.bias_first,
                        .bias_width = kind.bias == kNone
                                          ? 0
                                          : static_cast<int32_t>(weight(kind.bias).k / h.num)},
              int64_t{h.num} * h.value_dim())
      .out;
}

ValueId Builder::cross_attention(std::string name, ValueId q, int32_t layer, float scale) {
  return emit(name, CrossAttention{.q = q, .heads = heads(), .cache = layer, .scale = scale}).out;
}

void Builder::store_kv(ValueId kv, const Heads& heads, int32_t layer) {
  graph_.nodes.push_back({StoreKv{.kv = kv, .heads = heads, .cache = layer}});
}

ValueId Builder::glu(std::string name, ValueId gate_up, kernels::Activation activation, float limit,
                     float up_offset) {
  return emit(name,
              Glu{.x = gate_up, .activation = activation, .limit = limit, .up_offset = up_offset},
              cols(gate_up) / 2)
      .out;
}

ValueId Builder::add(std::string name, ValueId x, ValueId y) {
  return emit(name, Add{.x = x, .y = y}).out;
}

ValueId Builder::sampled_rows(std::string name, ValueId x) {
  return emit(name, GatherRows{.x = x}).out;
}

StatusOr<Graph> Builder::finish(ValueId logits, ValueId hidden) && {
  graph_.logits = logits;
  if (hidden != kNone) graph_.hidden = {hidden};
  RETURN_IF_ERROR(verify(graph_));
  return std::move(graph_);
}

}  // namespace nereid::graph
