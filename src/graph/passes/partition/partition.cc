// Sharding: the graph of one rank, of that of the whole model. Tensor ranks compute heads, columns
// and experts; keep_stage() cuts the stages.
#include <utility>
#include <variant>

#include "graph/passes/partition/partitioner.h"

namespace nereid::graph {

Partitioner::Partitioner(const Graph& graph, const io::Mapping& mapping)
    : in_(graph),
      mapping_(mapping),
      tensor_{mapping.tp, mapping.tensor_rank()},
      expert_{mapping.tp / mapping.ep, mapping.tensor_rank() / mapping.ep},
      layouts_(graph.values.size()),
      local_(graph.values.size(), kNone),
      whole_(graph.values.size(), kNone) {
  out_.model = graph.model;
  out_.mapping = mapping;
  out_.modules = graph.modules;
}

StatusOr<Graph> Partitioner::run() && {
  for (const Node& node : in_.nodes) {
    const Status status = std::visit([&](const auto& op) { return add(op); }, node.op);
    if (!status.ok()) {
      const std::vector<ValueId> made = outputs(node.op);
      return annotate(status,
                      made.empty() ? std::string(name_of(node.op)) : in_.values[made[0]].name);
    }
  }
  ASSIGN_OR_RETURN(out_.logits, whole(in_.logits));
  for (const ValueId id : in_.hidden) {
    ASSIGN_OR_RETURN(const ValueId hidden, whole(id));
    out_.hidden.push_back(hidden);
  }
  for (const ValueId id : in_.residuals) {
    ASSIGN_OR_RETURN(const ValueId residual, whole(id));
    out_.residuals.push_back(residual);
  }
  return std::move(out_);
}

ValueId Partitioner::new_value(Value value, int64_t cols) {
  value.cols = cols;
  out_.values.push_back(std::move(value));
  return static_cast<ValueId>(out_.values.size() - 1);
}

ValueId Partitioner::set(ValueId id, RankLayout layout) {
  const int64_t cols =
      layout.columns.empty() ? value(id).cols : size_of(ranges_of(layout.columns, team_of(layout)));
  local_[id] = new_value(value(id), cols);
  layouts_[id] = std::move(layout);
  return local_[id];
}

StatusOr<ValueId> Partitioner::whole(ValueId id) {
  if (id == kNone || layout(id).is_whole()) return id == kNone ? kNone : local_[id];
  if (whole_[id] != kNone) return whole_[id];
  const RankLayout& from = layout(id);
  if (from.masked && !from.partial)
    return unsupported("experts of other ranks are read by an op that is not a product");
  ValueId x = local_[id];
  if (from.partial) {
    Value sum = out_.values[x];
    sum.name += ".sum";
    const ValueId out = new_value(sum, sum.cols);
    emit(AllReduce{.x = x, .out = out});
    x = out;
  }
  if (!from.columns.empty()) {
    ASSIGN_OR_RETURN(x, gather(id, x));
  }
  return whole_[id] = x;
}

StatusOr<ValueId> Partitioner::gather(ValueId id, ValueId x) {
  const RankLayout& from = layout(id);
  const Units& units = from.columns[0];
  const bool is_even =
      std::ranges::all_of(from.columns, [&](const Units& u) { return u == units; });
  if (!is_even || from.by_experts)
    return unsupported("columns of several kinds are divided and read whole");
  Value all = value(id);
  all.name += ".all";
  const ValueId out = new_value(all, value(id).cols);
  emit(AllGather{
      .x = x, .unit = units.size, .pieces = static_cast<int32_t>(from.columns.size()), .out = out});
  return out;
}

Status Partitioner::check(const Weight& weight, const Division& division, const Team& team) {
  for (const Units& units : division) {
    const bool fits = units.count == 1 || units.may_differ || units.count % team.ranks == 0 ||
                      (units.repeats && team.ranks % units.count == 0);
    if (!fits)
      return invalid_argument("weight '{}': {} units of {} cannot be divided among {} ranks",
                              weight.name, units.count, units.size, team.ranks);
  }
  return ok();
}

Status Partitioner::check_columns(const Weight& weight, Range range) {
  const int64_t group = weight.format.group_size(weight.k);
  if (group == weight.k || (range.begin % group == 0 && range.size % group == 0)) {
    if (!weight.format.ordered) return ok();
    return invalid_argument("weight '{}': reordered columns cannot be divided among ranks",
                            weight.name);
  }
  return invalid_argument(
      "weight '{}': columns [{}, {}) of {} are not whole groups of {}; use fewer ranks, or "
      "weights in other groups",
      weight.name, range.begin, range.end(), weight.k, group);
}

WeightId Partitioner::take(WeightId id, const Cut& cut) {
  if (id == kNone) return kNone;
  std::string key = fmt::format("{}{}", id, cut.suffix);
  const auto add_range = [&](const Range& r) { key += fmt::format(" {}+{}", r.begin, r.size); };
  if (cut.experts) key += " e", add_range(*cut.experts);
  if (cut.columns) key += " c", add_range(*cut.columns);
  if (cut.rows) {
    key += " r";
    for (const Range& r : *cut.rows) add_range(r);
  }
  const auto [found, is_new] = weights_.try_emplace(key, kNone);
  if (!is_new) return found->second;
  Weight weight = in_.weights[id];
  weight.rows = {}, weight.cols = {}, weight.by_expert = false;
  weight.sources.clear();
  weight.name += cut.suffix;
  const int64_t width = weight.is_vector ? 1 : weight.k;
  const int64_t rows = weight.is_vector ? weight.k : weight.n;
  if (cut.experts || cut.rows) {
    const Range experts = cut.experts.value_or(Range{0, weight.experts});
    const Ranges kept = cut.rows.value_or(Ranges{{0, rows}});
    std::vector<WeightPart> parts;
    for (int64_t e = experts.begin; e < experts.end(); ++e)
      for (const Range& r : kept)
        take_rows(weight.parts, width, weight.is_vector, {e * rows + r.begin, r.size}, parts);
    weight.parts = std::move(parts);
    weight.experts = experts.size;
    (weight.is_vector ? weight.k : weight.n) = size_of(kept);
  }
  if (cut.columns) {
    weight.parts = take_columns(weight.parts, weight.k, *cut.columns);
    weight.k = cut.columns->size;
  }
  out_.weights.push_back(std::move(weight));
  return found->second = static_cast<WeightId>(out_.weights.size() - 1);
}

Status partition(Graph& graph, const PassContext& context) {
  const io::Mapping& mapping = context.mapping;
  RETURN_IF_ERROR(io::check_mapping(mapping));
  if (mapping.is_single() && !mapping.invariant) return ok();
  ASSIGN_OR_RETURN(graph, Partitioner(graph, mapping).run());
  if (mapping.pp > 1) return keep_stage(graph);
  graph.caches.clear();
  if (mapping.is_single()) graph.module_parts.clear();
  sweep(graph);
  return ok();
}

}  // namespace nereid::graph
