#include "convert/product_inputs.h"

#include <algorithm>
#include <charconv>
#include <variant>

namespace nereid::convert {
namespace {

using graph::kNone;

int32_t layer_of(std::string_view name) {
  constexpr std::string_view kBegin = "layers.";
  int32_t layer = -1;
  if (name.starts_with(kBegin))
    std::from_chars(name.data() + kBegin.size(), name.data() + name.size(), layer);
  return layer;
}

class PlaceFinder {
 public:
  PlaceFinder(const graph::Graph& graph, const graph::Uses& uses,
              const std::function<bool(graph::WeightId)>& is_chosen)
      : graph_(graph), uses_(uses), is_chosen_(is_chosen) {}

  FactorPlace find(const ProductInput& input) const {
    if (uses_.readers[input.x].size() != input.weights.size()) return {};  // somebody else reads it
    const graph::Op* writer = writer_of(input.x);
    if (!writer) return {};
    if (const auto* norm = std::get_if<graph::Norm>(writer)) return of_norm(*norm, input.k);
    if (const auto* glu = std::get_if<graph::Glu>(writer)) return of_glu(*glu, input.k);
    if (const auto* attention = std::get_if<graph::Attention>(writer))
      return of_attention(*attention, input.k);
    return {};
  }

 private:
  const graph::Op* writer_of(graph::ValueId id) const {
    const int32_t writer = uses_.writer[id];
    return writer == kNone ? nullptr : &graph_.nodes[static_cast<size_t>(writer)].op;
  }
  // A vector that is one whole tensor and that no other node uses.
  bool is_own_vector(graph::WeightId id) const {
    if (id == kNone) return true;
    const graph::Weight& w = graph_.weights[id];
    return w.is_vector && w.parts.size() == 1 && w.parts[0].tensor_rows() == w.parts[0].size &&
           w.parts[0].stacked == 0 && uses_.weight_readers[id] == 1;
  }

  FactorPlace of_norm(const graph::Norm& norm, int64_t k) const {
    FactorPlace place{
        .norm = norm.weight, .norm_bias = norm.bias, .norm_offset = norm.weight_offset};
    if (norm.piece > 0 || graph_.weights[norm.weight].k != k || !is_own_vector(norm.weight) ||
        !is_own_vector(norm.bias))
      return {};
    return place;
  }

  // Of the product whose result is `value`, perhaps as a part of what is put side by side; column
  // `column` of it.
  FactorPlace of_product(graph::ValueId value, int64_t column) const {
    const graph::Op* writer = writer_of(value);
    if (!writer || uses_.readers[value].size() != 1) return {};
    if (const auto* rope = std::get_if<graph::Rope>(writer)) return of_product(rope->qkv, column);
    if (const auto* concat = std::get_if<graph::Concat>(writer)) {
      for (const graph::ValueId part : concat->parts) {
        const int64_t cols = graph_.values[part].cols;
        if (column < cols) return of_product(part, column);
        column -= cols;
      }
      return {};
    }
    const auto* linear = std::get_if<graph::Linear>(writer);
    if (!linear || !is_chosen_(linear->weight) || !is_own_vector(linear->bias)) return {};
    return {.rows = linear->weight, .rows_bias = linear->bias, .first_row = column};
  }

  FactorPlace of_glu(const graph::Glu& glu, int64_t k) const {
    if (glu.limit != 0 || glu.up_offset != 0) return {};
    return of_product(glu.x, k);  // the second half is multiplied as it is
  }

  FactorPlace of_attention(const graph::Attention& attention, int64_t k) const {
    const kernels::Heads& heads = attention.heads;
    if (heads.latent > 0 || heads.num_kv < 1 || heads.num % heads.num_kv != 0 ||
        k != int64_t{heads.num} * heads.dim)
      return {};
    FactorPlace place = of_product(attention.qkv, (int64_t{heads.num} + heads.num_kv) * heads.dim);
    place.repeat = heads.dim, place.times = heads.num / heads.num_kv;
    return place;
  }

  const graph::Graph& graph_;
  const graph::Uses& uses_;
  const std::function<bool(graph::WeightId)>& is_chosen_;
};

}  // namespace

std::vector<ProductInput> product_inputs(const graph::Graph& graph,
                                         const std::function<bool(graph::WeightId)>& is_chosen) {
  const graph::Uses uses = graph::find_uses(graph);
  graph::WeightId head = kNone;
  for (const graph::Node& node : graph.nodes)
    if (const auto* linear = std::get_if<graph::Linear>(&node.op)) head = linear->weight;
  const auto is_routed = [&](graph::ValueId out) {
    return std::ranges::any_of(uses.readers[out], [&](int32_t reader) {
      return static_cast<size_t>(reader) < graph.nodes.size() &&
             std::holds_alternative<graph::Route>(graph.nodes[static_cast<size_t>(reader)].op);
    });
  };
  const std::function<bool(graph::WeightId)> may = [&](graph::WeightId id) {
    return id != head && uses.weight_readers[id] == 1 && is_chosen(id);
  };
  std::vector<ProductInput> inputs;
  for (const graph::Node& node : graph.nodes) {
    const auto* linear = std::get_if<graph::Linear>(&node.op);
    if (!linear || !may(linear->weight) || is_routed(linear->out)) continue;
    const graph::ValueId x = linear->x;
    auto it = std::ranges::find(inputs, x, &ProductInput::x);
    if (it == inputs.end()) {
      const graph::Weight& weight = graph.weights[linear->weight];
      inputs.push_back({.x = x, .layer = layer_of(weight.name), .k = weight.k});
      it = inputs.end() - 1;
    }
    it->weights.push_back(linear->weight);
  }
  const PlaceFinder finder(graph, uses, may);
  for (ProductInput& input : inputs) input.place = finder.find(input);
  return inputs;
}

}  // namespace nereid::convert
