// Chooses a kernel for each node and a layout for each matrix.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "graph/candidates.h"
#include "graph/passes/passes.h"
#include "kernels/api/keys.h"
#include "kernels/api/validate.h"

namespace nereid::graph {
namespace {

using kernels::WeightLayout;

struct Choice {
  std::string kernel;
  double cost = 0;
};

class Chooser {
 public:
  Chooser(const Graph& graph, const PassContext& context) : graph_(graph), context_(context) {}

  template <class Op>
  StatusOr<Choice> operator()(const Op& op) const {
    if constexpr (kernels::kIsExchange<Op>)
      return Choice{};
    else
      return choose(op);
  }
  template <class Op>
  StatusOr<Choice> choose(const Op& op) const {
    using K = kernels::in_form<Op, kernels::Views>;
    const K problem = kernels::look_up(op, *this);
    const kernels::Table<K> usable = candidates(*context_.registry, problem, context_.device);
    const K typical = with_rows(problem, kTypicalRows);
    const StatusOr<const kernels::Kernel<K>*> selected =
        kernels::select(usable, typical, context_.device, context_.forced);
    if (!selected.ok())
      return annotate(selected.status(),
                      fmt::format("{} ({})", K::kName, kernels::operands_text(typical)));
    const kernels::Kernel<K>* const best = *selected;
    Choice choice{std::string(best->name), best->cost(typical, context_.device)};
    // Unforced kernels that depend on server options (KV cache) are chosen when the plan is bound.
    if (kernels::has_role<K, kernels::Role::kCache>() && !is_forced(K::kName)) choice.kernel = "";
    return choice;
  }
  StatusOr<Choice> operator()(const Concat&) const { return Choice{}; }
  StatusOr<Choice> operator()(const Slice&) const { return Choice{}; }

  // look_up() without addresses, for default server options.
  View value(ValueId id) const {
    const Value& v = graph_.values[id];
    return {nullptr, v.dtype, 1, v.cols, v.cols};
  }
  kernels::WeightView weight(WeightId id) const { return shape_of(graph_.weights[id]); }
  kernels::AnglesView angles(int32_t id) const {
    const io::RopeTable& rope = graph_.model.ropes[static_cast<size_t>(id)];
    return {nullptr, static_cast<int64_t>(2 * rope.inverse_frequencies.size()),
            !rope.components.empty()};
  }
  template <class Op>
  kernels::CacheView cache(int32_t, const Op& op) const {
    kernels::CacheView cache;
    if constexpr (requires { op.window; }) cache.window = op.window;
    cache.layout = kernels::key_layout(context_.device.kind, op.heads.dim, cache.block_tokens);
    return cache;
  }

 private:
  bool is_forced(std::string_view op) const {
    return std::any_of(context_.forced.begin(), context_.forced.end(), [&](const std::string& c) {
      return c.size() > op.size() && c.starts_with(op) && c[op.size()] == ':';
    });
  }

  const Graph& graph_;
  const PassContext& context_;
};

// "op:name" must exist for the device; whether it can run a problem is checked later.
Status check_forced(const PassContext& context, const std::string& choice) {
  std::string known;
  bool found = false;
  const auto look = [&]<class K>(const kernels::Table<K>& table) {
    for (const kernels::Kernel<K>& row : table) {
      if (row.device != context.device.kind) continue;
      const std::string name = fmt::format("{}:{}", K::kName, row.name);
      found = found || name == choice;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
    }
  };
  std::apply([&](const auto&... tables) { (look(tables), ...); }, context.registry->tables);
  if (found) return ok();
  return invalid_argument("forced kernel '{}' does not exist on {}; these do: {}", choice,
                          context.device.id(), known);
}

// One layout for all users of a matrix (a tied embedding is table and head).
Status choose_layout(Graph& graph, const Chooser& chooser, WeightId id) {
  std::optional<WeightLayout> best;
  double best_cost = std::numeric_limits<double>::infinity();
  Status reason;
  for (const WeightLayout layout : kernels::kWeightLayouts) {
    graph.weights[id].layout = layout;
    double cost = 0;
    bool can = true;
    for (const Node& node : graph.nodes) {
      const std::vector<WeightId> used = matrices(node.op);
      if (std::find(used.begin(), used.end(), id) == used.end()) continue;
      const StatusOr<Choice> choice = std::visit(chooser, node.op);
      if (!choice.ok()) {
        reason = choice.status();
        can = false;
        break;
      }
      cost += choice->cost;
    }
    if (can && cost < best_cost) best = layout, best_cost = cost;
  }
  if (!best) return annotate(reason, graph.weights[id].name);
  graph.weights[id].layout = *best;
  return ok();
}

}  // namespace

StatusOr<double> kernel_cost(const Graph& graph, const PassContext& context, const Op& op) {
  ASSIGN_OR_RETURN(const Choice choice, std::visit(Chooser(graph, context), op));
  return choice.cost;
}

double cheapest_cost(Graph& graph, const PassContext& context, const Op& op) {
  double least = std::numeric_limits<double>::infinity();
  const std::vector<WeightId> used = matrices(op);
  std::vector<WeightLayout> before;
  for (const WeightId id : used) before.push_back(graph.weights[id].layout);
  for (const WeightLayout layout : kernels::kWeightLayouts) {
    for (const WeightId id : used) graph.weights[id].layout = layout;
    const StatusOr<double> cost = kernel_cost(graph, context, op);
    if (cost.ok()) least = std::min(least, *cost);
  }
  for (size_t i = 0; i < used.size(); ++i) graph.weights[used[i]].layout = before[i];
  return least;
}

Status choose_kernels(Graph& graph, const PassContext& context) {
  for (const std::string& choice : context.forced) RETURN_IF_ERROR(check_forced(context, choice));
  const Chooser chooser(graph, context);
  for (size_t i = 0; i < graph.weights.size(); ++i)
    if (!graph.weights[i].is_vector)
      RETURN_IF_ERROR(choose_layout(graph, chooser, static_cast<WeightId>(i)));
  for (Node& node : graph.nodes) {
    ASSIGN_OR_RETURN(Choice choice, std::visit(chooser, node.op));
    node.kernel = std::move(choice.kernel);
  }
  return ok();
}

}  // namespace nereid::graph
