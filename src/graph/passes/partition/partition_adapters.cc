// Adapters: modules in the columns of the rank, and those of the rank's experts.
#include <utility>

#include "graph/passes/partition/partitioner.h"

namespace nereid::graph {

Status Partitioner::add(const LowRank& op) {
  LowRank local = op;
  local.first_module = static_cast<int32_t>(out_.module_parts.size());
  RankLayout y = layout(op.y);
  if (op.experts != kNone) return add_expert_adapters(op, local);
  ASSIGN_OR_RETURN(local.x, whole(op.x));
  if (y.partial) {
    ASSIGN_OR_RETURN(local.y, whole(op.y));
    y = {};
  } else {
    local.y = local_[op.y];
  }
  const Ranges here =
      y.columns.empty() ? Ranges{{0, value(op.y).cols}} : ranges_of(y.columns, tensor_);
  for (int32_t i = 0; i < op.num_modules; ++i) add_part(op.first_module + i, here);
  local.num_modules = static_cast<int32_t>(out_.module_parts.size()) - local.first_module;
  const ValueId out = set(op.out, std::move(y));
  if (local.num_modules == 0) {  // no column of a module is here
    out_.values.pop_back();
    local_[op.out] = local.y;
    return ok();
  }
  local.out = out;
  emit(local);
  return ok();
}

Status Partitioner::add_expert_adapters(const LowRank& op, LowRank local) {
  const RankLayout& y = layout(op.y);
  if (expert_.ranks > 1)
    return invalid_argument(
        "adapters of experts need experts that are divided by index only: as many expert ranks "
        "as tensor ranks ({})",
        tensor_.ranks);
  const Range experts = share_of(op.num_experts, {mapping_.ep, tensor_.rank % mapping_.ep});
  if (layout(op.x).masked) {
    local.x = local_[op.x];
  } else {
    ASSIGN_OR_RETURN(local.x, whole(op.x));
  }
  local.experts = select_experts(op.experts, op.num_experts);
  local.y = local_[op.y];
  local.num_experts = static_cast<int32_t>(experts.size);
  for (int64_t e = experts.begin; e < experts.end(); ++e)
    for (int32_t i = 0; i < op.num_modules; ++i) {
      const auto module = op.first_module + static_cast<int32_t>(e) * op.num_modules + i;
      const io::AdapterModule& m = in_.modules[static_cast<size_t>(module)];
      out_.module_parts.push_back({module, m.column, {{0, m.n, 1}}});
    }
  local.out = set(op.out, y);
  emit(local);
  return ok();
}

void Partitioner::add_part(int32_t index, const Ranges& here) {
  const io::AdapterModule& m = in_.modules[static_cast<size_t>(index)];
  io::ModulePart part{.module = index};
  int64_t at = 0;  // column on the rank
  for (const Range& range : here) {
    const int64_t begin = std::max(range.begin, m.column),
                  end = std::min(range.end(), m.column + m.n);
    if (begin < end) {
      if (part.runs.empty()) part.column = at + begin - range.begin;
      part.runs.push_back({begin - m.column, end - begin, 1});
    }
    at += range.size;
  }
  if (!part.runs.empty()) out_.module_parts.push_back(std::move(part));
}

}  // namespace nereid::graph
