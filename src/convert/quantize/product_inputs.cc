#include "convert/quantize/product_inputs.h"

#include <algorithm>
#include <charconv>
#include <map>
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

// Whether a value is routing scores.
bool is_routed(const graph::Graph& graph, const graph::Uses& uses, graph::ValueId out) {
  return std::ranges::any_of(uses.readers[out], [&](int32_t reader) {
    return static_cast<size_t>(reader) < graph.nodes.size() &&
           std::holds_alternative<graph::Route>(graph.nodes[static_cast<size_t>(reader)].op);
  });
}

class PlaceFinder {
 public:
  PlaceFinder(const graph::Graph& graph, const graph::Uses& uses,
              const std::function<bool(graph::WeightId)>& is_chosen)
      : graph_(graph), uses_(uses), is_chosen_(is_chosen) {}

  // Sets the place and the followers.
  void find(ProductInput& input) const {
    ProductInput found = input;
    if (!find_readers(found)) return;  // another reader cannot take factors
    found.place = place_of(input);
    const bool others = !found.followers.empty() || !found.expert_weights.empty();
    if (others && found.place.norm == kNone) return;
    if (input.expert >= 0) found.followers.clear(), found.expert_weights.clear();
    input = std::move(found);
  }

 private:
  FactorPlace place_of(const ProductInput& input) const {
    const graph::Op* writer = writer_of(input.x);
    if (!writer) return {};
    if (const auto* norm = std::get_if<graph::Norm>(writer)) return of_norm(*norm, input.k);
    if (const auto* glu = std::get_if<graph::Glu>(writer)) return of_glu(*glu);
    if (const auto* attention = std::get_if<graph::Attention>(writer))
      return of_attention(*attention, input.k);
    return {};
  }

  // Whether all readers of the input can take factors.
  bool find_readers(ProductInput& input) const {
    const auto is_own = [&](graph::WeightId id) {
      return std::ranges::find(input.weights, id) != input.weights.end();
    };
    return std::ranges::all_of(uses_.readers[input.x], [&](int32_t reader) {
      if (static_cast<size_t>(reader) >= graph_.nodes.size()) return false;
      const graph::Op& op = graph_.nodes[static_cast<size_t>(reader)].op;
      if (const auto* experts = std::get_if<graph::ExpertLinear>(&op)) {
        if (experts->x != input.x || !is_chosen_(experts->weight)) return false;
        if (input.expert < 0 || !is_own(experts->weight))
          input.expert_weights.push_back(experts->weight);
        return true;
      }
      const auto* linear = std::get_if<graph::Linear>(&op);
      if (!linear) return false;
      if (is_own(linear->weight)) return true;
      input.followers.push_back(linear->weight);
      return is_chosen_(linear->weight) ? input.expert >= 0 : can_follow(*linear);
    });
  }

  // A router whose matrix is one whole tensor.
  bool can_follow(const graph::Linear& linear) const {
    const graph::Weight& w = graph_.weights[linear.weight];
    if (!is_routed(graph_, uses_, linear.out) || uses_.weight_readers[linear.weight] != 1 ||
        w.parts.size() != 1)
      return false;
    const graph::WeightPart& part = w.parts[0];
    return part.tensor_rows() == part.size && part.stacked == 0 && part.cols == 0 &&
           part.total_cols == 0 && part.pairs == 0 && part.step == 1 && !part.transposed &&
           !part.unit_rows;
  }

  const graph::Op* writer_of(graph::ValueId id) const {
    const int32_t writer = uses_.writer[id];
    return writer == kNone ? nullptr : &graph_.nodes[static_cast<size_t>(writer)].op;
  }
  // A vector that is one whole tensor with no other user.
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

  // The product whose result is `value`, possibly as a concatenated part; `column`: its first.
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
    graph::WeightId weight = kNone, bias = kNone;
    if (const auto* linear = std::get_if<graph::Linear>(writer))
      weight = linear->weight, bias = linear->bias;
    if (const auto* experts = std::get_if<graph::ExpertLinear>(writer))
      weight = experts->weight, bias = experts->bias;
    if (weight == kNone || !is_chosen_(weight) || !is_own_vector(bias)) return {};
    return {.rows = weight, .rows_bias = bias, .first_row = column};
  }

  FactorPlace of_glu(const graph::Glu& glu) const {
    if (glu.limit != 0 || glu.up_offset != 0) return {};
    return of_product(glu.x,
                      graph_.values[glu.x].cols / 2);  // the second half enters linearly
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
                                         const std::function<bool(graph::WeightId)>& is_chosen,
                                         bool finds_places) {
  const graph::Uses uses = graph::find_uses(graph);
  graph::WeightId head = kNone;
  for (const graph::Node& node : graph.nodes)
    if (const auto* linear = std::get_if<graph::Linear>(&node.op)) head = linear->weight;
  const std::function<bool(graph::WeightId)> may = [&](graph::WeightId id) {
    return id != head && uses.weight_readers[id] == 1 && is_chosen(id);
  };
  std::vector<ProductInput> inputs;
  std::map<std::pair<graph::ValueId, int64_t>, size_t> places;  // index in `inputs`
  const auto input_of = [&](graph::ValueId x, graph::WeightId id, int64_t expert) -> ProductInput& {
    const auto [it, is_new] = places.try_emplace({x, expert}, inputs.size());
    if (!is_new) return inputs[it->second];
    const graph::Weight& weight = graph.weights[id];
    return inputs.emplace_back(
        ProductInput{.x = x, .layer = layer_of(weight.name), .expert = expert, .k = weight.k});
  };
  for (const graph::Node& node : graph.nodes) {
    if (const auto* product = std::get_if<graph::ExpertLinear>(&node.op)) {
      if (!may(product->weight)) continue;
      for (int64_t e = 0; e < graph.weights[product->weight].experts; ++e)
        input_of(product->x, product->weight, e).weights.push_back(product->weight);
    } else if (const auto* linear = std::get_if<graph::Linear>(&node.op)) {
      const bool routes = is_routed(graph, uses, linear->out);
      if (!routes && may(linear->weight))
        input_of(linear->x, linear->weight, -1).weights.push_back(linear->weight);
      else if (routes && finds_places)  // possibly for followers only
        input_of(linear->x, linear->weight, -1);
    }
  }
  if (finds_places) {
    const PlaceFinder finder(graph, uses, may);
    for (ProductInput& input : inputs) finder.find(input);
    std::erase_if(inputs, [](const ProductInput& input) {
      return input.weights.empty() && input.expert_weights.empty();
    });
  }
  for (auto begin = inputs.begin(); begin != inputs.end();) {
    const auto end = std::find_if(begin, inputs.end(), [&](const ProductInput& input) {
      return input.layer != begin->layer;
    });
    std::ranges::stable_sort(begin, end, {}, &ProductInput::expert);
    begin = end;
  }
  return inputs;
}

}  // namespace nereid::convert
