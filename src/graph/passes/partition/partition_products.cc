// Products with divided weights: rows of the weight divide the output, columns make parts of a sum,
// experts are divided by index or within.
#include <numeric>
#include <utility>

#include "graph/passes/partition/partitioner.h"

namespace nereid::graph {

Status Partitioner::add(const HeadLinear& op) {
  const RankLayout& x = layout(op.x);
  const Weight& weight = in_.weights[op.weight];
  if (x.columns.empty() || x.columns.size() != 1 || x.columns[0].count != weight.experts)
    return add_whole(op);
  HeadLinear local = op;
  local.x = local_[op.x];
  local.weight = take(op.weight, {.experts = share_of(weight.experts, tensor_)});
  local.out = set(op.out, {.columns = {Units{weight.experts, op.kept + weight.n}}});
  emit(local);
  return ok();
}

Status Partitioner::add(const Linear& op) {
  const Weight& weight = in_.weights[op.weight];
  if (is_divided(weight.cols)) return add_row_parallel(op);
  if (!is_divided(weight.rows) || tensor_.ranks == 1) return add_whole(op);
  RETURN_IF_ERROR(check(weight, weight.rows, tensor_));
  Linear local = op;
  ASSIGN_OR_RETURN(local.x, whole(op.x));
  ASSIGN_OR_RETURN(local.scales, whole(op.scales));
  const Cut cut{.rows = ranges_of(weight.rows, tensor_)};
  local.weight = take(op.weight, cut);
  local.bias = take(op.bias, cut);
  local.out = set(op.out, {.columns = weight.rows});
  emit(local);
  return ok();
}

StatusOr<int64_t> Partitioner::num_parts(const Weight& weight, const Units& units) const {
  if (!mapping_.invariant) return tensor_.ranks;
  const int64_t group = weight.format.group_size(weight.k);
  const int64_t unit = group == weight.k ? units.size : std::lcm(units.size, group);
  int64_t parts = io::kInvariantParts;
  while (parts > 1 && weight.k % (parts * unit) != 0) parts /= 2;
  if (parts % tensor_.ranks == 0) return parts;
  return invalid_argument(
      "weight '{}': its {} columns have {} parts of whole units of {}, which cannot be divided "
      "among {} ranks with equal results; use fewer ranks, or no tp_invariant",
      weight.name, weight.k, parts, unit, tensor_.ranks);
}

Status Partitioner::add_row_parallel(const Linear& op) {
  const Weight& weight = in_.weights[op.weight];
  if (weight.cols.size() != 1) return unsupported("columns of several kinds are divided");
  RETURN_IF_ERROR(check(weight, weight.cols, tensor_));
  ASSIGN_OR_RETURN(const int64_t parts, num_parts(weight, weight.cols[0]));
  if (parts == 1) return add_whole(op);
  if (op.scales != kNone) return unsupported("rows with scales are divided");
  const Range mine = ranges_of(weight.cols, tensor_)[0];
  ValueId x = local_[op.x];
  int64_t first = mine.begin;  // column of the weight at column 0 of x
  const bool fits =
      !layout(op.x).partial && layout(op.x).columns == weight.cols && !layout(op.x).by_experts;
  if (!fits) {
    ASSIGN_OR_RETURN(x, whole(op.x));
    first = 0;
  }
  const int64_t here = parts / tensor_.ranks;
  std::vector<ValueId> sums;
  for (int64_t i = 0; i < here; ++i) {
    const int64_t part = tensor_.rank * here + i;
    const Range columns = here == 1 ? mine : Range{weight.k / parts * part, weight.k / parts};
    RETURN_IF_ERROR(check_columns(weight, columns));
    Linear local = op;
    local.x = x;
    if (columns.begin != first || columns.size != out_.values[x].cols) {
      Value slice = out_.values[x];
      slice.name += fmt::format(".part{}", part);
      local.x = new_value(slice, columns.size);
      emit(Slice{.x = x, .column = columns.begin - first, .out = local.x});
    }
    local.weight = take(
        op.weight, {.columns = columns, .suffix = here == 1 ? "" : fmt::format(".part{}", part)});
    local.bias = part == 0 ? take(op.bias) : kNone;
    local.out = new_value(value(op.out), value(op.out).cols);
    emit(local);
    sums.push_back(local.out);
  }
  for (; sums.size() > 1; sums.resize(sums.size() / 2))
    for (size_t i = 0; i < sums.size() / 2; ++i) {
      const ValueId out = new_value(value(op.out), value(op.out).cols);
      emit(Add{.x = sums[2 * i], .y = sums[2 * i + 1], .out = out});
      sums[i] = out;
    }
  local_[op.out] = sums[0];
  layouts_[op.out] = {.partial = tensor_.ranks > 1};
  return ok();
}

ValueId Partitioner::select_experts(ValueId experts, int64_t num_experts) {
  if (mapping_.ep == 1) return local_[experts];
  ValueId& selected = selected_.try_emplace(experts, kNone).first->second;
  if (selected != kNone) return selected;
  const Range share = share_of(num_experts, {mapping_.ep, tensor_.rank % mapping_.ep});
  Value value = in_.values[experts];
  value.name += ".here";
  selected = new_value(value, value.cols);
  emit(SelectExperts{.experts = local_[experts],
                     .first = static_cast<int32_t>(share.begin),
                     .count = static_cast<int32_t>(share.size),
                     .out = selected});
  return selected;
}

Status Partitioner::add(const ExpertLinear& op) {
  const Weight& weight = in_.weights[op.weight];
  if (tensor_.ranks == 1) return add_whole(op);
  if (mapping_.invariant && expert_.ranks > 1)
    return invalid_argument(
        "tp_invariant: experts are divided by index only; use as many expert ranks as tensor "
        "ranks ({})",
        tensor_.ranks);
  if (weight.experts % mapping_.ep != 0)
    return invalid_argument("weight '{}': {} experts cannot be divided among {} expert ranks",
                            weight.name, weight.experts, mapping_.ep);
  ExpertLinear local = op;
  local.experts = select_experts(op.experts, weight.experts);
  Cut cut{.experts = share_of(weight.experts, {mapping_.ep, tensor_.rank % mapping_.ep})};
  RankLayout layout{.masked = mapping_.ep > 1};
  const int64_t pieces = value(op.experts).cols;
  const RankLayout& x = this->layout(op.x);
  if (expert_.ranks > 1 && is_divided(weight.cols)) {
    RETURN_IF_ERROR(check(weight, weight.cols, expert_));
    cut.columns = ranges_of(weight.cols, expert_)[0];
    RETURN_IF_ERROR(check_columns(weight, *cut.columns));
    const bool fits = x.by_experts && !x.columns.empty();
    if (!fits) return unsupported("the experts' inputs are not divided as their columns");
    layout.partial = true;
    local.x = local_[op.x];
  } else if (expert_.ranks > 1 && is_divided(weight.rows)) {
    RETURN_IF_ERROR(check(weight, weight.rows, expert_));
    cut.rows = ranges_of(weight.rows, expert_);
    for (int64_t i = 0; i < pieces; ++i)
      layout.columns.insert(layout.columns.end(), weight.rows.begin(), weight.rows.end());
    layout.by_experts = true;
    ASSIGN_OR_RETURN(local.x, whole(op.x));
  } else if (x.masked && !x.partial) {
    local.x = local_[op.x];
  } else {
    ASSIGN_OR_RETURN(local.x, whole(op.x));
  }
  ASSIGN_OR_RETURN(local.scales, whole(op.scales));
  local.weight = take(op.weight, cut);
  // One rank of an expert adds its bias.
  const bool adds = !layout.partial || expert_.rank == 0;
  local.bias = adds ? take(op.bias, {.experts = cut.experts, .rows = cut.rows}) : kNone;
  // Zeros of other ranks' experts make it a sum over ranks, too.
  layout.partial = layout.partial || (layout.masked && is_divided(weight.cols));
  local.out = set(op.out, std::move(layout));
  emit(local);
  return ok();
}

Status Partitioner::add(const WeightedSum& op) {
  const RankLayout& x = layout(op.x);
  WeightedSum local = op;
  ASSIGN_OR_RETURN(local.weights, whole(op.weights));
  RankLayout layout;
  if (x.partial && x.columns.empty() && !mapping_.invariant) {
    layout.partial = true;
    local.x = local_[op.x];
  } else if (!x.columns.empty() && !x.masked && !x.partial && value(op.weights).cols == 1) {
    layout = x;
    local.x = local_[op.x];
  } else if (x.masked && !x.partial && x.columns.empty() && value(op.weights).cols == 1) {
    layout = x;  // columns of one expert
    local.x = local_[op.x];
  } else {
    ASSIGN_OR_RETURN(local.x, whole(op.x));
  }
  local.out = set(op.out, std::move(layout));
  emit(local);
  return ok();
}

}  // namespace nereid::graph
