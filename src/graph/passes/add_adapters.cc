// Low-rank adapters: an op behind each product whose weight is made of whole matrices of the
// checkpoint, one module for each.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

using io::AdapterModule;

constexpr std::string_view kWeightSuffix = ".weight", kTiedHead = "lm_head";

// Whether the part is all of its tensor, row for row.
bool is_whole(const WeightPart& part) {
  WeightPart whole{.tensor = part.tensor, .size = part.size};
  whole.total = part.total == part.size ? part.total : 0;
  whole.transposed = part.transposed;
  return part == whole;
}

// Empty: a part is not what an adapter can name.
std::vector<AdapterModule> modules_of(const Weight& weight) {
  std::vector<AdapterModule> modules;
  int64_t column = 0;
  for (const WeightPart& part : weight.parts) {
    if (!is_whole(part) || !part.tensor.ends_with(kWeightSuffix)) return {};
    const size_t length = part.tensor.size() - kWeightSuffix.size();
    modules.push_back({part.tensor.substr(0, length), weight.k, part.size, column});
    column += part.size;
  }
  return modules;
}

// A head that shares its matrix with the embedding is a module of its own, by the name that Hugging
// Face's models have for it.
bool is_tied_head(const Graph& graph, const Linear& linear) {
  if (graph.values[linear.out].cols != graph.model.vocab_size) return false;
  const std::vector<WeightPart>& parts = graph.weights[linear.weight].parts;
  return std::ranges::any_of(graph.nodes, [&](const Node& node) {
    const auto* const embed = std::get_if<Embed>(&node.op);
    return embed && graph.weights[embed->table].parts == parts;
  });
}

}  // namespace

Status add_adapters(Graph& graph, const PassContext& context) {
  if (!context.adapters) return ok();
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    nodes.push_back(graph.nodes[i]);
    const auto* const linear = std::get_if<Linear>(&nodes.back().op);
    if (!linear) continue;
    if (graph.values[linear->out].dtype != DType::kF32 ||
        graph.values[linear->x].dtype != DType::kBF16)
      continue;
    std::vector<AdapterModule> modules = modules_of(graph.weights[linear->weight]);
    if (modules.empty()) continue;
    if (is_tied_head(graph, *linear)) modules[0].name = kTiedHead;
    const ValueId product = linear->out;
    Value changed = graph.values[product];
    changed.name += ".adapted";
    graph.values.push_back(std::move(changed));
    const auto out = static_cast<ValueId>(graph.values.size() - 1);
    for (size_t j = i + 1; j < graph.nodes.size(); ++j)
      replace_inputs(graph.nodes[j].op, product, out);
    if (graph.logits == product) graph.logits = out;
    nodes.push_back({LowRank{.x = linear->x,
                             .y = product,
                             .first_module = static_cast<int32_t>(graph.modules.size()),
                             .num_modules = static_cast<int32_t>(modules.size()),
                             .out = out}});
    graph.modules.insert(graph.modules.end(), modules.begin(), modules.end());
  }
  graph.nodes = std::move(nodes);
  return ok();
}

}  // namespace nereid::graph
