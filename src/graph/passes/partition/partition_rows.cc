// Ops on rows, and attention: outputs are divided as the operands are.
#include <algorithm>
#include <utility>

#include "graph/passes/partition/partitioner.h"

namespace nereid::graph {

Status Partitioner::add(const Concat& op) {
  RankLayout layout;
  Concat local;
  const bool divided =
      std::ranges::any_of(op.parts, [&](ValueId id) { return !this->layout(id).columns.empty(); });
  const bool masked =
      std::ranges::any_of(op.parts, [&](ValueId id) { return this->layout(id).masked; });
  for (const ValueId id : op.parts) {
    const RankLayout& part = this->layout(id);
    if (part.partial || (masked && !part.masked)) {
      ASSIGN_OR_RETURN(const ValueId x, whole(id));
      local.parts.push_back(x);
    } else {
      local.parts.push_back(local_[id]);
      layout.by_experts = layout.by_experts || part.by_experts;
    }
    if (divided && !part.partial && !part.columns.empty())
      layout.columns.insert(layout.columns.end(), part.columns.begin(), part.columns.end());
    else if (divided)
      layout.columns.push_back({1, value(id).cols});
  }
  layout.masked = masked;
  local.out = set(op.out, std::move(layout));
  emit(std::move(local));
  return ok();
}

Status Partitioner::add(const Slice& op) {
  const RankLayout& from = layout(op.x);
  if (from.columns.empty()) {
    Slice local = op;
    ASSIGN_OR_RETURN(local.x, whole(op.x));
    local.out = set(op.out, {});
    emit(local);
    return ok();
  }
  RankLayout layout{.partial = from.partial, .masked = from.masked, .by_experts = from.by_experts};
  const Ranges ranges = ranges_of(from.columns, team_of(from));
  int64_t at = 0, column = 0;
  const int64_t end = op.column + value(op.out).cols;
  Slice local{.x = local_[op.x], .column = kNone};
  for (size_t i = 0; i < ranges.size(); ++i) {
    const int64_t size = from.columns[i].count * from.columns[i].size;
    const bool is_in = at >= op.column && at + size <= end;
    if (!is_in && at < end && at + size > op.column)
      return unsupported("a part of divided columns");
    if (is_in) {
      if (local.column == kNone) local.column = column;
      layout.columns.push_back(from.columns[i]);
    }
    at += size, column += ranges[i].size;
  }
  local.out = set(op.out, std::move(layout));
  emit(local);
  return ok();
}

// Choosing rows commutes with the sum over ranks: partial values stay partial.
Status Partitioner::add(const GatherRows& op) {
  if (op.count > 1) return add_whole(op);
  GatherRows local = op;
  local.x = local_[op.x];
  local.out = set(op.out, layout(op.x));
  emit(local);
  return ok();
}

Status Partitioner::add(const Add& op) {
  const RankLayout &x = layout(op.x), &y = layout(op.y);
  RankLayout layout;
  Add local = op;
  if (x.partial && y.partial && x.columns.empty() && y.columns.empty() && !mapping_.invariant) {
    layout.partial = true;
    local.x = local_[op.x], local.y = local_[op.y];
  } else if (!x.partial && !y.partial && !x.columns.empty() && x.columns == y.columns &&
             x.by_experts == y.by_experts) {
    layout = x;
    local.x = local_[op.x], local.y = local_[op.y];
  } else {
    ASSIGN_OR_RETURN(local.x, whole(op.x));
    ASSIGN_OR_RETURN(local.y, whole(op.y));
  }
  local.out = set(op.out, std::move(layout));
  emit(local);
  return ok();
}

Status Partitioner::add(const Glu& op) {
  RankLayout layout = this->layout(op.x);
  Glu local = op;
  const size_t half = layout.columns.size() / 2;
  const bool is_even =
      layout.columns.size() % 2 == 0 &&
      std::equal(layout.columns.begin(), layout.columns.begin() + static_cast<int64_t>(half),
                 layout.columns.begin() + static_cast<int64_t>(half));
  if (layout.partial || !is_even) {
    ASSIGN_OR_RETURN(local.x, whole(op.x));
    layout = {};
  } else {
    local.x = local_[op.x];
    layout.columns.resize(half);
  }
  local.out = set(op.out, std::move(layout));
  emit(local);
  return ok();
}

Status Partitioner::add(const Norm& op) {
  const RankLayout& x = layout(op.x);
  if (op.add != kNone || x.columns.empty() || x.partial) return add_whole(op);
  const int64_t width = in_.weights[op.weight].k, piece = op.piece > 0 ? op.piece : width;
  const bool has_pieces =
      std::ranges::all_of(x.columns, [&](const Units& units) { return units.size % piece == 0; });
  if (!has_pieces) return add_row_norm(op);
  Norm local = op;
  Cut cut;
  if (width != piece) {  // a weight for each unit
    if (width != value(op.x).cols) return unsupported("a norm weight of some heads");
    cut.rows = ranges_of(x.columns, team_of(x));
  }
  local.weight = take(op.weight, cut);
  local.bias = take(op.bias, cut);
  local.x = local_[op.x];
  local.out = set(op.out, x);
  emit(local);
  return ok();
}

// The norm of whole rows, of which the rank keeps its columns.
Status Partitioner::add_row_norm(const Norm& op) {
  const RankLayout& x = layout(op.x);
  const Ranges ranges = ranges_of(x.columns, team_of(x));
  if (ranges.size() != 1) return unsupported("a norm of columns of several kinds");
  Norm norm = op;
  ASSIGN_OR_RETURN(norm.x, whole(op.x));
  norm.weight = take(op.weight), norm.bias = take(op.bias);
  Value all = value(op.out);
  all.name += ".all";
  norm.out = new_value(all, value(op.out).cols);
  emit(norm);
  const ValueId out = set(op.out, x);
  if (value(op.out).dtype == value(op.x).dtype)
    emit(TakeColumns{.x = norm.out, .over = local_[op.x], .column = ranges[0].begin, .out = out});
  else
    emit(Slice{.x = norm.out, .column = ranges[0].begin, .out = out});
  return ok();
}

kernels::Heads Partitioner::local_heads(kernels::Heads heads, const RankLayout& layout) const {
  if (layout.columns.empty()) return heads;
  heads.num = static_cast<int32_t>(share_of(heads.num, tensor_).size);
  heads.num_kv = static_cast<int32_t>(share_of(heads.num_kv, tensor_).size);
  return heads;
}

Status Partitioner::add(const Rope& op) {
  const RankLayout& x = layout(op.qkv);
  if (x.partial) return add_whole(op);
  Rope local = op;
  local.heads = local_heads(op.heads, x);
  local.qkv = local_[op.qkv];
  local.out = set(op.out, x);
  emit(local);
  return ok();
}

Status Partitioner::add(const Attention& op) {
  const RankLayout& x = layout(op.qkv);
  out_.caches.push_back({op.cache, op.window, op.heads.num_kv, op.heads.dim, op.heads.latent});
  if (x.columns.empty()) return add_whole(op);
  Attention local = op;
  local.qkv = local_[op.qkv];
  local.heads = local_heads(op.heads, x);
  out_.caches.back().num_kv = local.heads.num_kv;
  const Range heads = share_of(op.heads.num, tensor_);
  if (op.alibi > 0) {
    local.alibi_first = static_cast<int32_t>(heads.begin);
    local.alibi_heads = op.heads.num;
  }
  local.sinks = take(op.sinks, {.rows = Ranges{heads}});
  const int64_t width = op.bias_width;
  local.bias = take(op.bias, {.rows = Ranges{{heads.begin * width, heads.size * width}}});
  const Units units{op.heads.num, op.heads.value_dim()};
  local.out = set(op.out, op.heads.num > 1 ? RankLayout{.columns = {units}} : RankLayout());
  emit(local);
  return ok();
}

Status Partitioner::add(const CrossAttention& op) {
  const RankLayout& q = layout(op.q);
  if (q.columns.empty()) return add_whole(op);
  CrossAttention local = op;
  local.q = local_[op.q];
  local.heads = local_heads(op.heads, q);
  local.out = set(op.out, {.columns = {Units{op.heads.num, op.heads.dim}}});
  emit(local);
  return ok();
}

Status Partitioner::add(const StoreKv& op) {
  const RankLayout& kv = layout(op.kv);
  if (kv.columns.empty()) return add_whole(op);
  StoreKv local = op;
  local.kv = local_[op.kv];
  local.heads = local_heads(op.heads, kv);
  emit(local);
  return ok();
}

}  // namespace nereid::graph
