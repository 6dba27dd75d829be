// A checkpoint with tied embeddings uses one matrix as the table and as the head: keep one copy.
#include "graph/passes/passes.h"

namespace nereid::graph {

Status tie_embedding(Graph& graph, const PassContext&) {
  for (size_t i = 0; i < graph.weights.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const Weight& a = graph.weights[j];
      const Weight& b = graph.weights[i];
      if (a.parts != b.parts || a.is_vector != b.is_vector) continue;
      replace_weight(graph, static_cast<WeightId>(i), static_cast<WeightId>(j));
      break;
    }
  sweep(graph);
  return ok();
}

}  // namespace nereid::graph
