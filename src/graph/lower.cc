#include "graph/lower.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "io/engine_writer.h"

namespace nereid::graph {
std::string target_of(const DeviceInfo& device) {
  return device.kind == DeviceKind::kCpu ? std::string(name_of(device.isa))
                                         : fmt::format("sm{}", device.sm);
}

StatusOr<io::Plan> lower(const Graph& graph, const DeviceInfo& device) {
  io::Plan plan;
  plan.model = graph.model;
  plan.mapping = graph.mapping;
  plan.caches = graph.caches;
  plan.values = graph.values;
  for (const Weight& w : graph.weights)
    plan.weights.push_back({w.name, w.format, w.n, w.k, w.layout, {}, w.experts});
  for (const Node& node : graph.nodes)
    std::visit(
        [&](const auto& op) {
          if constexpr (!kIsLayout<std::decay_t<decltype(op)>>)
            plan.calls.push_back({op, node.kernel});
        },
        node.op);
  plan.modules = graph.modules;
  plan.module_parts = graph.module_parts;
  plan.logits = graph.logits;
  const bool are_sampled =
      graph.model.is_encoder || std::ranges::all_of(graph.hidden, [&](ValueId id) {
        return graph.values[id].extent == io::RowCount::kSampled;
      });
  if (are_sampled) plan.hidden = graph.hidden;
  for (int i = 0; i < io::kNumExtents; ++i)
    plan.arena_bytes_per_row[i] = graph.arena_bytes_per_row[i];
  plan.device = name_of(device.kind);
  plan.target = target_of(device);
  io::place_weights(plan);
  const Status status = io::check_plan(plan);
  if (!status.ok()) return internal_error("lowered plan: {}", message(status));
  return plan;
}

}  // namespace nereid::graph
