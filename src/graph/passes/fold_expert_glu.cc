// Gates, ups and gated units of experts become one product.
#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

// The parts of each expert, as many for each; empty: experts differ in number of parts.
std::vector<WeightPart> parts_by_expert(const Weight& w) {
  const auto experts = static_cast<size_t>(w.experts);
  const int64_t wanted = w.is_vector ? w.k : w.n;
  std::vector<WeightPart> parts = w.parts;
  if (parts.size() == 1 && experts > 1) {  // the experts' rows in one tensor
    const WeightPart whole = parts[0];
    if (whole.size != w.experts * wanted || whole.pairs > 0 || !whole.elements.empty() ||
        !whole.row_scales.empty())
      return {};
    parts.assign(experts, whole);
    for (size_t e = 0; e < experts; ++e) {
      parts[e].size = wanted;
      parts[e].first = whole.first + static_cast<int64_t>(e) * wanted * whole.step;
      parts[e].total = whole.tensor_rows();
    }
  }
  if (parts.empty() || parts.size() % experts != 0) return {};
  const size_t count = parts.size() / experts;
  for (size_t e = 0; e < experts; ++e) {
    int64_t size = 0;
    for (size_t i = 0; i < count; ++i) {
      if (parts[e * count + i].cols != 0) return {};
      size += parts[e * count + i].size;
    }
    if (size != wanted) return {};
  }
  return parts;
}

// Each expert's rows of `a`, then of `b`; nullopt: they do not stack.
std::optional<Weight> stack(const Weight& a, const Weight& b, std::string name) {
  const std::vector<WeightPart> of_a = parts_by_expert(a), of_b = parts_by_expert(b);
  const bool same = a.n == b.n && a.k == b.k && a.experts == b.experts && a.format == b.format &&
                    a.is_vector == b.is_vector;
  if (of_a.empty() || of_b.empty() || !same) return std::nullopt;
  Weight out;
  out.name = std::move(name);
  out.is_vector = a.is_vector;
  out.n = a.is_vector ? a.n : 2 * a.n;
  out.k = a.is_vector ? 2 * a.k : a.k;
  out.experts = a.experts;
  out.format = a.format;
  if (a.stored == b.stored) out.stored = a.stored;
  const auto experts = static_cast<size_t>(a.experts);
  for (size_t e = 0; e < experts; ++e)
    for (const std::vector<WeightPart>* const parts : {&of_a, &of_b}) {
      const size_t count = parts->size() / experts;
      const auto first = parts->begin() + static_cast<std::ptrdiff_t>(e * count);
      out.parts.insert(out.parts.end(), first, first + static_cast<std::ptrdiff_t>(count));
    }
  for (const Weight* const w : {&a, &b})
    for (WeightSource& source : sources_of(*w)) out.sources.push_back(std::move(source));
  return out;
}

// The products of a unit's gates and ups: nodes of `graph`.
struct Site {
  int32_t gate = kNone, up = kNone, concat = kNone;
};

std::optional<Site> find_site(const Graph& graph, const Uses& uses, const Glu& glu) {
  const int32_t node = uses.writer[glu.x];
  const auto* const concat = node < 0 ? nullptr : std::get_if<Concat>(&graph.nodes[node].op);
  if (!concat || concat->parts.size() != 2 || uses.readers[glu.x].size() != 1) return {};
  const Site site = {uses.writer[concat->parts[0]], uses.writer[concat->parts[1]], node};
  for (const int32_t writer : {site.gate, site.up}) {
    const auto* const product =
        writer < 0 ? nullptr : std::get_if<ExpertLinear>(&graph.nodes[writer].op);
    if (!product || product->gated || uses.readers[product->out].size() != 1 ||
        uses.weight_readers[product->weight] != 1 ||
        (product->bias != kNone && uses.weight_readers[product->bias] != 1))
      return {};
  }
  const auto& gate = std::get<ExpertLinear>(graph.nodes[site.gate].op);
  const auto& up = std::get<ExpertLinear>(graph.nodes[site.up].op);
  const bool same = gate.x == up.x && gate.scales == up.scales && gate.experts == up.experts &&
                    (gate.bias == kNone) == (up.bias == kNone);
  return same ? std::optional(site) : std::nullopt;
}

// Adds the stacked weights to the graph; nullopt: they do not stack.
std::optional<ExpertLinear> fold(Graph& graph, const Site& site, const Glu& glu) {
  const auto& gate = std::get<ExpertLinear>(graph.nodes[site.gate].op);
  const auto& up = std::get<ExpertLinear>(graph.nodes[site.up].op);
  const std::string& name = graph.values[glu.x].name;
  std::optional<Weight> matrix = stack(graph.weights[gate.weight], graph.weights[up.weight], name);
  if (!matrix) return {};
  ExpertLinear out = gate;
  out.gated = true;
  out.activation = glu.activation, out.limit = glu.limit, out.up_offset = glu.up_offset;
  out.out = glu.out;
  if (gate.bias != kNone) {
    std::optional<Weight> bias =
        stack(graph.weights[gate.bias], graph.weights[up.bias], name + ".bias");
    if (!bias) return {};
    out.bias = static_cast<WeightId>(graph.weights.size());
    graph.weights.push_back(*std::move(bias));
  }
  out.weight = static_cast<WeightId>(graph.weights.size());
  graph.weights.push_back(*std::move(matrix));
  return out;
}

}  // namespace

Status fold_expert_glu(Graph& graph, const PassContext& context) {
  const Uses uses = find_uses(graph);
  std::vector<bool> dropped(graph.nodes.size());
  for (Node& node : graph.nodes) {
    const auto* const glu = std::get_if<Glu>(&node.op);
    if (!glu || graph.values[glu->out].dtype != DType::kBF16) continue;
    const std::optional<Site> site = find_site(graph, uses, *glu);
    if (!site) continue;
    const size_t num_weights = graph.weights.size();
    const std::optional<ExpertLinear> folded = fold(graph, *site, *glu);
    const auto cost_of = [&](const Op& op) { return cheapest_cost(graph, context, op); };
    if (!folded || cost_of(*folded) >= cost_of(graph.nodes[site->gate].op) +
                                           cost_of(graph.nodes[site->up].op) + cost_of(node.op)) {
      graph.weights.resize(num_weights);
      continue;
    }
    node.op = *folded;
    for (const int32_t gone : {site->gate, site->up, site->concat}) dropped[gone] = true;
  }
  drop_nodes(graph, dropped);
  return ok();
}

}  // namespace nereid::graph
