#include "graph/lower.h"

#include <optional>
#include <variant>

#include "io/engine_writer.h"

namespace nereid::graph {
namespace {

// The call that runs a node; Concat needs none.
class Lowering {
 public:
  explicit Lowering(const std::string& kernel) : kernel_(kernel) {}

  std::optional<io::Call> operator()(const Embed& x) const {
    return io::EmbedCall{x.table, x.out, kernel_};
  }
  std::optional<io::Call> operator()(const Norm& x) const {
    return io::NormCall{x.x, x.add, x.weight, x.eps, x.out, kernel_};
  }
  std::optional<io::Call> operator()(const Linear& x) const {
    return io::LinearCall{x.x, x.weight, x.bias, x.out, kernel_};
  }
  std::optional<io::Call> operator()(const Concat&) const { return std::nullopt; }
  std::optional<io::Call> operator()(const Rope& x) const {
    return io::RopeCall{x.qkv, x.heads.num, x.heads.num_kv, x.heads.dim, kernel_};
  }
  std::optional<io::Call> operator()(const Attention& x) const {
    return io::AttentionCall{x.qkv,       x.out,    x.layer, x.heads.num, x.heads.num_kv,
                             x.heads.dim, x.window, x.scale, x.has_rope,  kernel_};
  }
  std::optional<io::Call> operator()(const Glu& x) const {
    return io::GluCall{x.x, x.out, x.activation, kernel_};
  }
  std::optional<io::Call> operator()(const Add& x) const { return io::AddCall{x.x, x.y, kernel_}; }
  std::optional<io::Call> operator()(const GatherRows& x) const {
    return io::GatherRowsCall{x.x, x.out, kernel_};
  }

 private:
  const std::string& kernel_;
};

}  // namespace

std::string target_of(const DeviceInfo& device) {
  return device.kind == DeviceKind::kCpu ? std::string(name_of(device.isa))
                                         : fmt::format("sm{}", device.sm);
}

StatusOr<io::Plan> lower(const Graph& graph, const DeviceInfo& device) {
  io::Plan plan;
  plan.model = graph.model;
  for (const Value& v : graph.values)
    plan.values.push_back({v.name, v.extent, v.dtype, v.cols, v.stride, v.column, v.offset});
  for (const Weight& w : graph.weights)
    plan.weights.push_back({w.name, DType::kBF16, w.n, w.k, w.layout});
  for (const Node& node : graph.nodes)
    if (std::optional<io::Call> call = std::visit(Lowering(node.kernel), node.op))
      plan.calls.push_back(*std::move(call));
  plan.logits = graph.logits;
  for (int i = 0; i < io::kNumExtents; ++i)
    plan.arena_bytes_per_row[i] = graph.arena_bytes_per_row[i];
  plan.device = device.kind == DeviceKind::kCpu ? "cpu" : "cuda";
  plan.target = target_of(device);
  io::place_weights(plan);
  const Status status = io::check_plan(plan);
  if (!status.ok()) return internal_error("lowered plan: {}", message(status));
  return plan;
}

}  // namespace nereid::graph
