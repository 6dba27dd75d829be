// Tied embeddings: stores the common matrix of table and head once.
#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/passes/passes.h"

namespace nereid::graph {

Status tie_embedding(Graph& graph, const PassContext&) {
  // By first tensor: the distinct weights that begin with it.
  std::unordered_map<std::string_view, std::vector<WeightId>> seen;
  for (size_t i = 0; i < graph.weights.size(); ++i) {
    const Weight& weight = graph.weights[i];
    std::vector<WeightId>& others =
        seen[weight.parts.empty() ? std::string_view() : weight.parts[0].tensor];
    const auto equal = [&](WeightId id) {
      const Weight& other = graph.weights[static_cast<size_t>(id)];
      return other.parts == weight.parts && other.is_vector == weight.is_vector &&
             other.format == weight.format && other.experts == weight.experts;
    };
    const auto found = std::ranges::find_if(others, equal);
    if (found == others.end())
      others.push_back(static_cast<WeightId>(i));
    else
      replace_weight(graph, static_cast<WeightId>(i), *found);
  }
  sweep(graph);
  return ok();
}

}  // namespace nereid::graph
