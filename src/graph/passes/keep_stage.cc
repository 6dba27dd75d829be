// Pipeline stages: a run of nodes, with recv and send for each value that crosses its borders.
#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "graph/passes/passes.h"

namespace nereid::graph {
namespace {

// First layer of a stage: the first stages have a layer more if the layers do not divide.
int32_t first_layer(int32_t layers, const io::Mapping& m, int32_t stage) {
  return stage * (layers / m.pp) + std::min(stage, layers % m.pp);
}

// Keeps the nodes of the rank's stage, between receives and sends.
class Stages {
 public:
  explicit Stages(Graph& graph) : graph_(graph), uses_(find_uses(graph)) {}

  Status run() {
    if (graph_.model.is_encoder) return keep_results();
    const io::Mapping& m = graph_.mapping;
    const auto layers = static_cast<int32_t>(graph_.residuals.size());
    if (m.pp > layers)
      return invalid_argument("pp: {} stages, but the model has {} layers", m.pp, layers);
    const auto begin_of = [&](int32_t stage) {
      if (stage == 0) return 0;
      if (stage == m.pp) return static_cast<int32_t>(graph_.nodes.size());
      return uses_.writer[graph_.residuals[static_cast<size_t>(first_layer(layers, m, stage))]] + 1;
    };
    const int32_t begin = begin_of(m.stage()), end = begin_of(m.stage() + 1);
    std::vector<Node> nodes;
    for (const ValueId id : crossing(begin)) nodes.push_back({Recv{m.stage() - 1, id}});
    for (int32_t i = begin; i < end; ++i) nodes.push_back(std::move(graph_.nodes[i]));
    for (const ValueId id : crossing(end)) {
      Value sent = graph_.values[id];
      sent.name += ".sent";
      graph_.values.push_back(std::move(sent));
      nodes.push_back({Send{id, m.stage() + 1, static_cast<ValueId>(graph_.values.size() - 1)}});
    }
    graph_.nodes = std::move(nodes);
    if (!m.is_last_stage()) graph_.logits = kNone, graph_.hidden.clear();
    graph_.residuals.clear();
    keep_module_parts();
    sweep(graph_);
    return ok();
  }

 private:
  // An encoder is whole on each stage, with the keys and values of the stage's decoder layers.
  Status keep_results() {
    const io::Mapping& m = graph_.mapping;
    const int32_t layers = graph_.model.num_cross_layers;
    if (m.pp > layers)
      return invalid_argument("pp: {} stages, but the decoder has {} layers", m.pp, layers);
    const int32_t begin = first_layer(layers, m, m.stage());
    const int32_t end = first_layer(layers, m, m.stage() + 1);
    std::erase_if(graph_.nodes, [&](const Node& node) {
      const auto* const store = std::get_if<StoreKv>(&node.op);
      return store && (store->cache < begin || store->cache >= end);
    });
    graph_.residuals.clear();
    graph_.caches.clear();
    sweep(graph_);
    return ok();
  }

  // Parts of the stage's low_rank ops.
  void keep_module_parts() {
    std::vector<io::ModulePart> kept;
    for (Node& node : graph_.nodes)
      if (auto* op = std::get_if<LowRank>(&node.op)) {
        const auto first = graph_.module_parts.begin() + op->first_module;
        op->first_module = static_cast<int32_t>(kept.size());
        kept.insert(kept.end(), first, first + int64_t{op->num_modules} * op->num_experts);
      }
    graph_.module_parts = std::move(kept);
  }

  // Values written before node `border` and read from it on.
  std::vector<ValueId> crossing(int32_t border) const {
    std::vector<ValueId> found;
    if (border == 0 || border == num_nodes_) return found;
    for (size_t i = 0; i < uses_.writer.size(); ++i) {
      if (uses_.writer[i] == kNone || uses_.writer[i] >= border) continue;
      if (std::ranges::any_of(uses_.readers[i], [&](int32_t reader) { return reader >= border; }))
        found.push_back(static_cast<ValueId>(i));
    }
    return found;
  }

  Graph& graph_;
  const Uses uses_;
  const int32_t num_nodes_ = static_cast<int32_t>(graph_.nodes.size());
};

}  // namespace

Status keep_stage(Graph& graph) { return Stages(graph).run(); }

}  // namespace nereid::graph
