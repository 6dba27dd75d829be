// Picks a kernel for every node and a layout for every matrix. One kernel serves all row counts of
// a call, so that a row's bits never depend on how many others share the step.
#include <array>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "graph/passes/passes.h"
#include "kernels/api/keys.h"

namespace nereid::graph {
namespace {

using kernels::WeightLayout;

// Costs are compared for a step of this many rows (a busy decode step); the kernel must be able to
// run from one row to a large prefill.
constexpr int64_t kTypicalRows = 16;
constexpr std::array<int64_t, 3> kRowCounts = {1, kTypicalRows, 8192};

struct Choice {
  std::string kernel;
  double cost = 0;
};

template <class Problem>
Problem with_rows(Problem problem, int64_t rows) {
  if constexpr (requires { problem.tokens; })
    problem.tokens = rows;
  else
    problem.rows = rows;
  return problem;
}

template <class K>
StatusOr<Choice> choose(const PassContext& context, const typename K::Problem& problem) {
  kernels::Table<K> usable;
  for (const kernels::Kernel<K>& row : context.registry->table<K>()) {
    bool can = row.device == context.device.kind;
    for (const int64_t rows : kRowCounts)
      can = can && row.can(with_rows(problem, rows), context.device);
    if (can) usable.push_back(row);
  }
  const auto typical = with_rows(problem, kTypicalRows);
  ASSIGN_OR_RETURN(const kernels::Kernel<K>* best,
                   kernels::select(usable, typical, context.device, context.forced));
  return Choice{std::string(best->name), best->cost(typical, context.device)};
}

class Chooser {
 public:
  Chooser(Graph& graph, const PassContext& context) : graph_(graph), context_(context) {}

  StatusOr<Choice> operator()(const Embed& x) const {
    const Weight& w = graph_.weights[x.table];
    return choose<kernels::Embed>(context_, {1, w.n, w.k, w.layout});
  }
  StatusOr<Choice> operator()(const Norm& x) const {
    const Value& out = graph_.values[x.out];
    return choose<kernels::Norm>(context_, {1, out.cols, x.add != kNone, out.dtype});
  }
  StatusOr<Choice> operator()(const Linear& x) const {
    const Weight& w = graph_.weights[x.weight];
    return choose<kernels::Linear>(
        context_, {1, w.n, w.k, w.layout, x.bias != kNone, graph_.values[x.out].dtype});
  }
  StatusOr<Choice> operator()(const Concat&) const { return Choice{}; }
  StatusOr<Choice> operator()(const Rope& x) const {
    return choose<kernels::Rope>(context_, {1, x.heads.num, x.heads.num_kv, x.heads.dim});
  }
  StatusOr<Choice> operator()(const Attention& x) const {
    kernels::Attention::Problem problem;
    problem.num_heads = x.heads.num;
    problem.num_kv_heads = x.heads.num_kv;
    problem.head_dim = x.heads.dim;
    problem.window = x.window;
    problem.has_rope = x.has_rope;
    problem.keys =
        kernels::key_layout(context_.device.kind, problem.head_dim, problem.block_tokens);
    return choose<kernels::Attention>(context_, problem);
  }
  StatusOr<Choice> operator()(const Glu& x) const {
    return choose<kernels::Glu>(context_, {1, graph_.values[x.out].cols, x.activation});
  }
  StatusOr<Choice> operator()(const Add& x) const {
    return choose<kernels::Add>(context_, {1, graph_.values[x.out].cols});
  }
  StatusOr<Choice> operator()(const GatherRows& x) const {
    return choose<kernels::GatherRows>(context_, {1, graph_.values[x.out].cols});
  }

 private:
  Graph& graph_;
  const PassContext& context_;
};

// "op:name" must name a kernel that exists for the device; whether it can run a problem is asked
// later.
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

// A layout serves all users of a matrix (a tied embedding is a table and a head).
Status choose_layout(Graph& graph, const Chooser& chooser, WeightId id) {
  std::optional<WeightLayout> best;
  double best_cost = std::numeric_limits<double>::infinity();
  Status reason;
  for (const WeightLayout layout : {WeightLayout::kRowMajor, WeightLayout::kPanel16}) {
    graph.weights[id].layout = layout;
    double cost = 0;
    bool can = true;
    for (const Node& node : graph.nodes) {
      const auto* embed = std::get_if<Embed>(&node.op);
      const auto* linear = std::get_if<Linear>(&node.op);
      if (!(embed && embed->table == id) && !(linear && linear->weight == id)) continue;
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
