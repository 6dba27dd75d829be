// Rotary embedding inside attention, which reads every query and key anyway; not by components.
#include <utility>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {

Status fuse_rope_attention(Graph& graph, const PassContext&) {
  const Uses uses = find_uses(graph);
  std::vector<bool> dropped(graph.nodes.size());
  for (Node& node : graph.nodes) {
    auto* attention = std::get_if<Attention>(&node.op);
    if (!attention || is_given(attention->angles)) continue;
    const int32_t writer = uses.writer[attention->qkv];
    const auto* rope = std::get_if<Rope>(&graph.nodes[writer].op);
    if (!rope || uses.readers[rope->out].size() != 1) continue;
    const io::RopeTable& table = graph.model.ropes[static_cast<size_t>(rope->angles)];
    if (!table.components.empty()) continue;
    attention->qkv = rope->qkv;
    attention->angles = rope->angles;
    attention->interleaved = rope->interleaved;
    dropped[writer] = true;
  }
  drop_nodes(graph, dropped);
  return ok();
}

}  // namespace nereid::graph
