// Only a sequence's last position is sampled: the gather of sampled rows moves up to the last
// attention, through row-wise nodes, as far as inputs are f32 (as GatherRows requires).
#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

class Mover {
 public:
  Mover(Graph& graph, int32_t gather)
      : graph_(graph), uses_(find_uses(graph)), gather_(gather), moved_(graph.nodes.size()) {}

  void run() {
    choose_nodes();
    if (std::find(moved_.begin(), moved_.end(), true) != moved_.end()) rewrite();
  }

 private:
  // The largest set of row-wise nodes whose results are read at sampled rows only and whose other
  // inputs can be gathered.
  void choose_nodes() {
    for (int32_t i = gather_ - 1; i >= 0; --i)
      moved_[i] = is_row_wise(graph_.nodes[i].op) && only_read_by_moved(i);
    for (bool changed = true; changed;) {
      changed = false;
      for (int32_t i = 0; i < gather_; ++i) {
        if (!moved_[i] || (only_read_by_moved(i) && inputs_reachable(i))) continue;
        moved_[i] = false;
        changed = true;
      }
    }
  }
  bool only_read_by_moved(int32_t node) const {
    for (const ValueId id : outputs(graph_.nodes[node].op))
      for (const int32_t reader : uses_.readers[id])
        if (!is_gather(reader) && (reader > gather_ || !moved_[reader]) &&
            !reads_hidden(reader, id))
          return false;
    return true;
  }
  bool is_gather(int32_t node) const { return node == gather_; }
  // The plan's hidden states have sampled rows only.
  bool reads_hidden(int32_t reader, ValueId id) const {
    return reader == static_cast<int32_t>(graph_.nodes.size()) &&
           std::ranges::find(graph_.hidden, id) != graph_.hidden.end();
  }
  bool is_moved_value(ValueId id) const { return moved_[uses_.writer[id]]; }
  bool inputs_reachable(int32_t node) const {
    for (const ValueId id : inputs(graph_.nodes[node].op))
      if (!is_moved_value(id) && graph_.values[id].dtype != DType::kF32) return false;
    return true;
  }

  // Gathers each value that enters the moved nodes, before its first use.
  void rewrite() {
    const GatherRows old = std::get<GatherRows>(graph_.nodes[gather_].op);
    std::map<ValueId, ValueId> gathered;
    std::vector<Node> nodes;
    for (int32_t i = 0; i < static_cast<int32_t>(graph_.nodes.size()); ++i) {
      if (i == gather_) continue;
      if (moved_[i]) {
        for (const ValueId id : inputs(graph_.nodes[i].op)) {
          if (is_moved_value(id) || gathered.contains(id)) continue;
          Value out = graph_.values[id];
          out.name += ".sampled";
          out.extent = io::RowCount::kSampled;
          graph_.values.push_back(out);
          gathered[id] = static_cast<ValueId>(graph_.values.size() - 1);
          nodes.push_back({GatherRows{.x = id, .out = gathered[id]}});
        }
        for (const ValueId id : outputs(graph_.nodes[i].op))
          graph_.values[id].extent = io::RowCount::kSampled;
      }
      nodes.push_back(std::move(graph_.nodes[i]));
      if (moved_[i])
        for (const auto& [from, to] : gathered) replace_inputs(nodes.back().op, from, to);
    }
    graph_.nodes = std::move(nodes);
    replace_uses(graph_, old.out, old.x);
    sweep(graph_);
  }

  Graph& graph_;
  const Uses uses_;
  const int32_t gather_;
  std::vector<bool> moved_;
};

}  // namespace

Status gather_before_head(Graph& graph, const PassContext&) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto* gather = std::get_if<GatherRows>(&graph.nodes[i].op);
    if (!gather || gather->count > 1 || find_uses(graph).writer[gather->x] == kNone) continue;
    Mover(graph, static_cast<int32_t>(i)).run();
    return ok();  // a graph has one GatherRows
  }
  return ok();
}

}  // namespace nereid::graph
